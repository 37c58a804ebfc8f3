//! State from the output so far: phase, step, total, and the sightings worth keeping.
//!
//! Kept in the guard so that a later term gets all of it with one `Hello`. Repeats of a line that differ only in
//! numbers become a count. The number of sightings is bounded, per rule and overall; if a rule is full, its newest
//! sighting replaces the one before, because the last error of a run matters most.

use super::numbers::MetricQueue;
use std::collections::BTreeMap;
use supervise_core::event::scan::{RuleId, RuleKind, ScanMatch};
use supervise_core::event::{Sighting, TrainerPhase};
use supervise_core::id::{Step, WorkerId, fnv64};

const SIGHTINGS_LIMIT: usize = 200;

const PER_RULE_LIMIT: usize = 20;

/// Longest text of a sighting in a `Hello`: all of them must fit into one message.
const HELLO_TEXT_LIMIT: usize = 1024;

const FIRST_RECORD: &str = "first_record";

#[derive(Debug)]
pub(crate) struct OutputFacts {
    pub(crate) phase: TrainerPhase,
    pub(crate) step: Option<Step>,
    pub(crate) total: Option<u64>,
    pub(crate) numbers: MetricQueue,
    has_first: bool,
    /// Signs of progress within a phase, such as batches of a validation.
    pub(crate) beats: u64,
    pub(crate) risen: u64,
    /// The number in the last of them.
    beat: Option<u64>,
    /// Since the last progress, an in-process restart was reported.
    heals: bool,
    seen: Vec<StoredSighting>,
    per_rule: BTreeMap<RuleId, usize>,
}

#[derive(Debug)]
struct StoredSighting {
    key: u64,
    kind: RuleKind,
    sighting: Sighting,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct FactsChange {
    pub(crate) progress: bool,
    pub(crate) sighted: Option<(RuleKind, Sighting)>,
    /// The first training record, which shows where the trainer began.
    pub(crate) first: Option<(RuleKind, Sighting)>,
}

impl Default for OutputFacts {
    fn default() -> Self {
        Self {
            phase: TrainerPhase::Startup,
            step: None,
            total: None,
            numbers: MetricQueue::default(),
            has_first: false,
            beats: 0,
            risen: 0,
            beat: None,
            heals: false,
            seen: Vec::new(),
            per_rule: BTreeMap::new(),
        }
    }
}

impl OutputFacts {
    pub(crate) fn note(&mut self, hit: ScanMatch) -> FactsChange {
        let before = (self.phase, self.step, self.beats);
        let number = hit.sighting.number;
        match &hit.kind {
            RuleKind::Step => {
                // A count that restarts shows that something was completed.
                self.beats += u64::from(number.map(Step) < self.step && number.is_some());
                self.step = number.map(Step).or(self.step);
                self.phase = TrainerPhase::Step;
            }
            RuleKind::Bar if hit.total.is_some() && hit.total == self.total && number.is_some_and(|n| n > 0) => {
                self.step = number.map(Step).or(self.step);
                self.phase = TrainerPhase::Step;
            }
            RuleKind::Enters(phase) => {
                self.beats += u64::from(*phase == TrainerPhase::Validate && self.phase == *phase);
                self.phase = *phase;
            }
            RuleKind::Beat if number.is_some() => {
                self.beats += u64::from(self.beat.replace(number.unwrap_or_default()) != number)
            }
            RuleKind::Total => self.total = number.or(self.total),
            RuleKind::End => self.phase = TrainerPhase::Exit,
            RuleKind::Bar
            | RuleKind::Beat
            | RuleKind::Heals
            | RuleKind::Resumed
            | RuleKind::Lost(_)
            | RuleKind::ResumePath
            | RuleKind::NotSaved
            | RuleKind::Scratch
            | RuleKind::Failed
            | RuleKind::Failure(_)
            | RuleKind::Exception => {}
        }
        self.risen += u64::from(self.step > before.1);
        let progress = before != (self.phase, self.step, self.beats);
        self.heals &= !progress;
        let first = self.first_record(&hit);
        self.numbers.note(&hit);
        let news = hit.total.filter(|total| self.total != Some(*total));
        let sighted = match hit.kind {
            RuleKind::Step if news.is_some() => {
                self.total = news;
                let sighting = Sighting {
                    number: news,
                    ..hit.sighting
                };
                self.keep(RuleKind::Total, sighting)
            }
            RuleKind::Step | RuleKind::Bar | RuleKind::Beat | RuleKind::Enters(_) => None,
            // Not kept for a later term, which starts its own clocks.
            RuleKind::Heals => (!std::mem::replace(&mut self.heals, true)).then_some((hit.kind, hit.sighting)),
            kind => self.keep(kind, hit.sighting),
        };
        FactsChange {
            progress,
            sighted,
            first,
        }
    }

    /// The first line about a training step, under its own rule name: the same line may be reported for another
    /// reason.
    fn first_record(&mut self, hit: &ScanMatch) -> Option<(RuleKind, Sighting)> {
        let tells = match &hit.kind {
            RuleKind::Step => hit.numbers.is_some() && hit.sighting.number.is_some(),
            RuleKind::Bar => {
                hit.total.is_some() && hit.total == self.total && hit.sighting.number.is_some_and(|n| n > 0)
            }
            _ => false,
        };
        if !tells || std::mem::replace(&mut self.has_first, true) {
            return None;
        }
        let sighting = Sighting {
            rule: FIRST_RECORD.into(),
            ..hit.sighting.clone()
        };
        self.keep(hit.kind.clone(), sighting)
    }

    /// Forgets what a worker printed up to this line: similar lines count from zero again.
    pub(crate) fn forget(&mut self, worker: WorkerId, up_to: u64) {
        let is_old = |s: &Sighting| s.worker == worker && (1..=up_to).contains(&s.line);
        for gone in self.seen.extract_if(.., |s| is_old(&s.sighting)) {
            if let Some(count) = self.per_rule.get_mut(&gone.sighting.rule) {
                *count = count.saturating_sub(1);
            }
        }
    }

    pub(crate) fn sightings(&self) -> Vec<(RuleKind, Sighting)> {
        self.seen
            .iter()
            .map(|s| {
                let mut sighting = s.sighting.clone();
                sighting.text = supervise_config::redact_text(&sighting.text);
                let end = sighting.text.floor_char_boundary(HELLO_TEXT_LIMIT);
                sighting.text.truncate(end);
                (s.kind.clone(), sighting)
            })
            .collect()
    }

    /// Returns the sighting if it is to be reported: the first, second, fourth, … of its kind.
    fn keep(&mut self, kind: RuleKind, sighting: Sighting) -> Option<(RuleKind, Sighting)> {
        let key = key_of(&sighting);
        if let Some(seen) = self.seen.iter_mut().find(|s| s.key == key) {
            seen.sighting.count = seen.sighting.count.saturating_add(1);
            let told = seen.sighting.count.is_power_of_two();
            return told.then(|| (seen.kind.clone(), seen.sighting.clone()));
        }
        let count = self.per_rule.entry(sighting.rule.clone()).or_default();
        if *count >= PER_RULE_LIMIT || self.seen.len() >= SIGHTINGS_LIMIT {
            let newest = self.seen.iter().rposition(|s| s.sighting.rule == sighting.rule);
            match newest {
                Some(at) => self.seen.remove(at),
                None => return Some((kind, sighting)),
            };
        } else {
            *count += 1;
        }
        self.seen.push(StoredSighting {
            key,
            kind: kind.clone(),
            sighting: sighting.clone(),
        });
        Some((kind, sighting))
    }
}

/// The same for the same rule, worker and text, whatever the numbers in it.
fn key_of(sighting: &Sighting) -> u64 {
    let mut shape = Vec::with_capacity(sighting.text.len() + 64);
    shape.extend(sighting.rule.to_string().bytes());
    shape.push(0);
    shape.extend(sighting.worker.0.to_le_bytes());
    let mut in_number = false;
    for byte in sighting.text.bytes() {
        let digit = byte.is_ascii_digit();
        if !(digit && in_number) {
            shape.push(if digit { b'#' } else { byte });
        }
        in_number = digit;
    }
    fnv64(&shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(kind: RuleKind, rule: &str, text: &str, number: Option<u64>) -> ScanMatch {
        ScanMatch {
            kind,
            sighting: Sighting {
                rule: rule.into(),
                worker: WorkerId(0),
                line: 1,
                text: text.to_owned(),
                number,
                count: 1,
            },
            total: None,
            numbers: Some(supervise_core::observe::numbers::StepMetrics::default()),
        }
    }

    fn failure(rule: &str, text: &str) -> ScanMatch {
        hit(RuleKind::Failure("x".into()), rule, text, None)
    }

    #[test]
    fn a_bar_tells_of_steps_where_it_is_as_long_as_the_run() {
        let mut facts = OutputFacts::default();
        let bar = |at: u64, of: u64| ScanMatch {
            total: Some(of),
            ..hit(RuleKind::Bar, "bar", &format!("1%| | {at}/{of} ["), Some(at))
        };
        facts.note(bar(3, 8));
        assert_eq!((facts.phase, facts.step), (TrainerPhase::Startup, None));
        facts.note(hit(RuleKind::Total, "total", "steps = 8", Some(8)));
        for (at, of) in [(0, 8), (5, 7)] {
            facts.note(bar(at, of));
            assert_eq!((facts.phase, facts.step), (TrainerPhase::Startup, None), "{at}/{of}");
        }
        facts.note(bar(3, 8));
        assert_eq!((facts.phase, facts.step), (TrainerPhase::Step, Some(Step(3))));
    }

    #[test]
    fn a_step_after_a_save_is_a_step_again() {
        let mut facts = OutputFacts::default();
        let save = hit(RuleKind::Enters(TrainerPhase::Save), "save", "saving", Some(3));
        assert!(facts.note(save).progress);
        assert_eq!((facts.phase, facts.step), (TrainerPhase::Save, None));
        let step = hit(RuleKind::Step, "step", "step:3", Some(3));
        assert!(facts.note(step.clone()).progress);
        assert_eq!((facts.phase, facts.step), (TrainerPhase::Step, Some(Step(3))));
        assert_eq!(facts.note(step), FactsChange::default());
    }

    #[test]
    fn batches_of_a_validation_and_counts_that_begin_anew_are_beats() {
        let mut facts = OutputFacts::default();
        let validates = || hit(RuleKind::Enters(TrainerPhase::Validate), "validation", "batch", None);
        assert!(facts.note(validates()).progress);
        assert_eq!(facts.beats, 0);
        assert!(facts.note(validates()).progress);
        let step = |n| hit(RuleKind::Step, "step", "step", Some(n));
        facts.note(step(7));
        assert!(!facts.note(step(7)).progress);
        assert!(facts.note(step(1)).progress);
        let beat = |n| hit(RuleKind::Beat, "progress", "batch", n);
        assert!(facts.note(beat(Some(4))).progress);
        assert!(!facts.note(beat(Some(4))).progress && !facts.note(beat(None)).progress);
        assert_eq!((facts.beats, facts.step, facts.risen), (3, Some(Step(1)), 1));
    }

    #[test]
    fn a_part_that_comes_back_in_place_is_told_once_until_there_is_progress() {
        let mut facts = OutputFacts::default();
        let heals = || hit(RuleKind::Heals, "heals", "restarting engine 3", None);
        let told = |facts: &mut OutputFacts| facts.note(heals()).sighted.map(|(kind, _)| kind);
        for step in 1..5 {
            facts.note(hit(RuleKind::Step, "step", "step", Some(step)));
            assert_eq!(told(&mut facts), Some(RuleKind::Heals), "step {step}");
            assert_eq!(told(&mut facts), None, "step {step}");
        }
        let kept = facts.sightings();
        assert!(
            kept.iter().all(|(kind, _)| *kind != RuleKind::Heals),
            "a later term hears of it: {kept:?}"
        );
    }

    #[test]
    fn the_first_training_record_is_told_once_and_no_validation_before_it() {
        let mut facts = OutputFacts::default();
        let step = |n: u64| hit(RuleKind::Step, "step", &format!("step:{n}"), Some(n));
        let validation = ScanMatch {
            numbers: None,
            ..step(4)
        };
        assert_eq!(facts.note(validation).first, None);
        let first = facts.note(step(5)).first;
        assert_eq!(first.map(|(k, s)| (k, s.number)), Some((RuleKind::Step, Some(5))));
        assert_eq!(facts.note(step(6)).first, None);
        assert_eq!(facts.sightings().len(), 1);
    }

    #[test]
    fn the_total_of_a_step_line_is_told_once() {
        let mut facts = OutputFacts::default();
        let step = |n: u64| ScanMatch {
            total: Some(8),
            ..hit(RuleKind::Step, "step", &format!("step {n}/8"), Some(n))
        };
        let first = facts.note(step(1));
        assert_eq!(
            first.sighted.map(|(k, s)| (k, s.number)),
            Some((RuleKind::Total, Some(8)))
        );
        assert_eq!(facts.note(step(2)).sighted, None);
        assert_eq!((facts.step, facts.total), (Some(Step(2)), Some(8)));
    }

    #[test]
    fn repeats_are_counted_and_told_ever_more_rarely() {
        let mut facts = OutputFacts::default();
        let told: Vec<u64> = (0..1000)
            .filter_map(|n| facts.note(failure("oom", &format!("tried {n} MiB"))).sighted)
            .map(|(_, s)| s.count)
            .collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(facts.sightings().len(), 1);
        assert_eq!(facts.sightings()[0].1.count, 1000);
    }

    #[test]
    fn memory_is_bounded_and_the_last_of_a_rule_is_kept() {
        let mut facts = OutputFacts::default();
        for rule in 0..40 {
            for text in ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("{a}{b}"))) {
                facts.note(failure(&format!("r{rule}"), &text));
            }
        }
        let kept = facts.sightings();
        assert!(kept.len() <= SIGHTINGS_LIMIT);
        let of_first: Vec<_> = kept.iter().filter(|(_, s)| s.rule == "r0".into()).collect();
        assert_eq!(of_first.len(), PER_RULE_LIMIT);
        assert_eq!(of_first[0].1.text, "aa");
        assert_eq!(of_first[PER_RULE_LIMIT - 1].1.text, "zz");
    }

    #[test]
    fn a_hello_fits_into_a_message() {
        let mut facts = OutputFacts::default();
        let wide = "\"ü".repeat(2000);
        for n in 0..SIGHTINGS_LIMIT {
            let name = char::from_u32(0x4e00 + u32::try_from(n).unwrap()).unwrap();
            facts.note(failure(&format!("r{}", n % 20), &format!("{name}{wide}")));
        }
        let bytes = serde_json::to_vec(&facts.sightings()).unwrap();
        assert!(bytes.len() < crate::guard::protocol::MESSAGE_LIMIT - (64 << 10));
    }
}
