//! How a run ended, as text.

use crate::lead::Lead;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::RunOutcome;
use supervise_core::state::RunState;

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

/// The same for a run in this state: what the training loop only reported is not proven.
#[must_use]
pub fn outcome_in(o: &RunOutcome, s: &RunState) -> String {
    match o {
        RunOutcome::Finished { step: Some(step) } => {
            format!("{} step {step} is {}", Lead::Finished, proven_word(s))
        }
        o => outcome_words(o),
    }
}

/// How the newest step of a run that counts is known.
#[must_use]
pub(super) fn proven_word(s: &RunState) -> &'static str {
    match s.progress.is_reported {
        true => "reported",
        false => "proven",
    }
}

/// A reason as a sentence of its own. `mark`: the step that was proven last.
#[must_use]
pub(super) fn reason_words(reason: &Reason, mark: Option<u64>) -> String {
    let of_depth = |depth: Depth| format!("{} ({})", Verdict::Whole, depth.word());
    match mark.filter(|_| reason.code == "proven") {
        Some(step) if reason.text == of_depth(Depth::Full) => format!("step {step} is whole: every byte was read"),
        Some(step) if reason.text == of_depth(Depth::Structure) => {
            format!("step {step} is whole: the structure of its files was checked")
        }
        _ => reason.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_said_in_words() {
        for (text, mark, words) in [
            (
                "whole (structure)",
                Some(6),
                "step 6 is whole: the structure of its files was checked",
            ),
            ("whole (full)", Some(6), "step 6 is whole: every byte was read"),
            ("step 6 is whole", Some(6), "step 6 is whole"),
            ("whole (full)", None, "whole (full)"),
        ] {
            assert_eq!(reason_words(&Reason::new("proven", text), mark), words);
        }
        let other = Reason::new("newest_whole", "whole (full)");
        assert_eq!(reason_words(&other, Some(6)), "whole (full)");
    }

    #[test]
    fn a_step_that_was_only_reported_is_not_called_proven() {
        let outcome = RunOutcome::Finished {
            step: Some(supervise_core::id::Step(10)),
        };
        let mut s = RunState::default();
        assert_eq!(outcome_in(&outcome, &s), "finished: step 10 is proven");
        s.progress.is_reported = true;
        assert_eq!(outcome_in(&outcome, &s), "finished: step 10 is reported");
    }
}
