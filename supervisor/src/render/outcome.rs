//! How a run ended, as text.

use crate::lead::Lead;
use supervise_core::journal::record::RunOutcome;

/// How a run ended, as text.
#[must_use]
pub fn outcome_words(o: &RunOutcome) -> String {
    match o {
        RunOutcome::Finished { step: Some(step) } => format!("{} step {step} is proven", Lead::Finished),
        RunOutcome::Finished { step: None } => {
            format!(
                "{} the command ended with exit code 0; which step is the last one cannot be known",
                Lead::Finished
            )
        }
        RunOutcome::ScriptUnfinished { step, why } => {
            let at = step.map_or_else(String::new, |step| format!(" at step {step}"));
            format!("the training finished{at}, its script did not: {why}")
        }
        RunOutcome::Stopped => "stopped".to_owned(),
        RunOutcome::OutOfTime => "preempted: the next start resumes".to_owned(),
        RunOutcome::Deterministic { why } => format!("{} {why}", Lead::Failed),
        RunOutcome::NoProof { why } => format!("{} {why}", Lead::NoCheckpoint),
        RunOutcome::LeaseHeld { by } => format!("another process is at work here: {by}"),
        RunOutcome::Stranger { what, .. } => format!("checkpoints that are not this run's: {what}"),
        RunOutcome::GaveUp { why } => format!("{} {why}", Lead::GaveUp),
        RunOutcome::Environment { why } => format!("the environment does not allow it: {why}"),
        RunOutcome::Config { why } => format!("the command has to be changed: {why}"),
    }
}
