//! Places of the connections that anybody can open: who has not shown the key keeps nobody out who comes later.
//!
//! Nobody knows whose a connection is before its request is read. So a new one always finds a place: where all are taken, the oldest of
//! those that have not shown the key is closed for it, one that still sends its request before one that is being answered. A connection
//! that showed the key has a place of its own kind, which nobody else can take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Connections without the key that are open at once.
const KEYLESS: usize = 256;
/// Connections that showed the key. A page that follows its run keeps one.
const KEYED: usize = 256;
/// A request without the key comes whole within this, counted from the beginning of its connection.
pub(super) const REQUEST: Duration = Duration::from_secs(5);

const ASKING: u8 = 0;
const ANSWERED: u8 = 1;
const KEY_SHOWN: u8 = 2;

/// The places of one entrance.
#[derive(Default)]
pub(super) struct ConnectionPlaces {
    /// Those without the key, the oldest first.
    keyless: Mutex<VecDeque<Arc<ConnectionPlace>>>,
    keyed: AtomicUsize,
}

/// The place of one connection.
pub(super) struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    state: AtomicU8,
    taken_away: Notify,
    /// When its request is due.
    due: Instant,
}

/// Gives its place back when it is dropped.
pub(super) struct HeldPlace(pub(super) Arc<ConnectionPlace>);

impl ConnectionPlaces {
    /// A place for a connection that was just opened.
    pub(super) fn enter(self: &Arc<Self>) -> HeldPlace {
        let place = Arc::new(ConnectionPlace {
            places: self.clone(),
            state: AtomicU8::new(ASKING),
            taken_away: Notify::new(),
            due: Instant::now() + REQUEST,
        });
        let mut keyless = self.keyless();
        if keyless.len() >= KEYLESS {
            let asks = keyless.iter().position(|p| p.state.load(Ordering::Relaxed) == ASKING);
            if let Some(oldest) = keyless.remove(asks.unwrap_or_default()) {
                oldest.taken_away.notify_one();
            }
        }
        keyless.push_back(place.clone());
        HeldPlace(place)
    }

    fn keyless(&self) -> MutexGuard<'_, VecDeque<Arc<ConnectionPlace>>> {
        self.keyless.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// The connection showed the key: from now on nobody takes its place. `false`: there are too many of them, and it stays what it was.
    pub(super) fn show_key(self: &Arc<Self>) -> bool {
        if self.state.load(Ordering::Relaxed) == KEY_SHOWN {
            return true;
        }
        if self.places.keyed.load(Ordering::Relaxed) >= KEYED {
            return false;
        }
        self.places.keyed.fetch_add(1, Ordering::Relaxed);
        self.places.keyless().retain(|p| !Arc::ptr_eq(p, self));
        self.state.store(KEY_SHOWN, Ordering::Relaxed);
        true
    }

    /// Its request came whole.
    pub(super) fn has_asked(&self) {
        // One that showed the key stays one.
        let _ = self
            .state
            .compare_exchange(ASKING, ANSWERED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// When its request is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Ends when the connection is to be closed: its place was taken away, or its request did not come in time.
    pub(super) async fn ends(&self) {
        let late = async {
            tokio::time::sleep_until(self.due).await;
            if self.state.load(Ordering::Relaxed) != ASKING {
                std::future::pending().await
            }
        };
        let late = std::pin::pin!(late);
        futures_util::future::select(late, std::pin::pin!(self.taken_away.notified())).await;
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let place = &self.0;
        if place.state.load(Ordering::Relaxed) == KEY_SHOWN {
            place.places.keyed.fetch_sub(1, Ordering::Relaxed);
        } else {
            place.places.keyless().retain(|p| !Arc::ptr_eq(p, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn is_closed(held: &HeldPlace) -> bool {
        held.0.taken_away.notified().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_that_still_asks_goes_and_never_one_with_the_key() {
        let places = Arc::new(ConnectionPlaces::default());
        let mut all: Vec<HeldPlace> = (0..KEYLESS).map(|_| places.enter()).collect();
        assert!(all[0].0.show_key() && all[0].0.show_key());
        all[1].0.has_asked();
        // The first gave its place back by showing the key.
        all.push(places.enter());
        assert!(!all.iter().any(is_closed));
        all.push(places.enter());
        assert!(
            is_closed(&all[2]) && !all.iter().any(is_closed),
            "only the oldest that asks"
        );
        for one in &all {
            one.0.has_asked();
        }
        all.push(places.enter());
        assert!(is_closed(&all[1]) && !all.iter().any(is_closed));
        drop(all);
        assert_eq!((places.keyless().len(), places.keyed.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn more_with_the_key_than_there_are_places_are_like_any_other() {
        let places = Arc::new(ConnectionPlaces::default());
        let with_key = || {
            let held = places.enter();
            held.0.show_key().then_some(held)
        };
        let all: Vec<HeldPlace> = std::iter::from_fn(with_key).take(KEYED + 1).collect();
        assert_eq!(all.len(), KEYED);
    }
}
