//! The commands that help after a run has stopped.

use supervise_core::checkpoint::Verdict;
use supervise_core::event::ScanReport;
use supervise_core::journal::record::{ONLY_OBSERVED, RunOutcome, UNFAMILIAR_GLOBALS};
use supervise_core::state::RunState;

/// Lines of advice for this outcome of a run in this state: where to find the reasons and the output, and how to resume.
/// Empty if nothing failed.
#[must_use]
pub fn advice(outcome: &RunOutcome, s: &RunState, run: &str, worker: Option<u32>) -> Vec<String> {
    let Some(next) = next_step(outcome, s, run) else {
        return Vec::new();
    };
    let mut out = vec![format!("why:    supervise explain {run}")];
    out.extend(worker.map(|w| format!("output: supervise logs {run} --worker {w}")));
    out.push(format!("next:   {next}"));
    out
}

/// What to do next; `None`: nothing failed.
#[must_use]
pub fn next_step(outcome: &RunOutcome, s: &RunState, run: &str) -> Option<String> {
    let has_reason = |code: &str| s.why.iter().any(|r| r.code == code);
    Some(match outcome {
        RunOutcome::Finished { .. } | RunOutcome::Stopped | RunOutcome::OutOfTime => return None,
        _ if has_reason(ONLY_OBSERVED) => {
            "the run was only observed: `supervise run` without --observe starts it".to_owned()
        }
        RunOutcome::Deterministic { .. } | RunOutcome::GaveUp { .. } => {
            format!(
                "fix the cause, then add --again to the same `supervise run`, or use `supervise resume {run}` and start it as before"
            )
        }
        RunOutcome::NoProof { .. } if has_reason(UNFAMILIAR_GLOBALS) => {
            "answer the question above, then `supervise run` with --again; or use --from N or --fresh".to_owned()
        }
        RunOutcome::NoProof { .. } => no_proof(s, run),
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
    })
}

fn no_proof(s: &RunState, run: &str) -> String {
    let mut all = s.disk.scan.iter().flat_map(|scan| &scan.steps);
    if all
        .next()
        .is_some_and(|c| c.is_reported_only() && c.verdict != Verdict::Whole)
    {
        return format!(
            "if the loop notices a damaged file by itself, add --set supervisor.proof.trust_reported=true to the same `supervise run`: it resumes from what was reported; or use --fresh, which moves all steps aside and starts at step 0 (`supervise checkpoints {run}` lists them)"
        );
    }
    let steps = s.disk.scan.as_ref().map(ScanReport::resumable).unwrap_or_default();
    if steps.is_empty() {
        return format!(
            "no step can be resumed (`supervise checkpoints {run}` says why): put a whole copy of a step in its place and add --again to the same `supervise run`; or use --fresh, which moves all steps aside and starts at step 0"
        );
    }
    let steps = steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "`supervise checkpoints {run}` lists every step; these are whole: {steps}. Then run with --from N, --fresh or --again; or use `supervise rollback {run} --to N` or `supervise resume {run}` and start it as before"
    )
}
