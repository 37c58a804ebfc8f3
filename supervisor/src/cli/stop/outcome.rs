//! The record of `supervise stop` where no supervisor lives: a term of its own that ends the run.

use super::super::target::{self, Seen};
use super::Lease;
use crate::environment::wall;
use supervise_core::decide::decide;
use supervise_core::event::{Event, EventKind, Request};
use supervise_core::id::{Seq, Term, Tick};
use supervise_core::journal::encode_all;
use supervise_core::spec::RunSpec;
use supervise_core::state::{Mode, State};
use supervise_host::io_worker::{Question, lease_dir};
use supervise_host::process::{boot_id, host_name};

/// Nothing of the run lives any more: says so in its journal, as a supervisor that begins and is stopped would. A run that
/// has ended already is left as it is.
///
/// # Errors
/// Why it could not be written, in words.
pub(super) fn record(seen: &Seen, lease: &mut Lease) -> Result<(), String> {
    let Some(state) = seen.state.as_ref() else {
        return Err("its journal could not be read".to_owned());
    };
    if state.mode == Mode::Finished {
        return Ok(());
    }
    append(seen, lease, |spec, term| words(state.clone(), spec, term))
}

/// Begins the lease's term and writes its only lines.
///
/// # Errors
/// Why they could not be written, in words.
pub(in super::super) fn append(
    seen: &Seen,
    lease: &mut Lease,
    words: impl FnOnce(&RunSpec, Term) -> Result<String, serde_json::Error>,
) -> Result<(), String> {
    let (Some(run_dir), Some(spec), term) = (&seen.run_dir, &seen.spec, lease.term) else {
        return Err("its specification could not be read".to_owned());
    };
    let Some(io_worker) = lease.io_worker.as_mut() else {
        return Err("its file system does not answer".to_owned());
    };
    let text = words(spec, term).map_err(|e| e.to_string())?;
    let begin = Question::Begin {
        run_dir: run_dir.clone(),
        term,
        spec: Box::new(spec.clone()),
        registry: None,
        lease_dir: lease_dir(spec.root.as_deref(), &spec.saves, run_dir),
    };
    for ask in [begin, Question::Append { text, sync: true }] {
        io_worker.ask(ask, target::PATIENCE).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The beginning of a term in which nothing lives.
pub(in super::super) fn began(state: &State, term: Term) -> EventKind {
    EventKind::TermStarted {
        term,
        boot: boot_id().unwrap_or_default(),
        host: host_name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config: state.config,
        trainer_version: None,
        living: None,
        orphans: Vec::new(),
    }
}

/// The records of such a term.
fn words(mut state: State, spec: &RunSpec, term: Term) -> Result<String, serde_json::Error> {
    let wall = wall();
    let began = began(&state, term);
    let asked = EventKind::Operator(Request::Stop {
        after_save: false,
        by: "supervise stop".to_owned(),
        left: None,
    });
    let attempt = state.attempt.as_ref().map(|a| a.no).unwrap_or_default();
    let gone = EventKind::TreeGone {
        attempt,
        unkillable: Vec::new(),
    };
    let (mut text, mut seq) = (String::new(), 0);
    for kind in [began, asked, gone] {
        if state.mode == Mode::Finished && state.term == term {
            break;
        }
        let event = Event {
            at: Tick(0),
            wall,
            entropy: 0,
            kind,
        };
        let records = decide(&state, spec, &event).records;
        if records.is_empty() {
            continue;
        }
        records.iter().for_each(|record| state.apply(record));
        let line = encode_all(Seq(seq + 1), event.at, wall, &records)?;
        seq += records.len() as u64;
        text.push_str(&String::from_utf8_lossy(&line));
    }
    Ok(text)
}
