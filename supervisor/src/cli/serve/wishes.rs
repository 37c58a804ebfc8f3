//! Rollback requests made on pages, until they are in a journal.

use super::child::ChildProgress;
use crate::render::page::SentBack;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a page shows a refusal that arrived after it stopped waiting.
const TOLD: Duration = Duration::from_secs(3600);

/// Rollback requests that are not in the journal: being proven, or refused.
#[derive(Default)]
pub(super) struct PendingRollbacks {
    all: Mutex<HashMap<String, PendingRollback>>,
    made: AtomicU64,
}

struct PendingRollback {
    number: u64,
    to: u64,
    since: Instant,
    far: ChildProgress,
    refused: Option<String>,
}

impl PendingRollbacks {
    /// The number of a new request; `None` if one is being proven already.
    pub(super) fn begin(&self, run: &str, to: u64) -> Option<u64> {
        let mut all = self.all();
        if all.get(run).is_some_and(|w| w.refused.is_none()) {
            return None;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let wish = PendingRollback {
            number,
            to,
            since: Instant::now(),
            far: ChildProgress::default(),
            refused: None,
        };
        all.insert(run.to_owned(), wish);
        Some(number)
    }

    /// Records the progress of its proof.
    pub(super) fn far(&self, run: &str, number: u64, far: ChildProgress) {
        if let Some(wish) = self.all().get_mut(run).filter(|w| w.number == number) {
            wish.far = far;
        }
    }

    /// Removes a request that is done or whose refusal was shown; a newer request stays.
    pub(super) fn end(&self, run: &str, number: u64) {
        let mut all = self.all();
        if all.get(run).is_some_and(|w| w.number == number) {
            all.remove(run);
        }
    }

    /// Records a refusal, to be shown.
    pub(super) fn refuse(&self, run: &str, number: u64, why: &str) {
        if let Some(wish) = self.all().get_mut(run).filter(|w| w.number == number) {
            wish.refused = Some(why.to_owned());
        }
    }

    /// The request of a run, as its page shows it.
    pub(super) fn of(&self, run: &str) -> Option<SentBack> {
        let all = self.all();
        let wish = all
            .get(run)
            .filter(|w| w.refused.is_none() || w.since.elapsed() < TOLD)?;
        Some(SentBack {
            to: wish.to,
            seconds: wish.since.elapsed().as_secs(),
            read: wish.far.bytes,
            still: wish.far.still.as_secs(),
            refused: wish.refused.clone(),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, PendingRollback>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_until_the_next_wish() {
        let wishes = PendingRollbacks::default();
        let first = wishes.begin("a", 4).unwrap();
        assert!(wishes.begin("a", 6).is_none() && wishes.begin("b", 6).is_some());
        assert_eq!(wishes.of("a").map(|w| (w.to, w.refused)), Some((4, None)));
        wishes.refuse("a", first, "no");
        assert_eq!(wishes.of("a").and_then(|w| w.refused), Some("no".to_owned()));
        let second = wishes.begin("a", 6).unwrap();
        // The end of the first request arrives late.
        wishes.end("a", first);
        wishes.refuse("a", first, "no");
        assert_eq!(wishes.of("a").map(|w| (w.to, w.refused)), Some((6, None)));
        wishes.end("a", second);
        assert_eq!((wishes.of("a"), wishes.of("c")), (None, None));
    }
}
