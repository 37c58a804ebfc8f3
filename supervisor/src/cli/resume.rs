//! `supervise resume`: a run that ended until somebody looked at it may go on.

use super::target::{self, Seen};
use super::{at_rest, hold};
use crate::environment;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::next::NextView;
use crate::render::record::outcome_words;
use crate::render::resume::ResumeView;
use supervise_core::event::{EventKind, Request};
use supervise_core::record::Outcome;
use supervise_core::state::State;
use supervise_host::process::boot_id;

pub(super) const EXAMPLES: &str = "  supervise resume ppo.yaml && systemctl --user start supervise-ppo
  supervise resume ppo.yaml && sbatch ppo.sbatch
";

pub(super) const EXITS: [Exit; 5] = [
    Exit::Finished,
    Exit::LeaseHeld,
    Exit::Usage,
    Exit::Environment,
    Exit::Journal,
];

/// After an end that needs a person (3, 4, 6), once the cause is mended: the next start goes on, whoever makes it: a unit of
/// systemd, a job of Slurm, `supervise run`. It is what `run --again` says, without a start: the retries are whole again, and
/// steps that failed to load are tried again. What cannot be resumed from is refused as ever. A hold that was not let go ends, too
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let lives = seen.alive.supervisor.alive || seen.elsewhere.is_some();
    if lives && seen.state.as_ref().is_some_and(|s| s.held.is_some()) {
        return hold::let_go(&seen, args.json);
    }
    let view = at_rest(&seen)?;
    match args.json {
        true => super::print_json(&view)?,
        false => super::print(&view.text())?,
    }
    Ok(Exit::Finished.code())
}

/// Of a run of which nothing lives: what stood against its next start does no more.
///
/// # Errors
/// It is at work, is finished, or its journal cannot be read or written.
pub(super) fn at_rest(seen: &Seen) -> Result<ResumeView, CliError> {
    at_rest::check(seen)?;
    let run = &seen.run;
    let (Some(state), Some(spec)) = (&seen.state, &seen.spec) else {
        return Err(CliError::environment(format!(
            "run {run}: its journal or its specification cannot be read"
        )));
    };
    let was = state.outcome.as_ref();
    if let Some(Outcome::Finished { .. }) = was {
        return Err(
            CliError::usage(format!("run {run} is finished: there is nothing to go on with"))
                .hint("where it is to train on, raise the trainer's number of steps: `supervise run` goes on then"),
        );
    }
    let needed = was.filter(|outcome| outcome.needs_a_person());
    let asked = asked(state, needed);
    if !asked.is_empty() {
        at_rest::write_down(seen, &asked)?;
    }
    let (after, _) = match asked.is_empty() {
        true => (state.clone(), Ok(Vec::new())),
        false => at_rest::after(state.clone(), spec, state.term.next(), &asked),
    };
    let next = NextView::of(&after, spec, seen.alive, &boot_id().unwrap_or_default());
    Ok(ResumeView::of(&run.0, state, !asked.is_empty(), next.would))
}

/// The requests that take away what stands against a start.
fn asked(state: &State, needed: Option<&Outcome>) -> Vec<EventKind> {
    let by = environment::user();
    let unheld = state.held.as_ref().map(|_| Request::Unhold { by: by.clone() });
    let resumed = (needed.is_some() || unheld.is_some()).then(|| Request::Resume {
        by: by.clone(),
        was: needed.map(|outcome| format!("{} (exit code {})", outcome_words(outcome), outcome.exit_code())),
    });
    let asked = unheld.into_iter().chain(resumed);
    asked.map(EventKind::Operator).collect()
}
