//! The journals of a run, record by record: read by an I/O worker in pieces, so that their length costs no memory.

use super::target;
use crate::error::CliError;
use crate::printer;
use crate::reading::Reading;
use camino::Utf8Path;
use supervise_core::journal::{Line, Lines, Read};
use supervise_core::record::Record;
use supervise_host::io_worker::{Answer, IoWorkerError, JournalPlace, Question};

/// Hands out each record that the journals hold from a place on, with its line. A damaged line is told and passed over.
///
/// # Errors
/// The file system does not answer, or the journals cannot be read.
pub(super) fn each(dir: &Utf8Path, from: JournalPlace, add: &mut dyn FnMut(&Line, &Record)) -> Result<(), CliError> {
    let failed = |e: IoWorkerError, reading: &Reading| match e {
        IoWorkerError::Stalled(_) => CliError::environment(reading.stalled()),
        IoWorkerError::Refused(e) => CliError::journal(e.what),
        IoWorkerError::Io(_) => CliError::environment(e.to_string()),
    };
    let mut reading = Reading::new(dir);
    let mut io_worker = target::io_worker().map_err(|e| failed(e, &reading))?;
    let (mut next, mut term, mut lines) = (Some(from), from.term, Lines::default());
    let mut done = 0;
    while let Some(from) = next {
        let ask = Question::Lines {
            run_dir: dir.to_owned(),
            from,
        };
        let answer = io_worker.ask(ask, target::PATIENCE).map_err(|e| failed(e, &reading))?;
        let Answer::Lines {
            at,
            text,
            next: then,
            left,
        } = answer
        else {
            return Err(CliError::internal("the helper gave an unexpected answer".to_owned()));
        };
        if at.term != term {
            (term, lines) = (at.term, Lines::default());
        }
        take(dir, at, &text, &mut lines, add);
        done += text.len() as u64;
        reading.tell(done, done + left);
        next = then;
    }
    Ok(())
}

fn take(dir: &Utf8Path, at: JournalPlace, text: &str, lines: &mut Lines, add: &mut dyn FnMut(&Line, &Record)) {
    for line in text.split_terminator('\n') {
        match lines.next(line.as_bytes()) {
            Some(Read::Known(line, records)) => records.iter().for_each(|record| add(&line, record)),
            Some(Read::Damaged(why)) => {
                let term = at.term;
                let number = lines.number;
                printer::err(&format!(
                    "note: {dir}/journal/{term}.jsonl line {number} is damaged: {why}\n"
                ));
            }
            Some(Read::Unknown(_)) | None => {}
        }
    }
}
