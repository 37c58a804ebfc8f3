//! Records the end of a run that `supervise stop` ended without a supervisor, in a term of its own.

use super::super::target::{self, RunInfo};
use super::StopLease;
use crate::environment::wall;
use supervise_core::decide::decide;
use supervise_core::event::{Event, EventKind, OperatorRequest};
use supervise_core::id::{Seq, Term, Tick};
use supervise_core::journal::encode_all;
use supervise_core::spec::RunSpec;
use supervise_core::state::{RunMode, RunState};
use supervise_host::io_worker::{IoQuestion, lease_dir};
use supervise_host::process::{boot_id, host_name};

/// Writes into the journal that nothing of the run is running, as a supervisor that starts and is stopped would. Does nothing if
/// the run has ended already.
///
/// # Errors
/// Why it could not be written.
pub(super) fn record(seen: &RunInfo, lease: &mut StopLease) -> Result<(), String> {
    let Some(state) = seen.state.as_ref() else {
        return Err("its journal could not be read".to_owned());
    };
    if state.mode == RunMode::Finished {
        return Ok(());
    }
    let stop = EventKind::Operator(OperatorRequest::Stop {
        after_save: false,
        by: "supervise stop".to_owned(),
        left: None,
    });
    let gone = EventKind::TreeGone {
        attempt: state.attempt.as_ref().map(|a| a.no).unwrap_or_default(),
        unkillable: Vec::new(),
    };
    append(seen, lease, |spec, term| {
        after(state.clone(), spec, term, &[stop, gone]).1
    })
}

/// Starts the lease's term and writes its only lines.
///
/// # Errors
/// Why they could not be written.
pub(in super::super) fn append(
    seen: &RunInfo,
    lease: &mut StopLease,
    lines: impl FnOnce(&RunSpec, Term) -> Result<Vec<u8>, serde_json::Error>,
) -> Result<(), String> {
    let (Some(run_dir), Some(spec), term) = (&seen.run_dir, &seen.spec, lease.term) else {
        return Err("its specification could not be read".to_owned());
    };
    let Some(io_worker) = lease.io_worker.as_mut() else {
        return Err("its file system does not answer".to_owned());
    };
    let lines = lines(spec, term).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&lines).into_owned();
    let begin = IoQuestion::Begin {
        run_dir: run_dir.clone(),
        term,
        spec: Box::new(spec.clone()),
        registry: None,
        lease_dir: lease_dir(Some(spec), run_dir),
    };
    for ask in [begin, IoQuestion::Append { text, sync: true }] {
        io_worker.ask(ask, target::PATIENCE).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The start of a term in which nothing is running.
fn began(state: &RunState, term: Term) -> EventKind {
    EventKind::TermStarted {
        term,
        boot: boot_id().unwrap_or_default(),
        host: host_name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config: state.context.config,
        trainer_version: None,
        spread: std::collections::BTreeMap::new(),
        living: None,
        orphans: Vec::new(),
    }
}

/// The state after a term with this request, until it ends the run, and its journal lines.
pub(in super::super) fn after(
    mut state: RunState,
    spec: &RunSpec,
    term: Term,
    asked: &[EventKind],
) -> (RunState, Result<Vec<u8>, serde_json::Error>) {
    let wall = wall();
    let began = began(&state, term);
    let mut records = Vec::new();
    for kind in std::iter::once(began).chain(asked.iter().cloned()) {
        if state.mode == RunMode::Finished && state.term == term {
            break;
        }
        let event = Event {
            at: Tick(0),
            wall,
            entropy: 0,
            kind,
        };
        let decided = decide(&state, spec, &event).records;
        decided.iter().for_each(|record| state.apply(record));
        records.extend(decided);
    }
    let lines = encode_all(Seq(1), Tick(0), wall, &records);
    (state, lines)
}
