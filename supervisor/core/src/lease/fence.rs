//! The holder's side if other machines may take the lease: how long its workers may run, and whether it still holds the
//! lease.
//!
//! A challenger elsewhere waits for [`LeaseClaim::fenced`](super::LeaseClaim::fenced) and then launches. Whatever
//! happened to the holder meanwhile (its machine or a process was suspended, its file system did not answer), its
//! workers have exited by then, because their guard kills them without needing anyone else. A holder that returns
//! launches nothing before it knows that nobody took the lease.

use super::{KILLING, STALE};
use crate::id::{Ms, Tick};
use serde::{Deserialize, Serialize};

/// How much earlier the supervisor acts than its guard, so that it can stop the workers itself and say why.
const FIRST: Ms = Ms::secs(3);

/// How long workers may run after the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceSpan {
    /// While their supervisor is connected.
    pub led: Ms,
    /// After it has disconnected, whatever they are doing.
    pub alone: Ms,
}

impl FenceSpan {
    /// The spans for a holder with this TTL and duration.
    #[must_use]
    pub fn of(ttl: Ms, lasts: Ms) -> Self {
        Self {
            led: Ms(ttl.0.saturating_add(FIRST.0)),
            alone: Ms(lasts.0.saturating_sub(KILLING.0)),
        }
    }

    /// The same as points in time on the clock of the renewal.
    #[must_use]
    pub fn since(self, renewed: Tick) -> FenceDeadline {
        FenceDeadline {
            led: renewed.after(self.led),
            alone: renewed.after(self.alone),
        }
    }
}

/// A [`FenceSpan`] as points in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceDeadline {
    /// While their supervisor is connected.
    pub led: Tick,
    /// After it has disconnected.
    pub alone: Tick,
}

/// A holder's renewals, as far as they prove that it still holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewals {
    ttl: Ms,
    last: Tick,
    proven: Tick,
    /// The first renewal after a gap in which another supervisor could have taken the lease.
    doubt: Option<Tick>,
}

impl Renewals {
    /// Starts with a lease that was won by a reading started at `looked`.
    #[must_use]
    pub fn from(looked: Tick, ttl: Ms) -> Self {
        Self {
            ttl,
            last: looked,
            proven: looked,
            doubt: None,
        }
    }

    /// Notes a renewal that was requested at `asked` and confirmed at `now`.
    pub fn note(&mut self, asked: Tick, now: Tick) {
        if now.since(self.last) >= self.ttl {
            self.doubt = Some(asked);
        }
        self.last = asked;
        if self.doubt.is_none_or(|first| asked.since(first) >= self.doubtful()) {
            (self.doubt, self.proven) = (None, asked);
        }
    }

    /// How long renewals prove nothing after a gap. A challenger may not have seen the renewal yet, and its term may
    /// not be visible here yet. If the gap was before the term was won, the previous holder may have returned, and its
    /// workers may run for this long.
    fn doubtful(&self) -> Ms {
        let before = self.ttl.0.saturating_add(STALE.0).saturating_add(KILLING.0);
        Ms(before.max(2 * STALE.0))
    }

    /// The last renewal that proves it.
    #[must_use]
    pub fn proven(&self) -> Tick {
        self.proven
    }

    /// Returns true if nobody else can have taken the lease. Otherwise nothing may be launched.
    #[must_use]
    pub fn is_held(&self, now: Tick) -> bool {
        now.since(self.proven) < self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_gap_the_lease_is_ours_again_only_once_nobody_can_have_come() {
        let s = |secs| Tick(Ms::secs(secs).0);
        let mut held = Renewals::from(s(0), Ms::secs(60));
        assert!(held.is_held(s(59)) && !held.is_held(s(60)));
        held.note(s(15), s(16));
        assert!(held.is_held(s(74)));
        // Requested in time but confirmed late.
        held.note(s(70), s(80));
        assert!(!held.is_held(s(80)));
        for at in [95, 110, 125, 140, 155, 170, 185, 199] {
            held.note(s(at), s(at + 1));
            assert!(!held.is_held(s(at + 1)), "{at}");
        }
        held.note(s(200), s(201));
        assert!(held.is_held(s(201)));
        assert_eq!(held.proven(), s(200));
    }
}
