//! The progress line of a run on a terminal: step, rate, resume point, time to the next save.

use super::status::phase_word;
use super::time::span;
use std::time::Duration;
use supervise_core::id::{Ms, Step};
use supervise_core::spec::{RunSpec, SaveCadence};
use supervise_core::state::{RunMode, RunState};

/// Training progress, as text and as a fraction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveProgress {
    /// Newest printed or proven step, and the last planned step.
    pub share: Option<(u64, u64)>,
    /// The most important first: a narrow terminal cuts off the end.
    pub words: String,
}

impl LiveProgress {
    /// `per_step`: recent seconds per step, `since`: time since the newest step.
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec, per_step: Option<f64>, since: Duration) -> Self {
        let printed = s.live().and_then(|a| a.training.step);
        let step = printed.or(s.progress.mark);
        let last = spec.last_step.or(s.progress.total);
        let doing = match (&s.mode, s.live()) {
            (RunMode::Running, Some(a)) => phase_word(a.training.phase),
            (mode, _) => mode.word(),
        };
        let mut parts = Vec::new();
        if let Some(step) = step {
            parts.push(match last {
                Some(last) => format!("step {step} of {last}"),
                None => format!("step {step}"),
            });
        }
        if let Some(seconds) = per_step {
            parts.push(format!("{seconds:.1} s a step"));
        }
        parts.push(doing.to_owned());
        if let Some(mark) = s.progress.mark {
            parts.push(format!("resume point {mark}"));
        }
        let running = s.mode == RunMode::Running;
        if let (Some(step), Some(seconds), true) = (printed, per_step, running)
            && let Some(save) = next_save(&spec.cadence, step, last)
        {
            let left = (save.0 - step.0) as f64 * seconds - since.as_secs_f64();
            // A step slower than usual delays the save by an unknown time.
            let words = match left as u64 {
                0 => format!("next save at {save}"),
                left => format!("next save in {}", span(Ms(left * 1000))),
            };
            parts.push(words);
        }
        Self {
            share: step.zip(last).map(|(step, last)| (step.0, last.0)),
            words: parts.join(", "),
        }
    }
}

/// The step after which the trainer saves next, if its configuration says.
fn next_save(cadence: &SaveCadence, step: Step, last: Option<Step>) -> Option<Step> {
    let every = cadence.every.filter(|n| *n > 0);
    let next = every.map(|n| Step((step.0 / n).saturating_add(1).saturating_mul(n)));
    let end = last.filter(|_| cadence.at_end);
    let next = next.into_iter().chain(end).min()?;
    (next > step && last.is_none_or(|last| next <= last)).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_save_is_where_the_trainer_saves() {
        let next = |every, at_end, step, last: Option<u64>| {
            next_save(&SaveCadence { every, at_end }, Step(step), last.map(Step)).map(|s| s.0)
        };
        assert_eq!(next(Some(20), false, 0, Some(100)), Some(20));
        assert_eq!(next(Some(20), false, 20, None), Some(40));
        assert_eq!(next(Some(20), true, 90, Some(95)), Some(95));
        assert_eq!(next(Some(20), false, 90, Some(95)), None);
        assert_eq!(next(None, true, 3, Some(95)), Some(95));
        assert_eq!(next(None, false, 3, Some(95)), None);
        assert_eq!(next(Some(u64::MAX), false, u64::MAX - 1, None), Some(u64::MAX));
        assert_eq!(next(Some(0), false, 3, None), None);
    }
}
