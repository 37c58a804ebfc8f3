//! Invariants that hold after every record. The numbers are given at each check below and appear in the message.

use super::{RunMode, RunState};
use crate::checkpoint::Verdict;
use crate::journal::record::{ActKind, RunOutcome, StartPoint};
use thiserror::Error;

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invariant {number} is broken: {what}")]
pub struct InvariantViolation {
    pub number: u8,
    pub what: String,
}

fn broken(number: u8, what: impl Into<String>) -> Result<(), InvariantViolation> {
    Err(InvariantViolation {
        number,
        what: what.into(),
    })
}

impl RunState {
    /// Checks what can be seen in one state. `prove`: the policy's switch for proofs.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_invariants(&self, prove: bool) -> Result<(), InvariantViolation> {
        self.one_attempt_at_a_time()?;
        if prove {
            self.proven_start()?;
        }
        self.guarded_acts()?;
        self.finished_is_final()
    }

    /// 1: no launch before all earlier attempts have exited.
    fn one_attempt_at_a_time(&self) -> Result<(), InvariantViolation> {
        let order = match &self.mode {
            RunMode::Arranging { order } | RunMode::Launching { order } => order,
            _ => return Ok(()),
        };
        match self.live() {
            Some(a) if a.no != order.attempt => broken(
                1,
                format!("attempt {} is not gone, {} is being launched", a.no, order.attempt),
            ),
            _ => Ok(()),
        }
    }

    /// 2: no launch from an unproven step, and no fresh start if something provable existed.
    fn proven_start(&self) -> Result<(), InvariantViolation> {
        let order = match &self.mode {
            RunMode::Arranging { order } | RunMode::Launching { order } => order,
            _ => return Ok(()),
        };
        let steps = self.disk.scan.as_ref().map(|s| s.steps.as_slice()).unwrap_or_default();
        match &order.from {
            StartPoint::Step { ckpt, pins, .. } => match steps.iter().find(|c| c.id == *ckpt) {
                Some(c) if c.verdict == Verdict::Whole && c.proven.is_some() && c.pins == *pins => Ok(()),
                Some(c) if c.part.as_ref().is_some_and(|p| p.proven.is_some() && p.pins == *pins) => Ok(()),
                Some(c) => broken(2, format!("launch from {ckpt}, which is {}", c.verdict)),
                None => broken(2, format!("launch from {ckpt}, which was not seen")),
            },
            StartPoint::Fresh => match self.progress.mark {
                Some(step) => broken(2, format!("fresh start although step {step} was proven in this run")),
                None => Ok(()),
            },
            StartPoint::AsIs => Ok(()),
        }
    }

    /// 7: at most one guarded act at a time, and none of an earlier term.
    fn guarded_acts(&self) -> Result<(), InvariantViolation> {
        for act in self.pending.values() {
            if act.term != self.term {
                return broken(
                    7,
                    format!("act {} of term {} is pending in term {}", act.id, act.term, self.term),
                );
            }
        }
        let launches = self
            .pending
            .values()
            .filter(|a| matches!(a.kind, ActKind::Launch(_) | ActKind::Arrange(_)))
            .count();
        if launches > 1 {
            return broken(7, "two launches or arrangements are pending");
        }
        Ok(())
    }

    /// 3, 4: a finished run stays finished and names a proven step.
    fn finished_is_final(&self) -> Result<(), InvariantViolation> {
        if self.mode == RunMode::Finished {
            let may_leave = matches!(
                self.outcome,
                Some(RunOutcome::Environment { .. } | RunOutcome::LeaseHeld { .. })
            );
            if !may_leave && self.live().is_some_and(|a| a.launch.launched.is_some()) {
                return broken(1, "finished while an attempt may live");
            }
            if let Some(
                RunOutcome::Finished { step: Some(step) } | RunOutcome::ScriptUnfinished { step: Some(step), .. },
            ) = &self.outcome
                && self.progress.mark.is_none_or(|m| m < *step)
            {
                return broken(3, format!("finished at step {step}, which was never proven"));
            }
        }
        Ok(())
    }
}
