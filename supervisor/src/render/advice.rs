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
                "fix the cause, then add --again to the same `supervise run`, or use `supervise resume {run}` and start it as before"
            )
        }
        RunOutcome::NoProof { .. } if why.first().is_some_and(|r| r.code == UNFAMILIAR_GLOBALS) => {
            "answer the question above, then `supervise run` with --again; or use --from N or --fresh".to_owned()
        }
        RunOutcome::NoProof { .. } => {
            format!(
                "`supervise checkpoints {run}` shows every step; then run with --from N, --fresh or --again; or use `supervise rollback {run} --to N` or `supervise resume {run}` and start it as before"
            )
        }
        RunOutcome::LeaseHeld { .. } => format!("`supervise status {run}` shows who works there"),
        RunOutcome::Stranger { step: Some(step), .. } => format!(
            "`supervise run` with --from {step} if this run is to resume from that state; else stop the other writer, move the step away and run again"
        ),
        RunOutcome::Stranger { step: None, .. } => "stop the other writer, then `supervise run` resumes".to_owned(),
        RunOutcome::ScriptUnfinished { .. } => {
            "run the rest of the script by hand, or give each further training its own `supervise run`".to_owned()
        }
        RunOutcome::Environment { .. } => "fix the problem, then `supervise run` resumes".to_owned(),
        RunOutcome::Config { .. } => "change the configuration, then `supervise run` resumes".to_owned(),
    };
    let mut out = vec![format!("why:    supervise explain {run}")];
    out.extend(worker.map(|w| format!("output: supervise logs {run} --worker {w}")));
    out.push(format!("next:   {next}"));
    out
}
