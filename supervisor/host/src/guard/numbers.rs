//! Metrics of training records on their way to the supervisor, in bounded batches.
//!
//! Those of an attempt's first steps are sent as they come, because they are compared with an earlier attempt's.
//! Later the newest ones are sent now and then, and at the end, so that a fast trainer does not fill the journal.

use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanMatch};
use supervise_core::id::Step;
use supervise_core::observe::numbers::StepNumbers;

const PENDING: usize = 64;
/// This many are sent as they come.
const AT_ONCE: usize = 256;
const PAUSE_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct MetricQueue {
    pending: Vec<StepNumbers>,
    told: usize,
    due: u64,
}

impl MetricQueue {
    pub(crate) fn note(&mut self, hit: &ScanMatch) {
        let step = match hit.kind {
            RuleKind::Step => hit.sighting.number.map(Step),
            RuleKind::Enters(TrainerPhase::Step) => None,
            _ => return,
        };
        if let Some(of) = hit.numbers.filter(|n| !n.is_empty()) {
            if self.pending.len() >= PENDING {
                self.pending.remove(0);
            }
            self.pending.push(StepNumbers { step, of });
        }
    }

    /// A batch, if it is due; `last`: nothing comes after it.
    pub(crate) fn take(&mut self, now: u64, last: bool) -> Option<Vec<StepNumbers>> {
        let is_odd = |n: &StepNumbers| n.of.loss.is_some_and(|l| !l.0.is_finite());
        let is_due = last || self.told < AT_ONCE || now >= self.due || self.pending.iter().any(is_odd);
        if self.pending.is_empty() || !is_due {
            return None;
        }
        self.told = self.told.saturating_add(self.pending.len());
        self.due = now.saturating_add(PAUSE_MS);
        Some(std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::event::scan::{ScanRule, Scanner};
    use supervise_core::id::WorkerId;
    use supervise_core::observe::numbers::TrainingMetric;

    fn hit(line: &str) -> ScanMatch {
        let rule = ScanRule::new("step", r"step:(\d+) ", RuleKind::Step).with_keys(&[(TrainingMetric::Loss, "loss")]);
        let mut scanner = Scanner::new(vec![rule]).unwrap();
        scanner.line(WorkerId(0), 1, line.as_bytes()).unwrap()
    }

    #[test]
    fn the_first_are_told_as_they_come_and_later_ones_in_bounded_bundles() {
        let mut numbers = MetricQueue::default();
        for step in 0..AT_ONCE {
            numbers.note(&hit(&format!("step:{step} loss:1.5")));
            assert_eq!(numbers.take(1, false).map(|b| b.len()), Some(1));
        }
        for step in 1000..1500 {
            numbers.note(&hit(&format!("step:{step} loss:1.5")));
        }
        assert_eq!(numbers.take(2, false), None);
        let bundle = numbers.take(2 + PAUSE_MS, false).unwrap();
        assert_eq!((bundle.len(), bundle.last().unwrap().step), (PENDING, Some(Step(1499))));
        numbers.note(&hit("step:1500 loss:nan"));
        assert!(numbers.take(3 + PAUSE_MS, false).is_some());
        numbers.note(&hit("step:1501 loss:2"));
        assert_eq!(numbers.take(3 + PAUSE_MS, false), None);
        assert!(numbers.take(3 + PAUSE_MS, true).is_some());
        numbers.note(&hit("step:1502 val:2"));
        assert_eq!(numbers.take(u64::MAX, true), None);
    }
}
