//! Operators' requests for a stopped run: each is a term of its own in the journal, which launches nothing.

use super::stop::{StopLease, jobs, outcome};
use super::target::{self, RunInfo};
use crate::environment;
use crate::error::CliError;
use crate::render::next::NextView;
use crate::render::outcome::outcome_words;
use crate::render::resume::ResumeView;
use supervise_core::checkpoint::Depth;
use supervise_core::event::{EventKind, OperatorRequest};
use supervise_core::journal::record::RunOutcome;
use supervise_core::state::RunState;
use supervise_host::io_worker::{RunCheckpoints, look_at_run};
use supervise_host::process::boot_id;

/// Refuses a run with processes that are, or may be, running.
///
/// # Errors
/// It is running, was not seen to end, or its state is unknown.
pub(super) fn check(seen: &RunInfo) -> Result<(), CliError> {
    let run = &seen.run;
    if let Some(problem) = &seen.problem {
        return Err(CliError::environment(problem.clone()));
    }
    if let Some(e) = seen.unreachable("stop").or_else(|| seen.unreadable()) {
        return Err(e);
    }
    if seen.alive.supervisor.alive {
        return Err(
            CliError::lease_held(format!("run {run} is at work: its supervisor lives"))
                .hint(format!("`supervise stop {run}` ends it first")),
        );
    }
    if seen.alive.guard.alive || seen.left_behind().is_some() || jobs::any(seen)? {
        let text = format!("what the last attempt of run {run} left lives on without a supervisor");
        return Err(CliError::lease_held(text)
            .hint("`supervise run` takes it over, and goes on as ever")
            .hint(format!("`supervise stop {run}` ends it")));
    }
    let was_seen_to_end = seen.state.as_ref().is_none_or(|s| s.live().is_none());
    if !was_seen_to_end {
        return Err(
            CliError::lease_held(format!("the last attempt of run {run} was not seen to end"))
                .hint(format!("`supervise stop {run}` makes sure of it first")),
        );
    }
    Ok(())
}

/// Writes the requests as a term of their own, so that no supervisor starts meanwhile.
///
/// # Errors
/// The run was started meanwhile, is running, or its journal cannot be written.
pub(super) fn write_down(seen: &RunInfo, asked: &[EventKind]) -> Result<(), CliError> {
    let mut lease = StopLease::take(seen)?;
    // It may have been started between the look and the lease.
    let now = target::look(&seen.run, seen.run_dir.as_deref());
    let term = |seen: &RunInfo| seen.state.as_ref().map(|s| s.term);
    let done = if term(&now) != term(seen) {
        Err(CliError::lease_held(format!("run {} was started meanwhile", seen.run)))
    } else {
        check(&now).and_then(|()| {
            let state = now.state.clone().unwrap_or_default();
            outcome::append(&now, &mut lease, |spec, term| {
                outcome::after(state, spec, term, asked).1
            })
            .map_err(|why| CliError::journal(format!("run {}: it cannot be written down: {why}", seen.run)))
        })
    };
    lease.release();
    done
}

/// Clears what prevents the next start of a stopped run.
///
/// # Errors
/// It is running, is finished, or its journal cannot be read or written.
pub(super) fn let_go_on(seen: &RunInfo) -> Result<ResumeView, CliError> {
    check(seen)?;
    let run = &seen.run;
    let (Some(state), Some(spec)) = (&seen.state, &seen.spec) else {
        return Err(CliError::environment(format!(
            "run {run}: its journal or its specification cannot be read"
        )));
    };
    let was = state.outcome.as_ref();
    if let Some(RunOutcome::Finished { .. } | RunOutcome::ScriptUnfinished { .. }) = was {
        return Err(
            CliError::usage(format!("run {run} is finished: there is nothing to go on with"))
                .hint("to train further, raise the trainer's number of steps and start it with `supervise run`"),
        );
    }
    let asked = asked(state, state.needs_a_person());
    if !asked.is_empty() {
        write_down(seen, &asked)?;
    }
    let mut then = match asked.is_empty() {
        true => state.clone(),
        false => outcome::after(state.clone(), spec, state.term.next(), &asked).0,
    };
    // The cause may have been fixed on disk since the last scan.
    if let (Some(RunOutcome::NoProof { .. }), Some(place)) = (was, RunCheckpoints::of(&seen.spec_as_seen_for(spec))) {
        then.disk.scan = Some(look_at_run(&place, Depth::Structure, &mut |_| true));
    }
    let next = NextView::of(&then, spec, seen.alive, &boot_id().unwrap_or_default());
    Ok(ResumeView::of(&run.0, state, &then, !asked.is_empty(), next))
}

/// The requests that clear what prevents a start.
fn asked(state: &RunState, needed: Option<&RunOutcome>) -> Vec<EventKind> {
    let by = environment::user();
    let unheld = state
        .requests
        .held
        .as_ref()
        .map(|_| OperatorRequest::Unhold { by: by.clone() });
    let resumed = (needed.is_some() || unheld.is_some()).then(|| OperatorRequest::Resume {
        by: by.clone(),
        was: needed.map(|outcome| format!("{} (exit code {})", outcome_words(outcome), outcome.exit_code())),
    });
    let asked = unheld.into_iter().chain(resumed);
    asked.map(EventKind::Operator).collect()
}
