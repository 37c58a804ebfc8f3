//! The progress line of a run on a terminal: step, rate, resume point, time to the next save.

use super::progress::{NextActKind, ProgressReport};
use super::status::phase_word;
use super::time::span;
use supervise_core::event::TrainerPhase;
use supervise_core::id::{Ms, Step, WallMs};
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
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec, report: &ProgressReport, now: WallMs) -> Self {
        let doing = report.phase.map_or_else(|| s.mode.word(), phase_word);
        let mut parts: Vec<String> = report.late_words().into_iter().collect();
        if let Some(step) = report.step {
            parts.push(match report.planned {
                Some(last) => format!("step {step} of {last}"),
                None => format!("step {step}"),
            });
        }
        if let Some(ms) = report.step_ms {
            parts.push(format!("{} a step", span(ms)));
        }
        if let (Some(since), false) = (report.since_ms, report.is_late()) {
            parts.push(format!("{} ago", span(whole_seconds(since))));
        }
        if report.phase != Some(TrainerPhase::Step) {
            parts.push(doing.to_owned());
        }
        if let Some(mark) = s.progress.mark {
            parts.push(format!("resume point {mark}"));
        }
        parts.extend(save_words(s, spec, report));
        parts.extend(
            report
                .left(now)
                .map(|left| format!("ends in about {}", span(whole_seconds(left)))),
        );
        parts.extend(
            report
                .elapsed_ms
                .map(|ms| format!("{} so far", span(whole_seconds(ms)))),
        );
        match &report.next {
            Some(next) if matches!(next.what, NextActKind::Launch | NextActKind::Stop) => parts.push(next.words()),
            _ => {}
        }
        Self {
            share: report.step.zip(report.planned),
            words: parts.join(", "),
        }
    }
}

fn whole_seconds(ms: Ms) -> Ms {
    Ms::secs(ms.0 / 1000)
}

fn save_words(s: &RunState, spec: &RunSpec, report: &ProgressReport) -> Option<String> {
    let step = s
        .live()
        .filter(|_| s.mode == RunMode::Running && !report.is_late())?
        .training
        .step?;
    let save = next_save(&spec.cadence, step, report.planned.map(Step))?;
    let all = report.step_ms.unwrap_or_default().0.saturating_mul(save.0 - step.0);
    let left = all.saturating_sub(report.since_ms.unwrap_or_default().0) / 1000;
    // A step slower than usual delays the save by an unknown time.
    Some(match left {
        0 => format!("next save at {save}"),
        left => format!("next save in {}", span(Ms::secs(left))),
    })
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
