//! Wishes to go back that were made on pages, until they stand in a journal.

use crate::render::page::SentBack;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A refusal that nobody waited for is told on the page of the run for so long.
const TOLD: Duration = Duration::from_secs(3600);

/// Wishes to go back that are not in the journal: they are being proven, or were refused.
#[derive(Default)]
pub(super) struct Wishes(Mutex<HashMap<String, Wish>>);

struct Wish {
    to: u64,
    since: Instant,
    refused: Option<String>,
}

impl Wishes {
    /// Returns false where one is being proven already.
    pub(super) fn begin(&self, run: &str, to: u64) -> bool {
        let mut all = self.all();
        if all.get(run).is_some_and(|w| w.refused.is_none()) {
            return false;
        }
        let (since, refused) = (Instant::now(), None);
        all.insert(run.to_owned(), Wish { to, since, refused });
        true
    }

    pub(super) fn end(&self, run: &str, refused: Option<&String>) {
        let mut all = self.all();
        match (refused, all.get_mut(run)) {
            (Some(why), Some(wish)) => wish.refused = Some(why.clone()),
            _ => drop(all.remove(run)),
        }
    }

    /// The wish of a run, as its page tells it.
    pub(super) fn of(&self, run: &str) -> Option<SentBack> {
        let all = self.all();
        let wish = all
            .get(run)
            .filter(|w| w.refused.is_none() || w.since.elapsed() < TOLD)?;
        Some(SentBack {
            to: wish.to,
            seconds: wish.since.elapsed().as_secs(),
            refused: wish.refused.clone(),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Wish>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_until_the_next_wish() {
        let wishes = Wishes::default();
        assert!(wishes.begin("a", 4) && !wishes.begin("a", 6) && wishes.begin("b", 6));
        assert_eq!(wishes.of("a").map(|w| (w.to, w.refused)), Some((4, None)));
        wishes.end("a", Some(&"no".to_owned()));
        assert_eq!(wishes.of("a").and_then(|w| w.refused), Some("no".to_owned()));
        assert!(wishes.begin("a", 6));
        wishes.end("a", None);
        assert_eq!((wishes.of("a"), wishes.of("c")), (None, None));
    }
}
