//! How much training a sudden failure can cost, and whether that keeps what `max_loss` promises.

use super::SaveSpans;
use crate::id::Ms;
use crate::resume::save_interval;
use crate::spec::RunSpec;
use crate::state::RunState;

/// A save may take this share of the promise.
const SHARE_OF_SAVE: u64 = 4;

/// The most training that a sudden failure can cost, if the newest proven step can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossBound {
    /// `None`: not known, because no step was measured, or because nothing is saved before the end.
    pub most: Option<Ms>,
    /// What `max_loss` promises.
    pub promise: Option<Ms>,
    /// What keeps the promise from being kept.
    pub against: Vec<PromiseObstacle>,
}

/// Something that a promise cannot be kept with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PromiseObstacle {
    /// No save can be asked for, and the user's own interval is too long.
    NoRequests,
    /// The trainer did not answer the last request.
    Unanswered,
    /// A step and a save take longer than the promise.
    StepTooLong,
    /// A save takes more than a quarter of the promise.
    SaveTooLong,
}

impl PromiseObstacle {
    /// The obstacle as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NoRequests => "no save can be asked for, and its own interval is too long",
            Self::Unanswered => "the trainer did not answer the last request for a save",
            Self::StepTooLong => "a step and a save take longer than that",
            Self::SaveTooLong => "a save takes more than a quarter of that",
        }
    }
}

impl LossBound {
    /// The bound for a run: in its present state, or before its first start.
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec) -> Self {
        let is_deaf = s.live().is_some_and(|a| a.saves.deaf);
        Self::from_spans(
            SaveSpans::of(s),
            save_interval(s, spec),
            spec.policy.max_loss,
            spec.no_save_door().is_none(),
            is_deaf,
        )
    }

    /// `every`: the user's own interval; `asks`: saves can be asked for.
    #[must_use]
    pub fn from_spans(spans: SaveSpans, every: Option<u64>, promise: Option<Ms>, asks: bool, is_deaf: bool) -> Self {
        let save = spans.save.unwrap_or_default();
        let with = |steps: u64, step: Ms| {
            let train = step.0.saturating_mul(steps);
            Ms(train.saturating_add(spans.validation.0).saturating_add(save.0))
        };
        let own = every.filter(|n| *n > 0).zip(spans.step).map(|(n, step)| with(n, step));
        let one = spans.step.map(|step| with(1, step));
        let asked = promise
            .filter(|_| asks && !is_deaf)
            .map(|p| one.map_or(p, |one| p.max(one)));
        let most = match (own, asked) {
            (Some(own), Some(asked)) => Some(own.min(asked)),
            (own, asked) => own.or(asked),
        };
        let mut against = Vec::new();
        if let Some(promise) = promise {
            let is_kept = own.is_some_and(|own| own <= promise);
            if !asks && !is_kept {
                against.push(PromiseObstacle::NoRequests);
            }
            if asks && is_deaf && !is_kept {
                against.push(PromiseObstacle::Unanswered);
            }
            if one.is_some_and(|one| one > promise) {
                against.push(PromiseObstacle::StepTooLong);
            }
            if save.0 > promise.0 / SHARE_OF_SAVE {
                against.push(PromiseObstacle::SaveTooLong);
            }
        }
        Self { most, promise, against }
    }

    /// Returns true if nothing stands against the promise; without one, false.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.promise.is_some() && self.against.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a step and a save; steps between saves; seconds of the promise.
    fn bound(step: u64, save: u64, every: Option<u64>, promise: u64, asks: bool) -> LossBound {
        let spans = SaveSpans {
            step: Some(Ms::secs(step)),
            validation: Ms(0),
            save: Some(Ms::secs(save)),
            slow_save: None,
        };
        LossBound::from_spans(spans, every, Some(Ms::secs(promise)), asks, false)
    }

    #[test]
    fn a_request_keeps_the_promise_whatever_the_interval_is() {
        let b = bound(5, 20, Some(500), 600, true);
        assert_eq!((b.most, b.is_kept()), (Some(Ms::secs(600)), true));
        let b = bound(5, 20, None, 600, true);
        assert_eq!((b.most, b.is_kept()), (Some(Ms::secs(600)), true));
    }

    #[test]
    fn the_users_own_interval_counts_if_it_is_shorter() {
        let b = bound(5, 20, Some(50), 600, true);
        assert_eq!((b.most, b.is_kept()), (Some(Ms::secs(270)), true));
        let b = bound(5, 20, Some(50), 600, false);
        assert_eq!(
            (b.most, b.is_kept()),
            (Some(Ms::secs(270)), true),
            "it needs no request"
        );
    }

    #[test]
    fn without_requests_a_long_interval_breaks_it() {
        let b = bound(5, 20, Some(500), 600, false);
        assert_eq!(b.most, Some(Ms::secs(2520)));
        assert_eq!(b.against, [PromiseObstacle::NoRequests]);
    }

    #[test]
    fn steps_of_five_minutes_keep_ten_and_steps_of_fifteen_do_not() {
        let b = bound(375, 65, Some(100), 600, true);
        assert_eq!((b.most, b.is_kept()), (Some(Ms::secs(600)), true));
        let b = bound(995, 65, Some(100), 600, true);
        assert_eq!(
            (b.most, b.against),
            (Some(Ms::secs(1060)), vec![PromiseObstacle::StepTooLong])
        );
    }

    #[test]
    fn a_save_of_more_than_a_quarter_is_said() {
        let b = bound(3, 300, Some(1000), 600, true);
        assert_eq!(b.against, [PromiseObstacle::SaveTooLong]);
    }

    #[test]
    fn before_the_first_step_the_promise_is_all_that_is_known() {
        let b = LossBound::from_spans(SaveSpans::default(), Some(100), Some(Ms::secs(600)), true, false);
        assert_eq!((b.most, b.is_kept()), (Some(Ms::secs(600)), true));
        let b = LossBound::from_spans(SaveSpans::default(), Some(100), None, true, false);
        assert_eq!((b.most, b.is_kept()), (None, false));
    }
}
