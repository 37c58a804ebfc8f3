//! The lease: who may act on a run. These are pure rules over what was read; the host reads and writes the files.
//!
//! A term is won by creating its directory, which a file system lets only one caller do. The holder keeps bumping a
//! counter. Only a challenger in the same [`PidScope`] (the same kernel and namespaces) sees at once that the holder's
//! process is dead. From anywhere else (another machine, another boot, another container under the same host name) only
//! the counter is visible: it must stop, by the challenger's own clock, for as long as anything the holder left behind
//! could keep running.

mod fence;

pub use fence::{FenceDeadline, FenceSpan, Renewals};

use crate::id::{Ms, ProcRef, Term, Tick};
use serde::{Deserialize, Serialize};

/// Higher terms are not ours: a run starts a few terms a day.
const TERMS: u32 = 1 << 24;
/// Longest wait, whatever a holder wrote.
const LONGEST: Ms = Ms::secs(24 * 3600);
/// Longest time it takes to kill a guard's workers once the guard's time is over.
const KILLING: Ms = Ms::secs(10);
/// How old the names and attributes that a mount shows may be: NFS caches them for a minute.
const STALE: Ms = Ms::secs(60);

/// The kernel and the namespaces in which a pid is valid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PidScope {
    /// Boot id of the kernel; empty: not known.
    pub boot: String,
    /// Machine id; empty if the system has none.
    pub machine: String,
    /// Inode of the pid namespace; 0: not known, or `/proc` belongs to another one.
    pub pid_ns: u64,
    /// Inode of the network namespace, in which a guard and a supervisor can reach each other; 0: not known.
    pub net_ns: u64,
    /// Inode of the time namespace, which shifts start times; 0 if the kernel has none.
    pub time_ns: u64,
}

impl PidScope {
    /// Returns true if both are provably the same, so that a process looks the same from either. Boot ids are random
    /// and tell two scopes without a machine id apart; unknown values are never equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_known = !self.boot.is_empty() && self.pid_ns != 0 && self.net_ns != 0;
        is_known && self == other
    }
}

/// The holder of a lease, as written to its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub term: Term,
    /// Host name, for display.
    pub host: String,
    /// Where its pid is valid. Older releases wrote the boot id alone, which proves nothing.
    #[serde(flatten)]
    pub seat: PidScope,
    pub proc: ProcRef,
    /// Bumped while the holder is running.
    pub counter: u64,
    /// Whether it exited and said so.
    pub released: bool,
    /// How long it may be silent, by its own settings.
    #[serde(default)]
    pub ttl: Ms,
    /// How long processes that it left behind may run after its last heartbeat.
    #[serde(default)]
    pub lasts: Ms,
}

impl Holder {
    /// Returns true if it holds the lease in another scope and was last heard of less than its TTL ago.
    #[must_use]
    pub fn lives_elsewhere(&self, own: &PidScope, silent: Ms) -> bool {
        !self.released && !self.seat.is_same(own) && silent < self.ttl
    }
}

/// A challenger for the lease, and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseClaim {
    /// Host name, for display.
    pub host: String,
    /// Where its pid is valid.
    pub seat: PidScope,
    pub proc: ProcRef,
    /// How long a holder in another scope may be silent.
    pub ttl: Ms,
    /// How long processes that it leaves behind may run after its last heartbeat.
    pub lasts: Ms,
    /// The newest term known from elsewhere (the journals). The term that is won is a later one.
    pub above: Term,
}

impl LeaseClaim {
    /// How long processes that a holder leaves behind may run after its last heartbeat: it dies up to a beat later, and
    /// its guard waits for a successor, lets a save finish, and kills.
    #[must_use]
    pub fn lasting(ttl: Ms, orphan_grace: Ms, save_grace: Ms) -> Ms {
        [beat(ttl), orphan_grace, save_grace, KILLING]
            .iter()
            .fold(Ms(0), |sum, part| Ms(sum.0.saturating_add(part.0)))
    }

    /// The same if the holder ends its workers itself once it could not renew its lease for a TTL: a challenger allows
    /// for the time that takes, and for seeing the last renewal late.
    #[must_use]
    pub fn fenced(ttl: Ms, lasting: Ms) -> Ms {
        let own_end = ttl.0.saturating_add(KILLING.0).saturating_add(STALE.0);
        lasting.max(Ms(own_end))
    }

    /// The holder that the challenger becomes by winning `term`.
    #[must_use]
    pub fn holder(&self, term: Term) -> Holder {
        Holder {
            term,
            host: self.host.clone(),
            seat: self.seat.clone(),
            proc: self.proc,
            counter: 1,
            released: false,
            ttl: self.ttl,
            lasts: self.lasts,
        }
    }
}

/// Interval between heartbeats.
#[must_use]
pub fn beat(ttl: Ms) -> Ms {
    Ms(ttl.0 / 4)
}

/// One reading of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseSnapshot<'a> {
    /// The newest term directory.
    pub newest: Term,
    /// What its winner wrote or, if that cannot be read yet, what the previous winner wrote.
    pub holder: Option<&'a Holder>,
    /// The counter that is written in place, if there is one.
    pub beat: Option<u64>,
    /// Whether the holder's process is running; `None` if that cannot be seen from here.
    pub alive: Option<bool>,
    /// Whether the directory was made under another path: the running holder may be that of the original.
    pub copied: bool,
}

/// What the challenger does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    Take(Term),
    /// Read the lease again at this time.
    Wait(Tick),
    /// Another supervisor is running: give up.
    Held(Box<Holder>),
    /// No supervisor gets this far: something else created the directory.
    Absurd(Term),
}

/// The part that changes while a holder is running.
type HolderState = (Term, u64, Option<u64>);

/// A challenger's view over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Challenger {
    seen: Option<(HolderState, Tick)>,
}

impl Challenger {
    /// Judges one reading, started at `from` and finished by `now`. A challenger that was suspended afterwards has not
    /// seen what happened since.
    pub fn look(&mut self, from: Tick, now: Tick, seen: LeaseSnapshot<'_>, claim: &LeaseClaim) -> ClaimResult {
        let newest = seen.newest.max(claim.above);
        if newest.0 >= TERMS {
            return ClaimResult::Absurd(newest);
        }
        // If the journals know a later term than the lease does, its holder is unknown.
        let own = seen.holder.filter(|h| h.term == newest);
        if newest == Term(0) {
            return ClaimResult::Take(Term(1));
        }
        if let Some(holder) = own {
            let still_here = seen.alive == Some(true) && (!seen.copied || seen.beat.is_none());
            if holder.released || seen.alive == Some(false) {
                return ClaimResult::Take(newest.next());
            }
            if still_here {
                return ClaimResult::Held(Box::new(holder.clone()));
            }
        }
        // A directory without a holder: its winner died before it wrote, or is about to write.
        let sign = (newest, own.map_or(0, |h| h.counter), seen.beat);
        if let Some((before, _)) = self.seen
            && before != sign
        {
            if let Some(holder) = own {
                return ClaimResult::Held(Box::new(holder.clone()));
            }
            self.seen = None;
        }
        let (_, since) = *self.seen.get_or_insert((sign, now));
        let wait = silence(seen, claim);
        match from.since(since) >= wait {
            true => ClaimResult::Take(newest.next()),
            false => ClaimResult::Wait(since.after(wait)),
        }
    }
}

/// How long a holder must be silent before its lease can be taken.
fn silence(seen: LeaseSnapshot<'_>, claim: &LeaseClaim) -> Ms {
    let ttl = claim.ttl.max(seen.holder.map_or(Ms(0), |h| h.ttl));
    if seen.alive == Some(true) {
        // It is running and holds another directory, so it leaves no orphans here.
        return ttl;
    }
    // If a holder wrote no duration, the challenger's own is the best guess.
    let lasts = seen.holder.map_or(claim.lasts, |h| match h.lasts {
        Ms(0) => claim.lasts,
        said => said,
    });
    // The file may be damaged: limit the wait.
    ttl.max(lasts).min(LONGEST)
}

/// Whether a running holder's paths (run directory, term, journal) are still where they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ground {
    away: bool,
}

impl Ground {
    /// Takes in a successful check: whether everything is in place. Returns true if it was not, twice in a row, one
    /// beat apart. A failed check shows nothing and is not taken in.
    pub fn look(&mut self, is_there: bool) -> bool {
        let before = std::mem::replace(&mut self.away, !is_there);
        before && !is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(pid_ns: u64) -> PidScope {
        PidScope {
            boot: "b".into(),
            machine: "m".into(),
            pid_ns,
            net_ns: 4,
            time_ns: 5,
        }
    }

    fn claim() -> LeaseClaim {
        LeaseClaim {
            host: "h".into(),
            seat: seat(3),
            proc: ProcRef { pid: 8, start: 9 },
            ttl: Ms(60),
            lasts: Ms(0),
            above: Term(0),
        }
    }

    fn holder(counter: u64) -> Holder {
        Holder {
            counter,
            ..LeaseClaim {
                proc: ProcRef { pid: 7, start: 9 },
                ..claim()
            }
            .holder(Term(3))
        }
    }

    #[test]
    fn what_a_damaged_holder_says_is_not_waited_for_without_end() {
        let mut challenger = Challenger::default();
        let mut other = holder(1);
        other.lasts = Ms(u64::MAX);
        let at = |tick| ClaimResult::Wait(Tick(tick));
        assert_eq!(judge(&mut challenger, 0, seen(&other, None)), at(LONGEST.0));
        let taken = judge(&mut challenger, LONGEST.0, seen(&other, None));
        assert_eq!(taken, ClaimResult::Take(Term(4)));
    }

    fn seen(holder: &Holder, alive: Option<bool>) -> LeaseSnapshot<'_> {
        LeaseSnapshot {
            newest: holder.term,
            holder: Some(holder),
            alive,
            ..LeaseSnapshot::default()
        }
    }

    fn judge(c: &mut Challenger, now: u64, seen: LeaseSnapshot<'_>) -> ClaimResult {
        c.look(Tick(now), Tick(now), seen, &claim())
    }

    #[test]
    fn a_seat_is_the_same_only_where_all_of_it_is_known_and_equal() {
        let here = seat(3);
        assert!(here.is_same(&seat(3)));
        let others = [
            seat(4),
            PidScope {
                boot: "c".into(),
                ..seat(3)
            },
            PidScope {
                machine: "n".into(),
                ..seat(3)
            },
            PidScope { net_ns: 9, ..seat(3) },
            PidScope { time_ns: 9, ..seat(3) },
        ];
        assert!(others.iter().all(|o| !here.is_same(o) && !o.is_same(&here)));
        let unknown = [
            seat(0),
            PidScope {
                boot: String::new(),
                ..seat(3)
            },
            PidScope { net_ns: 0, ..seat(3) },
            PidScope::default(),
        ];
        assert!(unknown.iter().all(|u| !u.is_same(u)));
    }

    #[test]
    fn a_holder_of_an_older_release_proves_nothing_but_is_read() {
        let text = r#"{"term":3,"host":"h","boot":"b","proc":{"pid":7,"start":9},"counter":5,"released":false}"#;
        let old: Holder = serde_json::from_str(text).unwrap();
        assert_eq!((old.seat.boot.as_str(), old.counter), ("b", 5));
        assert!(!seat(3).is_same(&old.seat));
        let text = serde_json::to_string(&holder(5)).unwrap();
        assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), holder(5));
        // An older release finds the field where it expects it.
        assert!(text.contains(r#""boot":"b""#), "{text}");
    }

    #[test]
    fn a_dead_holder_in_this_seat_is_succeeded_at_once() {
        let (mut c, h) = (Challenger::default(), holder(1));
        assert_eq!(judge(&mut c, 0, seen(&h, Some(false))), ClaimResult::Take(Term(4)));
        assert!(matches!(judge(&mut c, 0, seen(&h, Some(true))), ClaimResult::Held(_)));
    }

    #[test]
    fn from_elsewhere_only_a_counter_that_stands_still_for_a_ttl_counts() {
        let (mut c, h) = (Challenger::default(), holder(1));
        for now in [0, 59] {
            assert_eq!(judge(&mut c, now, seen(&h, None)), ClaimResult::Wait(Tick(60)));
        }
        assert_eq!(judge(&mut c, 60, seen(&h, None)), ClaimResult::Take(Term(4)));
        let mut c = Challenger::default();
        let _ = judge(&mut c, 0, seen(&h, None));
        assert!(matches!(
            judge(&mut c, 30, seen(&holder(2), None)),
            ClaimResult::Held(_)
        ));
    }

    #[test]
    fn what_a_holder_leaves_behind_is_waited_for_and_its_own_ttl_counts() {
        let (mut c, mut h) = (Challenger::default(), holder(1));
        h.lasts = Ms(500);
        assert_eq!(judge(&mut c, 0, seen(&h, None)), ClaimResult::Wait(Tick(500)));
        let (mut c, mut h) = (Challenger::default(), holder(1));
        h.ttl = Ms(90);
        assert_eq!(judge(&mut c, 0, seen(&h, None)), ClaimResult::Wait(Tick(90)));
        let lasting = LeaseClaim::lasting(Ms::secs(60), Ms::secs(120), Ms::secs(300));
        assert!(lasting > Ms::secs(15 + 120 + 300));
    }

    #[test]
    fn a_copy_is_known_by_its_counter_and_not_by_the_process_that_holds_the_original() {
        let (mut c, h) = (Challenger::default(), holder(1));
        let copied = |beat| LeaseSnapshot {
            beat: Some(beat),
            copied: true,
            ..seen(&h, Some(true))
        };
        assert_eq!(judge(&mut c, 0, copied(7)), ClaimResult::Wait(Tick(60)));
        assert!(matches!(judge(&mut c, 30, copied(8)), ClaimResult::Held(_)));
        let mut c = Challenger::default();
        let _ = judge(&mut c, 0, copied(7));
        assert_eq!(judge(&mut c, 60, copied(7)), ClaimResult::Take(Term(4)));
        // A holder of an older release writes its counter where a mount may not show it.
        let old = LeaseSnapshot {
            beat: None,
            ..copied(7)
        };
        assert!(matches!(
            judge(&mut Challenger::default(), 0, old),
            ClaimResult::Held(_)
        ));
    }

    #[test]
    fn a_look_that_was_made_before_a_pause_shows_nothing_of_the_pause() {
        let (mut c, h) = (Challenger::default(), holder(1));
        assert_eq!(judge(&mut c, 0, seen(&h, None)), ClaimResult::Wait(Tick(60)));
        let stopped = c.look(Tick(10), Tick(9_000), seen(&h, None), &claim());
        assert_eq!(stopped, ClaimResult::Wait(Tick(60)));
        assert!(matches!(
            judge(&mut c, 9_001, seen(&holder(2), None)),
            ClaimResult::Held(_)
        ));
    }

    #[test]
    fn a_term_without_a_holder_is_waited_for() {
        let nobody = |newest| LeaseSnapshot {
            newest,
            ..LeaseSnapshot::default()
        };
        let mut c = Challenger::default();
        assert_eq!(judge(&mut c, 0, nobody(Term(0))), ClaimResult::Take(Term(1)));
        assert_eq!(judge(&mut c, 0, nobody(Term(2))), ClaimResult::Wait(Tick(60)));
        assert_eq!(judge(&mut c, 61, nobody(Term(2))), ClaimResult::Take(Term(3)));
        // A directory whose previous winner's processes may still be running.
        let mut h = holder(1);
        h.lasts = Ms(500);
        let before = LeaseSnapshot {
            newest: Term(4),
            ..seen(&h, Some(false))
        };
        assert_eq!(
            judge(&mut Challenger::default(), 0, before),
            ClaimResult::Wait(Tick(500))
        );
    }

    #[test]
    fn terms_that_only_the_journals_know_are_waited_for_and_never_won_again() {
        let above = LeaseClaim {
            above: Term(5),
            ..claim()
        };
        let mut c = Challenger::default();
        let mut h = holder(1);
        h.released = true;
        assert_eq!(
            c.look(Tick(0), Tick(0), seen(&h, None), &above),
            ClaimResult::Wait(Tick(60))
        );
        assert_eq!(
            c.look(Tick(60), Tick(60), seen(&h, None), &above),
            ClaimResult::Take(Term(6))
        );
    }

    #[test]
    fn a_term_that_nobody_ever_reached_is_absurd() {
        for n in [TERMS, u32::MAX - 1, u32::MAX] {
            let seen = LeaseSnapshot {
                newest: Term(n),
                ..LeaseSnapshot::default()
            };
            assert_eq!(judge(&mut Challenger::default(), 0, seen), ClaimResult::Absurd(Term(n)));
        }
    }

    #[test]
    fn the_ground_is_lost_at_the_second_look_in_a_row() {
        let mut ground = Ground::default();
        let looks = [true, false, true, false, false, false].map(|there| ground.look(there));
        assert_eq!(looks, [false, false, false, false, true, true]);
    }
}
