//! Matched lines of an attempt, and how the training continued after each.

use super::{Attempt, EndCause};
use crate::checkpoint::CkptId;
use crate::event::Sighting;
use crate::event::scan::RuleKind;
use crate::id::{Ms, Step, Tick};
use crate::spec::script::ScriptNews;
use serde::{Deserialize, Serialize};

const SIGHTINGS: usize = 100;

/// Most steps with checked weights that are remembered.
const LOOKED_AT: usize = 64;

/// After this many new steps a line did not end the training.
const STEPS: u64 = 2;

/// A trainer that is ending may print buffered steps after its last error: within this time they are no progress.
const HELD_BACK: Ms = Ms(10_000);

/// When a line was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SightingMoment {
    /// How often the step of the attempt had risen by then.
    steps: u64,
    at: Tick,
}

impl Attempt {
    pub(super) fn note_finite(&mut self, ckpt: &CkptId, odd: Option<u32>) {
        self.training.looked_at.retain(|(id, _)| id != ckpt);
        self.training.looked_at.push((ckpt.clone(), odd));
        if self.training.looked_at.len() > LOOKED_AT {
            self.training.looked_at.remove(0);
        }
    }

    pub(super) fn note_sighting(&mut self, means: &RuleKind, sighting: &Sighting, at: Tick) {
        if *means == RuleKind::Failed {
            self.output.failed = self.output.failed.or(Some(at));
        }
        match means {
            RuleKind::Resumed => self.output.resumed = sighting.number.map(Step).or(self.output.resumed),
            RuleKind::Scratch => self.output.scratch = true,
            RuleKind::ResumePath | RuleKind::Lost(_) | RuleKind::NotSaved => {}
            RuleKind::End => self.output.ended = true,
            RuleKind::Failed | RuleKind::Failure(_) | RuleKind::Exception => self.keep(means, sighting, at),
            RuleKind::Step | RuleKind::Bar => self.training.first = self.training.first.or(sighting.number.map(Step)),
            RuleKind::Heals => self.training.pace.heals = self.training.pace.heals.or(Some(at)),
            RuleKind::Beat | RuleKind::Enters(_) | RuleKind::Total => {}
        }
    }

    /// Keeps the first fault of a script, or a worse one. What it printed before it called the trainer is not a cause
    /// of later failures.
    pub(super) fn note_script(&mut self, news: &ScriptNews) {
        let is_worse = matches!(news, ScriptNews::Unmarked { .. } | ScriptNews::Spoilt { .. });
        if news.is_fault() && (is_worse || self.output.script.is_none()) {
            self.output.script = Some(news.clone());
        }
        let ScriptNews::Called { worker, line, .. } = news else {
            return;
        };
        if self.called.insert(*worker, *line).is_some() {
            return;
        }
        let is_later = |s: &Sighting| s.worker != *worker || s.line == 0 || s.line > *line;
        let kept: Vec<bool> = self.output.sightings.iter().map(|(_, s)| is_later(s)).collect();
        let mut keeps = kept.iter();
        self.output.heard.retain(|_| keeps.next() != Some(&false));
        self.output.sightings.retain(|(_, s)| is_later(s));
        (self.output.failed, self.output.scratch, self.output.ended) = (None, false, false);
    }

    /// Keeps a line once. If there are too many, those that ended nothing are dropped.
    fn keep(&mut self, means: &RuleKind, sighting: &Sighting, at: Tick) {
        let heard = SightingMoment {
            steps: self.training.pace.steps,
            at,
        };
        // Of lines that no moment is known of, none is taken back.
        self.output
            .heard
            .resize(self.output.sightings.len(), SightingMoment { steps: u64::MAX, at });
        let same = |(k, s): &(RuleKind, Sighting)| k == means && s.rule == sighting.rule && s.text == sighting.text;
        if let Some(place) = self.output.sightings.iter().position(same) {
            if let Some((_, known)) = self.output.sightings.get_mut(place) {
                known.count = known.count.saturating_add(sighting.count);
            }
            if let Some(moment) = self.output.heard.get_mut(place) {
                *moment = heard;
            }
            return;
        }
        if self.output.sightings.len() >= SIGHTINGS {
            let Some(over) = (0..self.output.sightings.len()).find(|place| self.went_on(*place)) else {
                return;
            };
            self.output.sightings.remove(over);
            self.output.heard.remove(over);
        }
        self.output.sightings.push((means.clone(), sighting.clone()));
        self.output.heard.push(heard);
    }

    /// Whether the training continued after that line.
    fn went_on(&self, place: usize) -> bool {
        self.output.heard.get(place).is_some_and(|heard| {
            self.training.pace.steps >= heard.steps.saturating_add(STEPS)
                && self.training.last_progress >= heard.at.after(HELD_BACK)
        })
    }

    /// Returns true if we stopped it because it stalled. What its ranks print afterwards, and how they exit, is not the
    /// cause.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        matches!(self.end.ended_by_us, Some(EndCause::Stalled(_)))
    }

    /// Matched lines after which the training did not continue.
    pub fn standing(&self) -> impl Iterator<Item = &(RuleKind, Sighting)> {
        let all = self.output.sightings.iter().enumerate();
        all.filter(|(place, _)| !self.went_on(*place)).map(|(_, seen)| seen)
    }
}
