//! How a run ended, in words.

use crate::lead::Lead;
use supervise_core::record::Outcome;

/// How a run ended, in words.
#[must_use]
pub fn outcome_words(o: &Outcome) -> String {
    match o {
        Outcome::Finished { step: Some(step) } => format!("{} step {step} is proven", Lead::Finished),
        Outcome::Finished { step: None } => {
            format!(
                "{} the command ended with exit code 0; which step is the last one cannot be known",
                Lead::Finished
            )
        }
        Outcome::ScriptUnfinished { step, why } => {
            let at = step.map_or_else(String::new, |step| format!(" at step {step}"));
            format!("the training finished{at}, its script did not: {why}")
        }
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::OutOfTime => "out of time: the machine is taken away, and the next start goes on".to_owned(),
        Outcome::Deterministic { why } => format!("{} {why}", Lead::Failed),
        Outcome::NoProof { why } => format!("{} {why}", Lead::NoCheckpoint),
        Outcome::LeaseHeld { by } => format!("another process is at work here: {by}"),
        Outcome::Stranger { what, .. } => format!("checkpoints that are not this run's: {what}"),
        Outcome::GaveUp { why } => format!("{} {why}", Lead::GaveUp),
        Outcome::Environment { why } => format!("the environment does not allow it: {why}"),
        Outcome::Config { why } => format!("the command has to be changed: {why}"),
    }
}
