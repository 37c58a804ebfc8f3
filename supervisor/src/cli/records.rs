//! The journals of a run, record by record: read by an I/O worker in pieces, so that their length costs no memory.

use super::target;
use crate::error::CliError;
use crate::printer;
use crate::reading::Reading;
use camino::{Utf8Path, Utf8PathBuf};
use std::ops::Range;
use supervise_core::journal::{Line, Lines, Read, decode};
use supervise_core::record::Record;
use supervise_host::io_worker::{Answer, Asked, Client, IoWorkerError, JournalPlace, Question};

/// A shorter piece is decoded at once.
const SHORT: usize = 64 << 10;

/// Hands out each record that the journals hold from a place on, with its line. A damaged line is told and passed over.
///
/// # Errors
/// The file system does not answer, or the journals cannot be read.
pub(super) fn each(dir: &Utf8Path, from: JournalPlace, add: &mut dyn FnMut(&Line, &Record)) -> Result<(), CliError> {
    let mut journals = Journals::open(dir, from)?;
    while journals.piece(&mut |_, _, line, records| records.iter().for_each(|record| add(line, record)))? {}
    Ok(())
}

/// Hears of a line: its term, its text, and its records.
type Adding<'a> = dyn FnMut(u32, &[u8], &Line, &[Record]) + 'a;

/// The journals of a run, read from a place on, and again where they have grown.
pub(super) struct Journals {
    dir: Utf8PathBuf,
    io_worker: Client,
    reading: Reading,
    at: JournalPlace,
    term: u32,
    lines: Lines,
    done: u64,
    /// The piece that is read while the one before is decoded.
    ahead: Option<Asked>,
    /// The piece that was decoded while the one before was handed out.
    decoded: Option<Decoded>,
    /// The piece that was handed out. The thread that decodes gives it back: each gives back what it took, and none waits for another's heap.
    spent: Option<Decoded>,
}

/// A piece of a term's journal, and what its lines say.
struct Decoded {
    term: u32,
    text: Vec<u8>,
    lines: Vec<(Range<usize>, Read)>,
}

impl Decoded {
    /// `spent`: a piece that is needed no more, whose place the lines of this one take.
    fn new(term: u32, text: Vec<u8>, spent: Option<Self>) -> Self {
        let mut lines = spent.map(|s| s.lines).unwrap_or_default();
        lines.clear();
        let mut begin = 0;
        lines.extend(memchr::memchr_iter(b'\n', &text).map(|end| {
            let line = begin..end;
            begin = end + 1;
            (line.clone(), decode(text.get(line).unwrap_or_default()))
        }));
        Self { term, text, lines }
    }
}

impl Journals {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// No helper can be started.
    pub(super) fn open(dir: &Utf8Path, from: JournalPlace) -> Result<Self, CliError> {
        let reading = Reading::new(dir);
        Ok(Self {
            dir: dir.to_owned(),
            io_worker: target::io_worker().map_err(|e| failed(e, &reading))?,
            reading,
            at: from,
            term: from.term,
            lines: Lines::default(),
            done: 0,
            ahead: None,
            decoded: None,
            spent: None,
        })
    }

    /// Reads the next piece, and hands out lines that were read, each with its term, its text and those of its records that this version
    /// knows. Returns true if more may follow at once; if not, nothing that was read is left.
    ///
    /// # Errors
    /// The file system does not answer, or the journals cannot be read: what was read before is handed out.
    pub(super) fn piece(&mut self, add: &mut Adding<'_>) -> Result<bool, CliError> {
        let before = self.decoded.take();
        let (term, text, more) = match self.next() {
            Ok(next) => next,
            Err(e) => {
                self.hand_out(before.as_ref(), add);
                return Err(e);
            }
        };
        let spent = self.spent.take();
        let decoded = if text.len() < SHORT {
            self.hand_out(before.as_ref(), add);
            Decoded::new(term, text, spent)
        } else {
            std::thread::scope(|both| {
                let decoding = both.spawn(|| Decoded::new(term, text, spent));
                self.hand_out(before.as_ref(), add);
                decoding.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
            })
        };
        match more {
            true => (self.decoded, self.spent) = (Some(decoded), before),
            false => self.hand_out(Some(&decoded), add),
        }
        Ok(more)
    }

    /// The next piece, its term, and whether another may follow, which is then asked for.
    fn next(&mut self) -> Result<(u32, Vec<u8>, bool), CliError> {
        let asked = match self.ahead.take() {
            Some(asked) => Ok(asked),
            None => self.ask(),
        };
        let answer = asked.and_then(|asked| self.io_worker.answer(asked, target::PATIENCE, &mut |_, _| ()));
        let answer = answer.map_err(|e| failed(e, &self.reading))?;
        let Answer::Lines {
            at, text, next, left, ..
        } = answer
        else {
            return Err(CliError::internal("the helper gave an unexpected answer".to_owned()));
        };
        self.at = next.unwrap_or(at);
        if next.is_some() {
            self.ahead = Some(self.ask().map_err(|e| failed(e, &self.reading))?);
        }
        self.done += text.len() as u64;
        self.reading.tell(self.done, self.done + left);
        Ok((at.term, text, next.is_some()))
    }

    fn ask(&mut self) -> Result<Asked, IoWorkerError> {
        self.io_worker.send(Question::Lines {
            run_dir: self.dir.clone(),
            from: self.at,
        })
    }

    fn hand_out(&mut self, piece: Option<&Decoded>, add: &mut Adding<'_>) {
        let Some(Decoded { term, text, lines }) = piece else {
            return;
        };
        let term = *term;
        if term != self.term {
            (self.term, self.lines) = (term, Lines::default());
        }
        for (line, read) in lines {
            let text = text.get(line.clone()).unwrap_or_default();
            if !self.lines.is_new(read) {
                continue;
            }
            match read {
                Read::Known(line, records) => add(term, text, line, records),
                // A newer version wrote it.
                Read::Unknown(line) => add(term, text, line, &[]),
                Read::Damaged(why) => {
                    let (dir, number) = (&self.dir, self.lines.number);
                    printer::err(&format!(
                        "note: {dir}/journal/{term}.jsonl line {number} is damaged: {why}\n"
                    ));
                }
            }
        }
    }
}

fn failed(e: IoWorkerError, reading: &Reading) -> CliError {
    match e {
        IoWorkerError::Stalled(_) => CliError::environment(reading.stalled()),
        IoWorkerError::Refused(e) => CliError::journal(e.what),
        IoWorkerError::Io(_) => CliError::environment(e.to_string()),
    }
}
