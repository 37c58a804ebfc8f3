//! What a sudden failure can cost, and whether that keeps `max_loss`.

use super::super::time::span;
use serde::Serialize;
use supervise_core::id::Ms;
use supervise_core::save_interval::{LossBound, PromiseObstacle};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// The promise of `max_loss`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LossView {
    /// What is promised.
    pub max_loss_ms: Ms,
    /// What can be lost at most; `null`: not known.
    pub most_ms: Option<Ms>,
    /// Whether the promise is kept.
    pub kept: bool,
    /// What stands against it: `no_requests`, `unanswered`, `step_too_long`, `save_too_long`.
    pub against: Vec<PromiseObstacle>,
}

impl LossView {
    /// For a run whose state is known; `None` if nothing is promised.
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec) -> Option<Self> {
        Self::from_bound(LossBound::of(s, spec))
    }

    #[must_use]
    pub fn from_bound(bound: LossBound) -> Option<Self> {
        Some(Self {
            max_loss_ms: bound.promise?,
            most_ms: bound.most,
            kept: bound.is_kept(),
            against: bound.against,
        })
    }

    /// The promise, and what stands against it.
    #[must_use]
    pub fn words(&self) -> String {
        let promise = span(self.max_loss_ms);
        let most = match self.most_ms {
            Some(most) => format!("at most {} of training", span(most)),
            None => "an unknown amount of training".to_owned(),
        };
        let against: Vec<&str> = self.against.iter().map(|o| o.words()).collect();
        match against.as_slice() {
            [] => format!("{most} (max_loss: {promise})"),
            against => format!("{most} (max_loss: {promise} is not kept: {})", against.join("; ")),
        }
    }
}
