//! The holder's side where other machines may take the lease: until when its workers may go on, and whether it still holds it.
//!
//! A challenger elsewhere waits for [`Claim::fenced`](super::Claim::fenced) and then launches. Whatever befell the holder meanwhile (its
//! machine or one of its processes was stopped, its file system did not answer), its workers are gone by then: their guard, which needs
//! nobody for that, ends them. And a holder that comes back launches nothing before it knows that nobody came after it.

use super::{KILLING, STALE};
use crate::id::{Ms, Tick};
use serde::{Deserialize, Serialize};

/// A guard leaves its supervisor so long to end the workers by itself, and to say why.
const FIRST: Ms = Ms::secs(3);

/// How long workers may go on after the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceSpan {
    /// While their supervisor is there.
    pub led: Ms,
    /// Once it is gone, whatever they are doing then.
    pub alone: Ms,
}

impl FenceSpan {
    /// By what the holder's claim says.
    #[must_use]
    pub fn of(ttl: Ms, lasts: Ms) -> Self {
        Self {
            led: Ms(ttl.0.saturating_add(FIRST.0)),
            alone: Ms(lasts.0.saturating_sub(KILLING.0)),
        }
    }

    /// The same as moments, by the clock of the renewal.
    #[must_use]
    pub fn since(self, renewed: Tick) -> FenceDeadline {
        FenceDeadline {
            led: renewed.after(self.led),
            alone: renewed.after(self.alone),
        }
    }
}

/// A [`Fence`] as moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceDeadline {
    /// While their supervisor is there.
    pub led: Tick,
    /// Once it is gone.
    pub alone: Tick,
}

/// A holder's renewals, as far as they prove that it still holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewals {
    ttl: Ms,
    last: Tick,
    proven: Tick,
    /// The first renewal after a gap that was long enough for somebody else.
    doubt: Option<Tick>,
}

impl Renewals {
    /// Of a lease that was won by a look begun at this moment.
    #[must_use]
    pub fn from(looked: Tick, ttl: Ms) -> Self {
        Self {
            ttl,
            last: looked,
            proven: looked,
            doubt: None,
        }
    }

    /// It was renewed: asked for then, and answered now.
    pub fn note(&mut self, asked: Tick, now: Tick) {
        if now.since(self.last) >= self.ttl {
            self.doubt = Some(asked);
        }
        self.last = asked;
        if self.doubt.is_none_or(|first| asked.since(first) >= self.doubtful()) {
            (self.doubt, self.proven) = (None, asked);
        }
    }

    /// After a gap a challenger may not have seen yet that the holder is back, and its term may not be seen from here yet; and where the
    /// gap was before the term was won, the holder before may have come back meanwhile, and has its workers for so long.
    fn doubtful(&self) -> Ms {
        let before = self.ttl.0.saturating_add(STALE.0).saturating_add(KILLING.0);
        Ms(before.max(2 * STALE.0))
    }

    /// The last renewal that proves it.
    #[must_use]
    pub fn proven(&self) -> Tick {
        self.proven
    }

    /// Nobody else can have taken it. Nothing is launched where that is not known.
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
        // Asked in time, and answered late.
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
