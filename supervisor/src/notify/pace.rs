//! Rate limit: the same kind of event once in ten minutes, twenty events an hour. The end of a run is always sent.

use super::is_end;
use std::collections::{BTreeMap, VecDeque};
use supervise_config::settings::EventChoice;
use supervise_core::id::{Ms, Tick};

/// The same kind of event is sent once in this time.
const SAME: Ms = Ms::secs(600);
/// Most events in [`SPAN`].
const MANY: usize = 20;
const SPAN: Ms = Ms::secs(3600);

/// Recently sent events.
#[derive(Debug, Default)]
pub struct NotifyThrottle {
    last: BTreeMap<EventChoice, Tick>,
    told: VecDeque<Tick>,
    left_out: u64,
}

impl NotifyThrottle {
    /// `Some`: send the event, with the number of events suppressed since the last one sent.
    pub fn tell(&mut self, event: EventChoice, at: Tick) -> Option<u64> {
        while self.told.front().is_some_and(|t| at.since(*t) >= SPAN) {
            self.told.pop_front();
        }
        let again = self.last.get(&event).is_some_and(|t| at.since(*t) < SAME);
        if !is_end(event) && (again || self.told.len() >= MANY) {
            self.left_out += 1;
            return None;
        }
        self.last.insert(event, at);
        // Ends are rare; beyond the limit they need not be stored.
        if self.told.len() < MANY {
            self.told.push_back(at);
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_waits_and_an_end_does_not() {
        let mut pace = NotifyThrottle::default();
        let at = |s: u64| Tick(s * 1000);
        assert_eq!(pace.tell(EventChoice::Stall, at(0)), Some(0));
        assert_eq!(pace.tell(EventChoice::Stall, at(599)), None);
        assert_eq!(pace.tell(EventChoice::NotFinite, at(599)), Some(1));
        assert_eq!(pace.tell(EventChoice::Stall, at(600)), Some(0));
        assert_eq!(pace.tell(EventChoice::Finished, at(600)), Some(0));
        assert_eq!(pace.tell(EventChoice::Finished, at(600)), Some(0));
    }

    #[test]
    fn an_hour_has_twenty_at_most() {
        let mut pace = NotifyThrottle::default();
        let kinds = [
            EventChoice::Stall,
            EventChoice::NotFinite,
            EventChoice::Creep,
            EventChoice::Waiting,
        ];
        // Every 10 min and 1 s each of four kinds: 24 in an hour.
        let told: Vec<Tick> = (0..60)
            .flat_map(|n| kinds.map(|kind| (Tick(n * 601_000), kind)))
            .filter_map(|(at, kind)| pace.tell(kind, at).map(|_| at))
            .collect();
        for from in &told {
            let within = told.iter().filter(|t| **t >= *from && t.since(*from) < SPAN).count();
            assert!(within <= MANY, "{within}");
        }
        assert!(pace.tell(EventChoice::GaveUp, Tick(60 * 601_000)).is_some());
        assert!(pace.told.len() <= MANY);
    }
}
