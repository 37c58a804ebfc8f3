//! Requests for a save: the trainer's answers, and what holds for every request.

use super::World;
use super::watch::check;
use supervise_core::event::{EventKind, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, Step, Tick};
use supervise_core::journal::record::SaveOrder;
use supervise_core::observe::durations::DurationKind;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

impl World {
    /// The supervisor looks for an answer.
    pub(crate) fn look_for_answer(&mut self, attempt: AttemptNo, id: u64) {
        let asked = self.proc.as_ref().filter(|p| p.attempt == attempt);
        let answer = asked.and_then(|p| p.answered).filter(|(last, _)| *last == id);
        if let Some((_, step)) = answer {
            let step = Step(step);
            self.feed(EventKind::SaveAnswered { attempt, id, step });
        }
    }
}

/// 9: a request has a door, is the only one, and can end in time.
pub(crate) fn may_ask(s: &RunState, spec: &RunSpec, order: &SaveOrder, now: Tick) -> Result<(), String> {
    let held = |holds: bool, what: &str| check(holds, 9, || format!("request {}: {what}", order.id));
    held(spec.save_door && spec.policy.assist.save_requests, "there is no door")?;
    held(order.id > s.requests.saves, "its number was used before")?;
    let Some(a) = s.live() else {
        return held(false, "nothing trains");
    };
    held(a.saves.open().is_none(), "another one is under way")?;
    held(a.training.phase != TrainerPhase::Save, "a save is under way")?;
    held(
        s.disk.scan.as_ref().is_none_or(|r| r.saving.is_none()),
        "a save is under way on disk",
    )?;
    let percentile = |kind, percent| {
        s.clocks
            .of(kind)
            .and_then(|d| d.percentile(percent))
            .unwrap_or_default()
    };
    if let Some(until) = order.until {
        let save = percentile(DurationKind::SaveProven, 99);
        let needed = percentile(DurationKind::Step, 90).0 + save.0;
        held(now.after(Ms(needed)) <= until, "it cannot end in time")?;
        held(
            spec.saves.is_steps() || save.0 > 0,
            "an unknown save may destroy the only checkpoint",
        )?;
    }
    Ok(())
}
