//! The journals of a run, record by record: read by an I/O worker in pieces, so that their length costs no memory.

use super::target;
use crate::error::CliError;
use crate::printer;
use crate::reading::Reading;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::journal::{Line, Lines, Read};
use supervise_core::record::Record;
use supervise_host::io_worker::{Answer, Client, IoWorkerError, JournalPlace, Question};

/// Hands out each record that the journals hold from a place on, with its line. A damaged line is told and passed over.
///
/// # Errors
/// The file system does not answer, or the journals cannot be read.
pub(super) fn each(dir: &Utf8Path, from: JournalPlace, add: &mut dyn FnMut(&Line, &Record)) -> Result<(), CliError> {
    let mut journals = Journals::open(dir, from)?;
    while journals.piece(&mut |_, line, records| records.iter().for_each(|record| add(line, record)))? {}
    Ok(())
}

/// The journals of a run, read from a place on, and again where they have grown.
pub(super) struct Journals {
    dir: Utf8PathBuf,
    io_worker: Client,
    reading: Reading,
    at: JournalPlace,
    term: u32,
    lines: Lines,
    done: u64,
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
        })
    }

    /// Hands out the lines of the next piece, each with its term and those of its records that this version knows. Returns true if
    /// more may follow at once.
    ///
    /// # Errors
    /// The file system does not answer, or the journals cannot be read.
    pub(super) fn piece(&mut self, add: &mut dyn FnMut(u32, &Line, &[Record])) -> Result<bool, CliError> {
        let ask = Question::Lines {
            run_dir: self.dir.clone(),
            from: self.at,
        };
        let answer = self.io_worker.ask(ask, target::PATIENCE);
        let answer = answer.map_err(|e| failed(e, &self.reading))?;
        let Answer::Lines { at, text, next, left } = answer else {
            return Err(CliError::internal("the helper gave an unexpected answer".to_owned()));
        };
        if at.term != self.term {
            (self.term, self.lines) = (at.term, Lines::default());
        }
        self.take(&text, add);
        self.done += text.len() as u64;
        self.reading.tell(self.done, self.done + left);
        self.at = next.unwrap_or(at);
        Ok(next.is_some())
    }

    fn take(&mut self, text: &str, add: &mut dyn FnMut(u32, &Line, &[Record])) {
        for line in text.split_terminator('\n') {
            match self.lines.next(line.as_bytes()) {
                Some(Read::Known(line, records)) => add(self.term, &line, &records),
                // A newer version wrote it.
                Some(Read::Unknown(line)) => add(self.term, &line, &[]),
                Some(Read::Damaged(why)) => {
                    let (dir, term, number) = (&self.dir, self.term, self.lines.number);
                    printer::err(&format!(
                        "note: {dir}/journal/{term}.jsonl line {number} is damaged: {why}\n"
                    ));
                }
                None => {}
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
