//! The lease: who may act on a run. Pure rules over what was read; the files are the host's.
//!
//! A term is won by creating its directory, which a file system does for one caller only. The holder bumps a
//! counter. On the same machine and boot a dead holder is known at once by its process. From another machine
//! nothing but the counter can be seen: it must stand still for a whole TTL by the challenger's own clock.

use crate::id::{Ms, ProcRef, Term, Tick};
use serde::{Deserialize, Serialize};

/// What the holder writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its term.
    pub term: Term,
    /// Host name.
    pub host: String,
    /// Boot id of that machine.
    pub boot: String,
    /// Its process.
    pub proc: ProcRef,
    /// Bumped while it lives.
    pub counter: u64,
    /// It ended and said so.
    pub released: bool,
}

/// What a challenger does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Take the next term.
    Take(Term),
    /// Look again at this moment.
    Wait(Tick),
    /// Somebody lives: give up.
    Held(Box<Holder>),
}

/// A challenger's view over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Challenger {
    seen: Option<(u64, Tick)>,
}

impl Challenger {
    /// Looks at the newest holder. `alive` tells of its process, where it is on this machine and boot.
    pub fn look(
        &mut self,
        now: Tick,
        newest: Option<&Holder>,
        newest_term: Term,
        alive: Option<bool>,
        ttl: Ms,
    ) -> Verdict {
        let Some(holder) = newest else {
            // A term directory without a holder file: its winner died before it wrote, or is about to.
            return if newest_term == Term(0) {
                Verdict::Take(Term(1))
            } else {
                self.still(now, 0, ttl, || Verdict::Take(newest_term.next()))
            };
        };
        if holder.released || alive == Some(false) {
            return Verdict::Take(newest_term.max(holder.term).next());
        }
        if alive == Some(true) {
            return Verdict::Held(Box::new(holder.clone()));
        }
        if let Some((counter, _)) = self.seen
            && counter != holder.counter
        {
            return Verdict::Held(Box::new(holder.clone()));
        }
        self.still(now, holder.counter, ttl, || {
            Verdict::Take(newest_term.max(holder.term).next())
        })
    }

    fn still(&mut self, now: Tick, counter: u64, ttl: Ms, then: impl FnOnce() -> Verdict) -> Verdict {
        match self.seen {
            Some((_, since)) if now.since(since) >= ttl => then(),
            Some((_, since)) => Verdict::Wait(since.after(ttl)),
            None => {
                self.seen = Some((counter, now));
                Verdict::Wait(now.after(ttl))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(counter: u64) -> Holder {
        Holder {
            term: Term(3),
            host: "a".into(),
            boot: "b".into(),
            proc: ProcRef { pid: 7, start: 9 },
            counter,
            released: false,
        }
    }

    #[test]
    fn a_dead_holder_on_this_machine_is_succeeded_at_once() {
        let mut c = Challenger::default();
        assert_eq!(
            c.look(Tick(0), Some(&holder(1)), Term(3), Some(false), Ms(60)),
            Verdict::Take(Term(4))
        );
        assert!(matches!(
            c.look(Tick(0), Some(&holder(1)), Term(3), Some(true), Ms(60)),
            Verdict::Held(_)
        ));
    }

    #[test]
    fn from_elsewhere_only_a_counter_that_stands_still_for_a_ttl_counts() {
        let mut c = Challenger::default();
        assert_eq!(
            c.look(Tick(0), Some(&holder(1)), Term(3), None, Ms(60)),
            Verdict::Wait(Tick(60))
        );
        assert_eq!(
            c.look(Tick(59), Some(&holder(1)), Term(3), None, Ms(60)),
            Verdict::Wait(Tick(60))
        );
        assert_eq!(
            c.look(Tick(60), Some(&holder(1)), Term(3), None, Ms(60)),
            Verdict::Take(Term(4))
        );
        let mut c = Challenger::default();
        let _ = c.look(Tick(0), Some(&holder(1)), Term(3), None, Ms(60));
        assert!(matches!(
            c.look(Tick(30), Some(&holder(2)), Term(3), None, Ms(60)),
            Verdict::Held(_)
        ));
    }

    #[test]
    fn a_term_without_a_holder_is_waited_for() {
        let mut c = Challenger::default();
        assert_eq!(c.look(Tick(0), None, Term(0), None, Ms(60)), Verdict::Take(Term(1)));
        assert_eq!(c.look(Tick(0), None, Term(2), None, Ms(60)), Verdict::Wait(Tick(60)));
        assert_eq!(c.look(Tick(61), None, Term(2), None, Ms(60)), Verdict::Take(Term(3)));
    }
}
