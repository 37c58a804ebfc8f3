//! Checks that the trainer resumed where it was ordered to.
//!
//! What counts is what it prints, and its first training record, which after a resume from N is N+1. A record that is a
//! save or more behind is a failed resume, which is stopped before its first save can overwrite anything. Other
//! differences are reported but end nothing.

use super::Deciding;
use crate::event::Sighting;
use crate::event::scan::RuleKind;
use crate::id::Step;
use crate::journal::reason::{Evidence, Reason};
use crate::journal::record::{AfterStop, Decision, NoticeKind, StartPoint};
use crate::resume::save_interval;
use crate::spec::ResumeIntent;
use crate::state::{RESUMED_ELSEWHERE, RunMode};

impl Deciding<'_> {
    pub(super) fn on_progress(&mut self) {
        if !matches!(self.s.mode, RunMode::Running) || self.spec.policy.start.observe {
            return;
        }
        let (Some(from), Some(every)) = (self.resumed_from(), save_interval(&self.s, self.spec)) else {
            return;
        };
        let Some(step) = self.s.attempt.as_ref().and_then(|a| a.training.step) else {
            return;
        };
        if step.0.saturating_add(every) <= from.0 && self.spec.policy.proof.is_on {
            let text = format!("the trainer printed step {step}, but it was to resume from {from}: it did not resume");
            self.failed_resume(Reason::new(RESUMED_ELSEWHERE, text));
        }
    }

    pub(super) fn on_sighted(&mut self, means: &RuleKind, sighting: &Sighting) {
        if !matches!(self.s.mode, RunMode::Running) {
            return;
        }
        if matches!(means, RuleKind::Step | RuleKind::Bar) {
            return self.on_first_record(means, sighting);
        }
        if *means == RuleKind::NotSaved {
            return self.warn_of_no_save(sighting);
        }
        if self.spec.policy.start.observe || !self.spec.policy.proof.is_on {
            return;
        }
        if *means == RuleKind::ResumePath
            && let Some(path) = self.ordered_path()
            && !sighting.text.contains(&path)
        {
            let text = format!(
                "the trainer's configuration, as it prints it, does not name {path}: it did not resume, our overrides did not reach it ({})",
                sighting.text.trim()
            );
            return self.failed_resume(Reason::new(RESUMED_ELSEWHERE, text));
        }
        if *means == RuleKind::Scratch
            && let Some(from) = self.resumed_from()
        {
            let text = format!("the trainer starts from scratch, but it was to resume from {from}");
            self.failed_resume(Reason::new("resumed_from_nothing", text));
        }
        if let RuleKind::Lost(kind) = means
            && let Some(from) = self.resumed_from()
            && !self.spec.not_restored.contains(kind)
            && !self.s.live().is_some_and(|a| a.order.lost.contains(kind))
        {
            let text = format!(
                "the trainer says that it resumes without its {}, but step {from} holds it",
                kind.words()
            );
            self.failed_resume(Reason::new(RESUMED_ELSEWHERE, text));
        }
        // A trainer with one checkpoint prints the step it found before its first save overwrites it.
        if *means == RuleKind::Resumed
            && self.spec.saves.is_in_place()
            && let (Some(from), Some(at)) = (self.resumed_from(), self.s.live().and_then(|a| a.output.resumed))
            && at != from
        {
            let text = format!(
                "the trainer says that it resumes from step {at}, but it was to resume from {from}: it did not resume"
            );
            self.failed_resume(Reason::new(RESUMED_ELSEWHERE, text));
        }
    }

    fn on_first_record(&mut self, means: &RuleKind, sighting: &Sighting) {
        let Some((order, first)) = self.s.live().and_then(|a| Some((&a.order.from, a.training.first?))) else {
            return;
        };
        let (from, is_fresh) = match order {
            StartPoint::Step { step, .. } => (*step, false),
            StartPoint::Fresh => (Step(0), true),
            StartPoint::AsIs => return,
        };
        if !self.spec.numbering.is_steps() || sighting.number != Some(first.0) {
            return;
        }
        let next = Step(from.0.saturating_add(1));
        let ordered = match is_fresh {
            true => "it was to start from scratch".to_owned(),
            false => format!("it was to resume from step {from}, after which step {next} comes"),
        };
        let (what, text) = if first == next && !is_fresh {
            let text = format!("the first training record is step {first}: the trainer resumed from {from}");
            (NoticeKind::ResumeConfirmed, text)
        } else if first < next && !is_fresh {
            let text = format!("the first training record is step {first}, but {ordered}");
            (NoticeKind::UnconfirmedResume, text)
        } else if first > next && *means == RuleKind::Step {
            // A progress bar shows whatever it finds when it is drawn.
            let text = format!(
                "the first training record is step {first}, but {ordered}: it may have resumed from something else"
            );
            (NoticeKind::ResumeAhead, text)
        } else {
            return;
        };
        let reason = Reason::new(what.code(), text.clone()).with(Evidence::Line {
            worker: sighting.worker.0,
            line: sighting.line,
            text: sighting.text.chars().take(200).collect(),
        });
        self.notice(what, text, reason.clone());
        let every = save_interval(&self.s, self.spec);
        // With a known interval, a trainer that only repeats its last steps is left alone: it saves none of them again.
        let is_behind = what == NoticeKind::UnconfirmedResume && first.0.saturating_add(every.unwrap_or(1)) <= from.0;
        if is_behind && self.spec.policy.proof.is_on && !self.spec.policy.start.observe {
            let text = format!("the trainer printed step {first}, but it was to resume from {from}: it did not resume");
            self.failed_resume(Reason::new(RESUMED_ELSEWHERE, text));
        }
    }

    pub(super) fn notice(&mut self, what: NoticeKind, text: String, reason: Reason) {
        let known = |a: &crate::state::Attempt| a.output.noticed.contains_key(&what);
        if !self.s.attempt.as_ref().is_none_or(known) {
            self.decided(Decision::Noticed { what, text }, vec![reason]);
        }
    }

    /// The path that the current attempt was ordered to resume from; none if it contains a space, because printing may
    /// break it over lines.
    fn ordered_path(&self) -> Option<String> {
        // It is not given a path.
        if self.spec.resume == ResumeIntent::Tracker {
            return None;
        }
        let StartPoint::Step { ckpt, .. } = &self.s.live()?.order.from else {
            return None;
        };
        let path = self.spec.root.as_ref()?.join(&ckpt.0).into_string();
        (!path.contains(char::is_whitespace)).then_some(path)
    }

    /// Stops the attempt before its first save can overwrite anything.
    fn failed_resume(&mut self, reason: Reason) {
        // A recognized program is only offered a step; nobody asked whether it takes one.
        if self.s.seen.is_some() {
            return;
        }
        self.stop(AfterStop::Diagnose, false, vec![reason]);
    }
}
