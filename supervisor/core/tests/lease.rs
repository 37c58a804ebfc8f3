//! The lease between simulated machines: whatever dies and whenever, nobody launches beside what another one left alive.
//!
//! Each machine has a clock of its own, a supervisor that comes and goes, and a guard that outlives it for as long as its
//! holder said. The disk is what all of them see.

use proptest::prelude::*;
use std::collections::BTreeMap;
use supervise_core::id::{Ms, ProcRef, Term, Tick};
use supervise_core::lease::{Challenger, ClaimResult, Holder, LeaseClaim, LeaseSnapshot, PidScope, beat};

const TTL: Ms = Ms(6_000);
/// How long a guard waits, and how long a save may then take.
const GRACE: (Ms, Ms) = (Ms(10_000), Ms(4_000));
/// Milliseconds in one step of time.
const STEP: u64 = 100;

/// The next event.
#[derive(Debug, Clone)]
enum Happens {
    /// So many steps of time pass for all.
    Time(u64),
    /// A supervisor is started on a machine.
    Start(usize),
    /// It is killed; its guard is not.
    Kill(usize),
    /// It ends its workers and gives the lease back.
    End(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        5 => (1_u64..40).prop_map(Happens::Time),
        1 => (200_u64..500).prop_map(Happens::Time),
        4 => (0..MACHINES).prop_map(Happens::Start),
        3 => (0..MACHINES).prop_map(Happens::Kill),
        1 => (0..MACHINES).prop_map(Happens::End),
    ]
}

/// Three machines: two of them are containers of one kernel under one host name.
const MACHINES: usize = 3;

fn seat(machine: usize) -> PidScope {
    PidScope {
        boot: ["b0", "b0", "b2"][machine].into(),
        machine: "all the same image".into(),
        pid_ns: [10, 11, 10][machine],
        net_ns: [20, 21, 20][machine],
        time_ns: 30,
    }
}

#[derive(Debug, Default)]
struct Machine {
    /// The process of the supervisor that lives.
    lives: Option<ProcRef>,
    waits: Option<(Challenger, LeaseClaim)>,
    holds: Option<Term>,
    bump_at: u64,
    /// Until when the guard of a killed supervisor may go on.
    orphans_until: Option<u64>,
    started: u64,
}

#[derive(Debug, Default)]
struct World {
    now: u64,
    machines: [Machine; MACHINES],
    disk: BTreeMap<Term, Holder>,
}

impl World {
    fn clock(&self, machine: usize) -> Tick {
        // No two clocks agree.
        Tick(self.now + 1_000_000 * machine as u64)
    }

    fn claim(&self, machine: usize) -> LeaseClaim {
        LeaseClaim {
            host: "trainer-0".into(),
            seat: seat(machine),
            proc: ProcRef {
                pid: 7,
                start: self.machines[machine].started,
            },
            ttl: TTL,
            lasts: LeaseClaim::lasting(TTL, GRACE.0, GRACE.1),
            above: Term(0),
        }
    }

    fn apply(&mut self, what: &Happens) -> Result<(), TestCaseError> {
        match *what {
            Happens::Time(span) => {
                for _ in 0..span {
                    self.now += STEP;
                    for machine in 0..MACHINES {
                        self.beat(machine);
                        self.look(machine)?;
                    }
                }
            }
            Happens::Start(m) if self.machines[m].lives.is_none() => {
                self.machines[m].started += 1;
                let claim = self.claim(m);
                self.machines[m].lives = Some(claim.proc);
                self.machines[m].waits = Some((Challenger::default(), claim));
                self.look(m)?;
            }
            Happens::Kill(m) => {
                let machine = &mut self.machines[m];
                if machine.holds.take().is_some() {
                    machine.orphans_until = Some(self.now + GRACE.0.0 + GRACE.1.0);
                }
                (machine.lives, machine.waits) = (None, None);
            }
            Happens::End(m) => {
                let machine = &mut self.machines[m];
                if let Some(term) = machine.holds.take() {
                    self.disk.get_mut(&term).unwrap().released = true;
                    machine.lives = None;
                }
            }
            Happens::Start(_) => {}
        }
        Ok(())
    }

    fn beat(&mut self, m: usize) {
        let machine = &mut self.machines[m];
        if let Some(term) = machine.holds
            && machine.bump_at <= self.now
        {
            machine.bump_at = self.now + beat(TTL).0;
            self.disk.get_mut(&term).unwrap().counter += 1;
        }
    }

    fn look(&mut self, m: usize) -> Result<(), TestCaseError> {
        let now = self.clock(m);
        let lives = self.machines[m].lives;
        let Some((challenger, claim)) = &mut self.machines[m].waits else {
            return Ok(());
        };
        let newest = self.disk.last_key_value();
        let holder = newest.map(|(_, h)| h);
        let here = holder.filter(|h| claim.seat.is_same(&h.seat));
        let seen = LeaseSnapshot {
            newest: newest.map(|(t, _)| *t).unwrap_or_default(),
            holder,
            alive: here.map(|h| Some(h.proc) == lives),
            ..LeaseSnapshot::default()
        };
        match challenger.look(now, now, seen, claim) {
            ClaimResult::Wait(_) => Ok(()),
            ClaimResult::Held(_) | ClaimResult::Absurd(_) => {
                (self.machines[m].waits, self.machines[m].lives) = (None, None);
                Ok(())
            }
            ClaimResult::Take(term) => {
                let holder = claim.holder(term);
                self.machines[m].waits = None;
                self.won(m, term, holder)
            }
        }
    }

    fn won(&mut self, m: usize, term: Term, holder: Holder) -> Result<(), TestCaseError> {
        for (other, machine) in self.machines.iter().enumerate().filter(|(other, _)| *other != m) {
            prop_assert!(machine.holds.is_none(), "{other} holds it and lives");
            let orphans = machine.orphans_until.filter(|until| *until > self.now);
            prop_assert!(orphans.is_none(), "the workers of {other} live until {orphans:?}");
        }
        // What is left on the same machine is found there and ended before a launch.
        self.machines[m].orphans_until = None;
        prop_assert!(self.disk.insert(term, holder).is_none());
        self.machines[m].holds = Some(term);
        self.machines[m].bump_at = self.now + beat(TTL).0;
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nobody_launches_beside_what_another_left_alive(story in prop::collection::vec(happens(), 1..60)) {
        let mut world = World::default();
        for what in &story {
            world.apply(what)?;
        }
    }

    #[test]
    fn whatever_was_killed_is_succeeded_in_the_end(story in prop::collection::vec(happens(), 1..40), by in 0..MACHINES) {
        let mut world = World::default();
        for what in &story {
            world.apply(what)?;
        }
        for m in 0..MACHINES {
            world.apply(&Happens::Kill(m))?;
        }
        world.apply(&Happens::Start(by))?;
        world.apply(&Happens::Time(300))?;
        prop_assert!(world.machines[by].holds.is_some());
    }
}

/// Whoever cannot renew its lease for a TTL ends its workers, and has time for that before a challenger that saw nothing of it takes
/// the lease.
#[test]
fn a_challenger_leaves_a_silent_holder_the_time_to_end_its_workers() {
    for (ttl, orphan, save) in [(60, 120, 300), (60, 0, 0), (4, 1, 1), (3600, 120, 300), (1, 0, 0)] {
        let ttl = Ms::secs(ttl);
        let lasting = LeaseClaim::lasting(ttl, Ms::secs(orphan), Ms::secs(save));
        let claim = LeaseClaim {
            host: "trainer-0".into(),
            seat: seat(0),
            proc: ProcRef { pid: 7, start: 1 },
            ttl,
            lasts: LeaseClaim::fenced(ttl, lasting),
            above: Term(0),
        };
        assert!(claim.lasts >= lasting);
        let holder = claim.holder(Term(1));
        let other = LeaseClaim {
            seat: seat(1),
            ..claim.clone()
        };
        let mut challenger = Challenger::default();
        let seen = LeaseSnapshot {
            newest: Term(1),
            holder: Some(&holder),
            beat: None,
            alive: None,
            copied: false,
        };
        let mut look = |at: u64| challenger.look(Tick(at), Tick(at), seen, &other);
        look(0);
        assert!(matches!(look(ttl.0 + 9_999), ClaimResult::Wait(_)), "{ttl:?}");
        assert_eq!(look(claim.lasts.0 + 1), ClaimResult::Take(Term(2)), "{ttl:?}");
    }
}
