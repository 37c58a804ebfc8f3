//! `supervise journal`: the records of a run as written.

use super::records::Journals;
use super::{target, written};
use crate::control;
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::journal::{RecordView, views};
use crate::render::terminal;
use crate::render::time::moment;
use camino::{Utf8Path, Utf8PathBuf};
use std::time::Duration;
use supervise_core::id::{RunId, WallMs};
use supervise_core::journal::bodies;
use supervise_host::io_worker::JournalPlace;

pub(super) const EXAMPLES: &str = "  supervise journal ppo.yaml --kind decided          every decision, with its reason
  supervise journal ppo.yaml --since 2h --follow
  supervise journal /ckpt/my-run --kind fact.progress --json | jq .body.step
  supervise journal /ckpt/my-run/.supervise/journal/3.jsonl    one term
";

/// How often to look for new records.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory, identity or journal file
    ///
    /// Default: the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Keep printing new records until the run has ended
    #[arg(long, short)]
    follow: bool,
    /// Only records since then: 30m, 02:30, 2026-11-21T02:30:00Z
    #[arg(long, value_name = "DURATION|TIME", value_parser = |text: &str| moment(text, wall()))]
    since: Option<WallMs>,
    /// Only records of this kind: `fact.progress`, `progress`, `fact`
    ///
    /// `fact` stands for all facts. May be given several times.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Print one JSON object per record
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (dir, run, term) = place(args.run.as_deref())?;
    let from = JournalPlace {
        term: term.unwrap_or_default(),
        offset: 0,
    };
    let mut journals = Journals::open(&dir, from)?;
    let mut told = RecordPrinter {
        args,
        since: args.since,
        term,
        some: false,
        text: String::new(),
    };
    loop {
        // Checked before reading, so that everything written before the last process exits is read.
        let lives = run
            .as_ref()
            .is_none_or(|r| control::lives(r) || control::guard_lives(r));
        loop {
            let more = journals.piece(&mut |term, text, line, _| {
                let bodies = bodies(text).map(|(_, bodies)| bodies).unwrap_or_default();
                views(term, line, &bodies).for_each(|view| told.add(term, &view));
            })?;
            if !told.write()? {
                return Ok(SuperviseExitCode::Finished.code());
            }
            if !more {
                break;
            }
        }
        if !args.follow || !lives {
            break;
        }
        std::thread::sleep(LOOK);
    }
    if !told.some && !args.kind.is_empty() {
        let kinds = args.kind.join(", ");
        printer::note(&format!(
            "no record of kind {kinds}; without --kind every record is shown with its kind"
        ));
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The run directory, the run if known, and the only term to show.
fn place(name: Option<&str>) -> Result<(Utf8PathBuf, Option<RunId>, Option<u32>), CliError> {
    if let Some((dir, term)) = name.and_then(file) {
        return Ok((dir, None, Some(term)));
    }
    let seen = target::one(name)?;
    target::tell_gaps(&seen);
    Ok((seen.run_dir()?.to_owned(), Some(seen.run.clone()), None))
}

/// A term's file: `RUN_DIR/journal/TERM.jsonl`.
fn file(name: &str) -> Option<(Utf8PathBuf, u32)> {
    let path = camino::absolute_utf8(name).ok()?;
    let term = path.file_name()?.strip_suffix(".jsonl")?.parse().ok()?;
    let journal = path.parent().filter(|dir| dir.file_name() == Some("journal"))?;
    Some((journal.parent().map(Utf8Path::to_owned)?, term))
}

struct RecordPrinter<'a> {
    args: &'a Args,
    since: Option<WallMs>,
    term: Option<u32>,
    /// Whether any was printed.
    some: bool,
    text: String,
}

impl RecordPrinter<'_> {
    fn add(&mut self, term: u32, view: &RecordView) {
        let kinds = &self.args.kind;
        let is_asked = self.term.is_none_or(|t| t == term)
            && self.since.is_none_or(|at| view.wall >= at)
            && (kinds.is_empty() || kinds.iter().any(|k| view.is(k)));
        if !is_asked {
            return;
        }
        self.some = true;
        match self.args.json {
            true => {
                let json = serde_json::to_string(view).unwrap_or_default();
                self.text.push_str(&terminal::json(&json));
            }
            false => self.text.push_str(&view.text()),
        }
        self.text.push('\n');
    }

    /// Returns false if the reader is gone.
    fn write(&mut self) -> Result<bool, CliError> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(true);
        }
        let result = match self.args.json {
            true => printer::out_bytes(text.as_bytes()),
            false => printer::out_text(&text),
        };
        let goes_on = result.is_ok();
        written(result).map(|()| goes_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terms_file_names_its_run_directory() {
        assert_eq!(
            file("/c/.supervise/journal/12.jsonl"),
            Some(("/c/.supervise".into(), 12))
        );
        assert_eq!(file("/c/12.jsonl"), None);
        assert_eq!(file("/c/journal/x.jsonl"), None);
    }
}
