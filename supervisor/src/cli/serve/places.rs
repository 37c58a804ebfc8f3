//! Limits connections: clients without the token cannot keep later ones out.
//!
//! Before its request is read, a connection belongs to anyone. A new one therefore always gets a place: if all are taken, the
//! oldest one without the token is closed, preferably one that is still sending its request. A connection with the token has a
//! separate place, which no other can take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of open connections without the token.
const KEYLESS: usize = 256;
/// Maximum number of connections with the token. A live page keeps one.
const KEYED: usize = 256;
/// Time for a whole request without the token, from the start of its connection.
pub(super) const REQUEST: Duration = Duration::from_secs(5);

const ASKING: u8 = 0;
const ANSWERED: u8 = 1;
const KEY_SHOWN: u8 = 2;

#[derive(Default)]
pub(super) struct ConnectionPlaces {
    /// Connections without the token, oldest first.
    keyless: Mutex<VecDeque<Arc<ConnectionPlace>>>,
    keyed: AtomicUsize,
}

pub(super) struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    state: AtomicU8,
    taken_away: Notify,
    /// When its request is due.
    due: Instant,
}

/// Releases its place when dropped.
pub(super) struct HeldPlace(pub(super) Arc<ConnectionPlace>);

impl ConnectionPlaces {
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
    /// Keeps the place of a connection that showed the token. Returns false if there are too many; its place can then still be
    /// taken.
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

    /// Its request arrived completely.
    pub(super) fn has_asked(&self) {
        // A connection that showed the token stays so.
        let _ = self
            .state
            .compare_exchange(ASKING, ANSWERED, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns when the connection must be closed: its place was taken, or its request did not arrive in time.
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
        // The first one released its place by showing the token.
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
