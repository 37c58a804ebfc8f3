//! How long steps and saves take, as a request for a save has to know it.

use crate::id::Ms;
use crate::observe::durations::DurationKind;
use crate::state::RunState;

/// Measured durations, high ones rather than usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaveSpans {
    /// 90th percentile of a step; `None`: none was measured.
    pub step: Option<Ms>,
    /// 90th percentile of a validation; 0: none was seen.
    pub validation: Ms,
    /// 90th percentile from the beginning of a save until its step was proven; `None`: none was measured.
    pub save: Option<Ms>,
    /// 99th percentile of the same.
    pub slow_save: Option<Ms>,
}

impl SaveSpans {
    /// What a run has shown.
    #[must_use]
    pub fn of(s: &RunState) -> Self {
        let percentile = |kind, percent| s.clocks.of(kind).and_then(|d| d.percentile(percent));
        let step = percentile(DurationKind::Step, 90);
        Self {
            step: step.or_else(|| percentile(DurationKind::FirstStep, 90)),
            validation: percentile(DurationKind::Validate, 90).unwrap_or_default(),
            save: percentile(DurationKind::SaveProven, 90),
            slow_save: percentile(DurationKind::SaveProven, 99),
        }
    }

    /// How long before the time of a promise a save must be asked for: a step and a save. An unknown save may take a
    /// quarter of the promise.
    #[must_use]
    pub fn lead(self, max_loss: Ms) -> Ms {
        let save = self.save.unwrap_or(Ms(max_loss.0 / 4));
        Ms(self.step.unwrap_or_default().0.saturating_add(save.0))
    }
}
