//! What is simulated: the training, its saves and its failures.

use crate::trace::FailureTrace;
use supervise_core::id::Ms;
use supervise_core::spec::policy::{BackoffPolicy, FailurePolicy};
use thiserror::Error;

/// Saves and failures of one simulated run, at most.
const MOST_EVENTS: f64 = 1_000_000.0;
/// A run is given up after this many times the planned training.
const PATIENCE: u64 = 10;
const YEAR: u64 = 365 * 86_400_000;

/// When the run fails.
#[derive(Debug, Clone, PartialEq)]
pub enum FailureSource {
    /// At random, on average once in this time.
    Poisson { mean: Ms },
    /// As recorded; `scale`: how many such traces at once.
    Trace { trace: FailureTrace, scale: f64 },
    /// At these times.
    Given(Vec<Ms>),
}

impl FailureSource {
    /// Moments that are drawn until `end`, about.
    fn drawn(&self, end: Ms) -> f64 {
        let end = end.0 as f64;
        match self {
            Self::Poisson { mean } => end / mean.0 as f64,
            Self::Trace { trace, scale } => end / trace.mean_ms() * scale.ceil(),
            Self::Given(times) => times.len() as f64,
        }
    }

    /// Mean time between failures.
    #[must_use]
    pub fn mean(&self) -> Ms {
        match self {
            Self::Poisson { mean } => *mean,
            Self::Trace { trace, scale } => Ms((trace.mean_ms() / scale).max(1.0) as u64),
            Self::Given(times) => {
                let last = times.last().copied().unwrap_or(Ms(u64::MAX));
                Ms(last.0 / times.len().max(1) as u64)
            }
        }
    }
}

/// A training and what happens to it.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationPlan {
    /// Steps to train.
    pub steps: u64,
    pub step: Ms,
    /// Save interval in steps.
    pub every: u64,
    /// How long a save stops the training.
    pub stall: Ms,
    /// From the beginning of a save until it can be resumed from; at least `stall`.
    pub save: Ms,
    /// From the launch until the training continues.
    pub launch: Ms,
    /// The same for the first attempt.
    pub first_launch: Ms,
    /// From a failure until it is detected.
    pub detect: Ms,
    /// How much longer a launch takes if a node must be replaced, ...
    pub replace: Ms,
    /// ... and after which share of the failures.
    pub replaced: f64,
    /// Share of the failures that leave the newest checkpoint damaged.
    pub damaged: f64,
    /// How long a person takes to restart a run that gave up.
    pub person: Ms,
    pub failures: FailureSource,
    pub backoff: BackoffPolicy,
    pub policy: FailurePolicy,
    /// Wall time after which the simulation stops.
    pub limit: Ms,
}

/// Why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PlanError {
    #[error("{what} must be more than 0")]
    Zero { what: &'static str },
    #[error("{what} must be at most {most}")]
    TooLong { what: &'static str, most: &'static str },
    #[error("{what} must be between 0 and 1")]
    NoShare { what: &'static str },
    #[error("the save interval of {every} steps is longer than the training of {steps} steps")]
    Interval { every: u64, steps: u64 },
    #[error("a save takes {save} s, but the next one begins {interval} s after it: save less often")]
    SavesOverlap { save: u64, interval: u64 },
    #[error("the run would have about {saves:.0} saves and {failures:.0} failures: together at most 1,000,000")]
    TooMany { saves: f64, failures: f64 },
}

impl SimulationPlan {
    /// Refuses what makes no sense or takes too long to simulate.
    ///
    /// # Errors
    /// Names the first value that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        for (what, value) in [
            ("the training", self.steps),
            ("the step time", self.step.0),
            ("the save interval", self.every),
            ("the mean time between failures", self.failures.mean().0),
        ] {
            if value == 0 {
                return Err(PlanError::Zero { what });
            }
        }
        for (what, value) in [
            ("the step time", self.step),
            ("the save stall", self.stall),
            ("the save time", self.save),
            ("the launch time", self.launch),
            ("the detection time", self.detect),
            ("the time to replace a node", self.replace),
            ("the time until a person acts", self.person),
        ] {
            if value.0 > YEAR {
                return Err(PlanError::TooLong { what, most: "a year" });
            }
        }
        if self.trained().is_none_or(|ms| ms.0 > 10 * YEAR) {
            return Err(PlanError::TooLong {
                what: "the training",
                most: "ten years",
            });
        }
        for (what, share) in [
            ("the share of replaced nodes", self.replaced),
            ("the share of damaged checkpoints", self.damaged),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(PlanError::NoShare { what });
            }
        }
        if self.every > self.steps {
            return Err(PlanError::Interval {
                every: self.every,
                steps: self.steps,
            });
        }
        if self.save.0 > self.interval().0.saturating_add(self.stall.0) {
            return Err(PlanError::SavesOverlap {
                save: self.save.0 / 1000,
                interval: (self.interval().0 + self.stall.0) / 1000,
            });
        }
        let failures = self.failures.drawn(self.limit);
        let saves = self.steps as f64 / self.every as f64;
        if saves + failures > MOST_EVENTS {
            return Err(PlanError::TooMany { saves, failures });
        }
        Ok(())
    }

    /// A wall time after which a run that did not finish never will, for all that matters.
    #[must_use]
    pub fn patience(steps: u64, step: Ms, person: Ms) -> Ms {
        Ms(steps
            .saturating_mul(step.0)
            .saturating_add(person.0)
            .saturating_mul(PATIENCE))
    }

    /// Training between two saves.
    #[must_use]
    pub fn interval(&self) -> Ms {
        Ms(self.every.saturating_mul(self.step.0))
    }

    /// The planned training; `None`: too long to count.
    #[must_use]
    pub fn trained(&self) -> Option<Ms> {
        self.steps.checked_mul(self.step.0).map(Ms)
    }
}
