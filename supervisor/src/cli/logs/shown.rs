//! How workers' output is shown: unchanged in a pipe, safely on a terminal, without secrets between the lines of a run, or as JSON.

use crate::printer;
use crate::render::terminal::OutputFilter;
use serde_json::json;
use std::io::{self, IsTerminal};
use supervise_config::LineRedactor;

/// Longest line in one JSON object, in bytes; a longer one is split.
const LINE: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum LogFormat {
    /// Byte for byte.
    Raw,
    /// Without secrets; on a terminal, colors are the only control sequences.
    Safe(SafePieces, Option<OutputFilter>),
    /// One object per line.
    Json(WorkerLines),
}

/// Output in pieces that end with a newline or a carriage return.
#[derive(Debug, Default)]
pub(in crate::cli) struct SafePieces {
    begun: Vec<u8>,
    redactor: LineRedactor,
}

#[derive(Debug, Default)]
pub(super) struct WorkerLines {
    attempt: u32,
    worker: u32,
    number: u64,
    begun: Vec<u8>,
    redactor: LineRedactor,
}

impl LogFormat {
    /// Returns true if every byte is passed through.
    pub(super) fn is_raw(&self) -> bool {
        matches!(self, Self::Raw)
    }

    /// The output begins after this many lines.
    pub(super) fn skip(&mut self, lines: u64) {
        if let Self::Json(out) = self {
            out.number = lines;
        }
    }

    /// `safe`: hide secrets in a pipe too.
    pub(super) fn new(json: bool, raw: bool, safe: bool, attempt: u32, worker: u32) -> Self {
        let terminal = !raw && io::stdout().is_terminal();
        match (json, terminal, safe) {
            (true, ..) => Self::Json(WorkerLines {
                attempt,
                worker,
                ..WorkerLines::default()
            }),
            (false, false, false) => Self::Raw,
            (false, ..) => Self::Safe(SafePieces::default(), terminal.then(OutputFilter::default)),
        }
    }

    /// Shows the next piece.
    ///
    /// # Errors
    /// The reader is gone, or the file is full.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw => printer::out_bytes(bytes),
            Self::Safe(pieces, filter) => out(&pieces.pass(bytes), filter),
            Self::Json(lines) => lines.pass(bytes, &mut printer::out_json),
        }
    }

    /// No output came for a while: shows an unfinished line.
    ///
    /// # Errors
    /// The reader is gone.
    pub(super) fn idle(&mut self) -> io::Result<()> {
        match self {
            Self::Safe(pieces, filter) => out(&pieces.rest(), filter),
            Self::Raw | Self::Json(_) => Ok(()),
        }
    }

    /// Shows the rest.
    ///
    /// # Errors
    /// The reader is gone.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Raw => Ok(()),
            Self::Safe(pieces, filter) => {
                out(&pieces.rest(), filter)?;
                match filter {
                    Some(filter) => printer::out_bytes(&filter.end()),
                    None => Ok(()),
                }
            }
            Self::Json(lines) if lines.begun.is_empty() => Ok(()),
            Self::Json(lines) => printer::out_json(&lines.object()),
        }
    }
}

fn out(bytes: &[u8], filter: &mut Option<OutputFilter>) -> io::Result<()> {
    match filter {
        _ if bytes.is_empty() => Ok(()),
        Some(filter) => printer::out_bytes(&filter.pass(bytes)),
        None => printer::out_bytes(bytes),
    }
}

impl SafePieces {
    pub(in crate::cli) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for b in bytes {
            self.begun.push(*b);
            if matches!(b, b'\n' | b'\r') || self.begun.len() >= LINE {
                out.append(&mut self.rest());
            }
        }
        out
    }

    /// The unfinished piece. Bytes that are not text are kept if they hide nothing.
    pub(in crate::cli) fn rest(&mut self) -> Vec<u8> {
        let piece = std::mem::take(&mut self.begun);
        let end = piece
            .iter()
            .rposition(|b| !matches!(b, b'\n' | b'\r'))
            .map_or(0, |at| at + 1);
        let (body, ending) = piece.split_at(end);
        let text = String::from_utf8_lossy(body);
        let safe = match body.is_empty() {
            true => String::new(),
            false => self.redactor.line(&text),
        };
        match safe == text {
            true => piece,
            false => [safe.as_bytes(), ending].concat(),
        }
    }
}

impl WorkerLines {
    fn pass(&mut self, bytes: &[u8], say: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        for b in bytes {
            if *b != b'\n' {
                self.begun.push(*b);
            }
            if *b == b'\n' || self.begun.len() >= LINE {
                say(&self.object())?;
            }
        }
        Ok(())
    }

    fn object(&mut self) -> String {
        self.number += 1;
        let line = std::mem::take(&mut self.begun);
        let text = String::from_utf8_lossy(&line);
        let text = text.strip_suffix('\r').unwrap_or(&text);
        let text = self.redactor.line(text);
        json!({ "attempt": self.attempt, "worker": self.worker, "line": self.number, "text": text }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_secrets_however_they_come() {
        let text = b"one \xff\r 5%\rgot hf_abcdefghijklmnopqrstuvwx\n-----BEGIN PRIVATE KEY-----\nAb1=\n-----END PRIVATE KEY-----\nlast";
        let wanted = b"one \xff\r 5%\rgot ***\n-----BEGIN PRIVATE KEY-----\n***\n-----END PRIVATE KEY-----\nlast";
        for size in [1, 4, 1000] {
            let mut pieces = SafePieces::default();
            let mut shown: Vec<u8> = text.chunks(size).flat_map(|piece| pieces.pass(piece)).collect();
            shown.extend(pieces.rest());
            assert_eq!(shown, wanted, "{}", String::from_utf8_lossy(&shown));
        }
    }

    #[test]
    fn a_private_key_is_hidden_in_every_object_of_its_lines() {
        let mut lines = WorkerLines::default();
        let mut said = String::new();
        lines
            .pass(
                b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nAb1=\n-----END PRIVATE KEY-----\nplain\n",
                &mut |object| {
                    said += object;
                    Ok(())
                },
            )
            .unwrap();
        assert!(
            !said.contains("MIIE") && !said.contains("Ab1=") && said.contains("plain"),
            "{said}"
        );
    }

    #[test]
    fn each_line_is_one_object_however_it_comes() {
        for size in [1, 4, 100] {
            let mut lines = WorkerLines {
                attempt: 2,
                worker: 1,
                ..WorkerLines::default()
            };
            let mut said: Vec<serde_json::Value> = Vec::new();
            for piece in b"one\r\n\ntw\xffo\nlast".chunks(size) {
                lines
                    .pass(piece, &mut |object| {
                        said.push(serde_json::from_str(object).unwrap());
                        Ok(())
                    })
                    .unwrap();
            }
            said.push(serde_json::from_str(&lines.object()).unwrap());
            let texts: Vec<&str> = said.iter().map(|o| o["text"].as_str().unwrap()).collect();
            assert_eq!(texts, ["one", "", "tw\u{fffd}o", "last"]);
            assert_eq!((&said[3]["line"], &said[3]["worker"]), (&4.into(), &1.into()));
        }
    }
}
