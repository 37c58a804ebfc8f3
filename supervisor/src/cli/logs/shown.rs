//! Output of workers as it is shown: unchanged in a pipe, safely on a terminal, or as JSON.

use crate::printer;
use crate::render::terminal::OutputFilter;
use serde_json::json;
use std::io::{self, IsTerminal};

/// Longest line of one JSON object; what is longer becomes several.
const LINE: usize = 1 << 20;

/// A way to show output.
#[derive(Debug)]
pub(super) enum Shown {
    /// Byte for byte.
    Raw,
    /// Colours, and nothing else that a terminal obeys.
    Terminal(OutputFilter),
    /// One object per line.
    Json(Lines),
}

/// Lines of one worker.
#[derive(Debug, Default)]
pub(super) struct Lines {
    attempt: u32,
    worker: u32,
    number: u64,
    begun: Vec<u8>,
}

impl Shown {
    pub(super) fn new(json: bool, raw: bool, attempt: u32, worker: u32) -> Self {
        match (json, raw || !io::stdout().is_terminal()) {
            (true, _) => Self::Json(Lines {
                attempt,
                worker,
                ..Lines::default()
            }),
            (false, true) => Self::Raw,
            (false, false) => Self::Terminal(OutputFilter::default()),
        }
    }

    /// Shows the next piece.
    ///
    /// # Errors
    /// The reader is gone, or the file takes no more.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw => printer::out_bytes(bytes),
            Self::Terminal(filter) => printer::out_bytes(&filter.pass(bytes)),
            Self::Json(lines) => lines.pass(bytes, &mut printer::out_json),
        }
    }

    /// Shows what is left.
    ///
    /// # Errors
    /// The reader is gone.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Raw => Ok(()),
            Self::Terminal(filter) => printer::out_bytes(&filter.end()),
            Self::Json(lines) if lines.begun.is_empty() => Ok(()),
            Self::Json(lines) => printer::out_json(&lines.object()),
        }
    }
}

impl Lines {
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
        json!({ "attempt": self.attempt, "worker": self.worker, "line": self.number, "text": text }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_one_object_however_it_comes() {
        for size in [1, 4, 100] {
            let mut lines = Lines {
                attempt: 2,
                worker: 1,
                ..Lines::default()
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
