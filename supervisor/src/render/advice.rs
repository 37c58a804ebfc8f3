//! The commands that help after a run has stopped.

use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{RunOutcome, UNFAMILIAR_GLOBALS};

/// Lines of advice for this outcome and its reasons: where to find the reasons and the output, and how to resume.
/// Empty if nothing failed.
#[must_use]
pub fn advice(outcome: &RunOutcome, why: &[Reason], run: &str, worker: Option<u32>) -> Vec<String> {
    let next = match outcome {
        RunOutcome::Finished { .. } | RunOutcome::Stopped | RunOutcome::OutOfTime => return Vec::new(),
        RunOutcome::Deterministic { .. } | RunOutcome::GaveUp { .. } => {
            format!(
                "fix the cause, then the same `supervise run` with --again; or `supervise resume {run}`, and start it as ever"
            )
        }
        RunOutcome::NoProof { .. } if why.first().is_some_and(|r| r.code == UNFAMILIAR_GLOBALS) => {
            "once the question above is answered, `supervise run` with --again; else with --from N or --fresh"
                .to_owned()
        }
        RunOutcome::NoProof { .. } => {
            format!(
                "`supervise checkpoints {run}` shows every step; then run with --from N, --fresh or --again; or `supervise rollback {run} --to N` or `supervise resume {run}`, and start it as ever"
            )
        }
        RunOutcome::LeaseHeld { .. } => format!("`supervise status {run}` shows who works there"),
        RunOutcome::Stranger { step: Some(step), .. } => format!(
            "`supervise run` with --from {step} where that state is this run's to go on from; else end who writes there, move it away, and run again"
        ),
        RunOutcome::Stranger { step: None, .. } => "end who writes there, then `supervise run` goes on".to_owned(),
        RunOutcome::ScriptUnfinished { .. } => {
            "run the rest of the script by hand, or give each further training its own `supervise run`".to_owned()
        }
        RunOutcome::Environment { .. } => "mend it, then `supervise run` goes on".to_owned(),
        RunOutcome::Config { .. } => "change the configuration, then `supervise run` goes on".to_owned(),
    };
    let mut out = vec![format!("why:    supervise explain {run}")];
    out.extend(worker.map(|w| format!("output: supervise logs {run} --worker {w}")));
    out.push(format!("next:   {next}"));
    out
}
