//! Typed identifiers and the two notions of time.
//!
//! A bare integer never crosses a crate boundary, so a step cannot be passed for an attempt.

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The next value, saturating at the end of the range.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }
    };
}

number!(
    /// One supervisor's term on a run, counted from 1.
    Term, u32
);
number!(
    /// One launch of all workers, counted from 1 over the whole run.
    AttemptNo, u32
);
number!(
    /// A distributed rank, counted from 0.
    Rank, u32
);
number!(
    /// A worker process of one attempt on this machine, counted from 0.
    WorkerId, u32
);
number!(
    /// A training step as the trainer counts it (optimizer steps, or weight versions with some trainers).
    Step, u64
);
number!(
    /// A record's number in the journal of one term, counted from 1.
    Seq, u64
);
number!(
    /// An act's number within a run.
    ActId, u64
);
number!(
    /// Milliseconds of CLOCK_BOOTTIME since the term started.
    Tick, u64
);
number!(
    /// A span of time in milliseconds.
    Ms, u64
);

impl Tick {
    /// The time `span` later.
    #[must_use]
    pub fn after(self, span: Ms) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Time from `earlier` until this, 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Ms {
        Ms(self.0.saturating_sub(earlier.0))
    }
}

impl Ms {
    /// A span of whole seconds.
    #[must_use]
    pub const fn secs(s: u64) -> Self {
        Self(s.saturating_mul(1000))
    }
}

/// Milliseconds since 1970, for display and platform limits only, never for ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallMs(pub i64);

/// A run's identity: a hash of (trainer, canonical checkpoint root) in 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// FNV-1a, 64 bits: for identities and fingerprints, not for security.
#[must_use]
pub fn fnv64(bytes: impl IntoIterator<Item = impl Borrow<u8>>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b.borrow())).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A process, identified so that a later one with the same pid is not mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcRef {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start: u64,
}

impl fmt::Display for ProcRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate_instead_of_wrapping() {
        assert_eq!(Tick(5).since(Tick(9)), Ms(0));
        assert_eq!(Tick(u64::MAX).after(Ms(1)), Tick(u64::MAX));
        assert_eq!(Step(u64::MAX).next(), Step(u64::MAX));
    }

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(fnv64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
