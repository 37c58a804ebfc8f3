//! The lease between two machines that share a directory over a network: stale caches, lost replies,
//! a link that is cut, and processes and machines that are stopped for any length. With self-fencing on, no two attempts run at once, and
//! no term has two winners.
//!
//! A machine has a supervisor (which waits for the lease, or holds it and launches) and a guard with the workers, which outlives it. A
//! worker runs while its machine does. Of a machine that was stopped as a whole nothing runs before its guard has looked at the clock.

mod story;

use proptest::prelude::*;
use std::collections::BTreeMap;
use story::{Dir, Happens, Server, Settings, Stopped, happens, settings};
use supervise_core::id::{Ms, ProcRef, Term, Tick};
use supervise_core::lease::{
    Challenger, ClaimResult, FenceDeadline, FenceSpan, Holder, LeaseClaim, LeaseSnapshot, PidScope, Renewals, beat,
};

/// Milliseconds in one step of time.
const STEP: u64 = 500;
/// Longest age of what a machine is shown: names, attributes and contents alike.
const STALE: u64 = 60_000;
/// Longest time from the guard's kill to the workers' exit.
const KILLING: u64 = 6_000;
const MACHINES: usize = 2;

#[derive(Debug)]
enum At {
    /// It waits for the lease.
    Waits { challenger: Challenger, since: Option<u64> },
    /// It read the lease, by a look that began then, and has not judged it.
    Looked {
        challenger: Challenger,
        from: u64,
        seen: (Term, Option<Holder>, Option<u64>),
    },
    /// It will make that term's directory.
    Takes {
        challenger: Challenger,
        from: u64,
        term: Term,
    },
    /// It made it, and has not written its word.
    Made { from: u64, term: Term },
    /// It holds the lease.
    Holds(Holds),
}

#[derive(Debug)]
struct Holds {
    term: Term,
    renewals: Renewals,
    bump_at: u64,
    /// Asked for then, and on its way.
    asked: Option<u64>,
    counter: u64,
}

/// A guard with its workers.
#[derive(Debug)]
struct Crew {
    until: FenceDeadline,
    orphan_since: Option<u64>,
    saving: bool,
    dead_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Machine {
    supervisor: Option<At>,
    crew: Option<Crew>,
    supervisor_stopped: u64,
    machine_stopped: u64,
    cut: u64,
    loses: u64,
    started: u64,
    /// How far the caches have got: nothing is shown that is older than what was shown.
    shown: [u64; 3],
}

struct World {
    settings: Settings,
    now: u64,
    chance: u64,
    server: Server,
    machines: [Machine; MACHINES],
    /// The guard ends workers whose lease was not renewed.
    guard_fences: bool,
    launches: u32,
}

impl World {
    fn new(settings: Settings, seed: u64, guard_fences: bool) -> Self {
        Self {
            settings,
            now: 1_000_000,
            chance: seed | 1,
            server: Server::default(),
            machines: Default::default(),
            guard_fences,
            launches: 0,
        }
    }

    /// A number below `most`.
    fn any(&mut self, most: u64) -> u64 {
        // xorshift64
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % most.max(1)
    }

    fn clock(&self, m: usize) -> u64 {
        // No two clocks agree.
        self.now + 1_000_000_000 * m as u64
    }

    fn claim(&self, m: usize) -> LeaseClaim {
        let lasting = LeaseClaim::lasting(self.settings.ttl, self.settings.orphan, self.settings.save);
        LeaseClaim {
            host: "trainer-0".into(),
            seat: PidScope {
                boot: format!("b{m}"),
                machine: "all the same image".into(),
                pid_ns: 10,
                net_ns: 20,
                time_ns: 30,
            },
            proc: ProcRef {
                pid: 7,
                start: self.machines[m].started,
            },
            ttl: self.settings.ttl,
            lasts: LeaseClaim::fenced(self.settings.ttl, lasting),
            above: Term(0),
        }
    }

    fn fence(&self) -> FenceSpan {
        FenceSpan::of(self.settings.ttl, self.claim(0).lasts)
    }

    fn apply(&mut self, what: &Happens) -> Result<(), TestCaseError> {
        match *what {
            Happens::Time(steps) => {
                for _ in 0..steps {
                    self.now += STEP;
                    for m in 0..MACHINES {
                        self.guard(m);
                        self.supervise(m);
                    }
                    self.check()?;
                }
            }
            Happens::Start(m) if self.machines[m].supervisor.is_none() => {
                let machine = &mut self.machines[m];
                machine.started += 1;
                machine.supervisor = Some(At::Waits {
                    challenger: Challenger::default(),
                    since: None,
                });
            }
            Happens::Start(_) => {}
            Happens::Kill(m) => self.kill(m),
            Happens::Stop(m, Stopped::Supervisor, steps) => {
                let until = self.now + steps * STEP;
                self.machines[m].supervisor_stopped = self.machines[m].supervisor_stopped.max(until);
            }
            Happens::Stop(m, Stopped::Machine, steps) => {
                let until = self.now + steps * STEP;
                self.machines[m].machine_stopped = self.machines[m].machine_stopped.max(until);
            }
            Happens::Cut(m, steps) => self.machines[m].cut = self.machines[m].cut.max(self.now + steps * STEP),
            Happens::LoseReplies(m, steps) => {
                self.machines[m].loses = self.machines[m].loses.max(self.now + steps * STEP);
            }
            Happens::Crash(m) => {
                if let Some(crew) = &mut self.machines[m].crew {
                    crew.dead_at = Some(crew.dead_at.unwrap_or(self.now));
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, m: usize) {
        let saving = self.any(2) == 0;
        let now = self.now;
        let machine = &mut self.machines[m];
        machine.supervisor = None;
        if let Some(crew) = &mut machine.crew {
            crew.orphan_since.get_or_insert(now);
            crew.saving = saving;
        }
    }

    fn is_stopped(&self, m: usize) -> bool {
        self.machines[m].machine_stopped > self.now
    }

    /// The guard looks at the clock.
    fn guard(&mut self, m: usize) {
        if self.is_stopped(m) {
            return;
        }
        let (now, clock, killing) = (self.now, self.clock(m), self.any(KILLING));
        let (fences, settings) = (self.guard_fences, self.settings);
        let Some(crew) = &mut self.machines[m].crew else { return };
        let orphan = crew.orphan_since.map(|since| {
            let save = if crew.saving { settings.save.0 } else { 0 };
            since + settings.orphan.0 + save
        });
        let lease = match crew.orphan_since {
            Some(_) => crew.until.alone.0,
            None => crew.until.led.0,
        };
        if orphan.is_some_and(|due| now >= due) || fences && clock >= lease {
            crew.dead_at.get_or_insert(now + killing);
        }
        if crew.dead_at.is_some_and(|at| now >= at) {
            self.machines[m].crew = None;
        }
    }

    /// The machine's view of the server, as old as it happens to be: of the names (0), of the holders' words (1), of their beats (2).
    fn shown(&mut self, m: usize, object: usize) -> BTreeMap<Term, Dir> {
        let age = match self.any(3) {
            0 => 0,
            1 => STALE,
            _ => self.any(STALE),
        };
        let at = self.now.saturating_sub(age).max(self.machines[m].shown[object]);
        self.machines[m].shown[object] = at;
        self.server.at(at)
    }

    fn supervise(&mut self, m: usize) {
        if self.is_stopped(m) || self.machines[m].supervisor_stopped > self.now {
            return;
        }
        let Some(at) = self.machines[m].supervisor.take() else {
            return;
        };
        let is_cut = self.machines[m].cut > self.now;
        let next = match at {
            // All that needs the file system waits for it.
            At::Waits { challenger, since } if is_cut => Some(At::Waits {
                challenger,
                since: since.or(Some(self.now)),
            }),
            At::Takes { .. } if is_cut => Some(at),
            At::Made { .. } if is_cut => Some(at),
            At::Waits { challenger, since } => Some(self.look(m, challenger, since.unwrap_or(self.now))),
            At::Looked { challenger, from, seen } => self.judge(m, challenger, from, &seen),
            At::Takes { challenger, from, term } => self.make(m, challenger, from, term),
            At::Made { from, term } => self.write(m, from, term),
            At::Holds(holds) => self.hold(m, holds, is_cut),
        };
        self.machines[m].supervisor = next;
        if self.machines[m].supervisor.is_none() {
            self.kill(m);
        }
    }

    fn look(&mut self, m: usize, challenger: Challenger, from: u64) -> At {
        let newest = self.shown(m, 0).keys().next_back().copied().unwrap_or_default();
        let words = self.shown(m, 1);
        let holder = words.range(..=newest).rev().find_map(|(_, dir)| dir.holder.clone());
        let beat = self.shown(m, 2).get(&newest).and_then(|dir| dir.beat);
        At::Looked {
            challenger,
            from,
            seen: (newest, holder, beat),
        }
    }

    fn judge(
        &mut self,
        m: usize,
        mut challenger: Challenger,
        from: u64,
        (newest, holder, beat): &(Term, Option<Holder>, Option<u64>),
    ) -> Option<At> {
        let claim = self.claim(m);
        let here = holder.as_ref().filter(|h| claim.seat.is_same(&h.seat));
        let seen = LeaseSnapshot {
            newest: *newest,
            holder: holder.as_ref(),
            beat: *beat,
            // Of this machine only the supervisor that asks lives.
            alive: here.map(|_| false),
            copied: false,
        };
        let offset = self.clock(m) - self.now;
        let verdict = challenger.look(Tick(from + offset), Tick(self.clock(m)), seen, &claim);
        match verdict {
            ClaimResult::Wait(_) => Some(At::Waits {
                challenger,
                since: None,
            }),
            ClaimResult::Take(term) => Some(At::Takes { challenger, from, term }),
            ClaimResult::Held(_) | ClaimResult::Absurd(_) => None,
        }
    }

    /// The directory decides, whatever the caches show.
    fn make(&mut self, m: usize, challenger: Challenger, from: u64, term: Term) -> Option<At> {
        let again = At::Waits {
            challenger,
            since: None,
        };
        if self.server.now.contains_key(&term) {
            return Some(again);
        }
        let now = self.now;
        self.server.change(now, |dirs| {
            dirs.insert(term, Dir::default());
        });
        match self.machines[m].loses > now {
            // Asked again by the client, it is there already; or the caller gets an error, and ends.
            true if self.any(2) == 0 => Some(again),
            true => None,
            false => Some(At::Made { from, term }),
        }
    }

    fn write(&mut self, m: usize, from: u64, term: Term) -> Option<At> {
        let (now, holder) = (self.now, self.claim(m).holder(term));
        let is_lost = self.machines[m].loses > now;
        let removed = is_lost && self.any(2) == 0;
        self.server.change(now, |dirs| match removed {
            true => drop(dirs.remove(&term)),
            false => {
                let dir = dirs.get_mut(&term).unwrap();
                (dir.holder, dir.beat) = (Some(holder), Some(1));
            }
        });
        (!is_lost).then(|| {
            // Workers that a guard of an earlier term of this machine holds are found and ended before anything is launched.
            self.machines[m].crew = None;
            At::Holds(Holds {
                term,
                renewals: Renewals::from(Tick(from), self.settings.ttl),
                bump_at: now,
                asked: None,
                counter: 1,
            })
        })
    }

    fn hold(&mut self, m: usize, mut h: Holds, is_cut: bool) -> Option<At> {
        let now = self.now;
        if h.asked.is_none() && h.bump_at <= now {
            (h.asked, h.bump_at) = (Some(now), now + beat(self.settings.ttl).0);
        }
        if let Some(asked) = h.asked.filter(|_| !is_cut) {
            let newest = self.shown(m, 0).keys().next_back().copied().unwrap_or_default();
            if newest > h.term {
                // It ends its workers before it ends.
                let dead = now + self.any(KILLING);
                self.machines[m]
                    .crew
                    .iter_mut()
                    .for_each(|crew| crew.dead_at = crew.dead_at.or(Some(dead)));
                return None;
            }
            h.asked = None;
            h.counter += 1;
            let (term, counter) = (h.term, h.counter);
            self.server.change(now, |dirs| {
                if let Some(dir) = dirs.get_mut(&term) {
                    dir.beat = Some(counter);
                    dir.holder.iter_mut().for_each(|holder| holder.counter = counter);
                }
            });
            if self.machines[m].loses <= now {
                h.renewals.note(Tick(asked), Tick(now));
                let offset = self.clock(m) - now;
                let until = self.fence().since(Tick(h.renewals.proven().0 + offset));
                self.machines[m].crew.iter_mut().for_each(|crew| crew.until = until);
            }
        }
        if self.machines[m].crew.is_none() && h.renewals.is_held(Tick(now)) {
            self.launch(m, &h);
        }
        Some(At::Holds(h))
    }

    fn launch(&mut self, m: usize, h: &Holds) {
        self.launches += 1;
        let proven = Tick(h.renewals.proven().0 + self.clock(m) - self.now);
        self.machines[m].crew = Some(Crew {
            until: self.fence().since(proven),
            orphan_since: None,
            saving: false,
            dead_at: None,
        });
    }

    /// No two attempts run at once.
    fn check(&self) -> Result<(), TestCaseError> {
        let runs = |m: &usize| {
            let machine = &self.machines[*m];
            machine.crew.is_some() && !self.is_stopped(*m)
        };
        // A machine that was stopped as a whole for longer than its lease lasts: its guard has killed by its first look at the clock, and
        // until they are dead the workers may write. Their term is over, and what they write counts for nothing.
        let dying = |m: &usize| {
            self.machines[*m].crew.as_ref().is_some_and(|crew| {
                let due = if crew.orphan_since.is_some() {
                    crew.until.alone
                } else {
                    crew.until.led
                };
                crew.dead_at.is_some()
                    && self.machines[*m].machine_stopped > self.now.saturating_sub(KILLING + STEP)
                    && self.clock(*m) >= due.0
            })
        };
        let at_once: Vec<usize> = (0..MACHINES).filter(runs).filter(|m| !dying(m)).collect();
        prop_assert!(
            at_once.len() <= 1,
            "two attempts run at {}: {:#?}",
            self.now,
            self.machines
        );
        Ok(())
    }
}

fn run(world: &mut World, story: &[Happens]) -> Result<(), TestCaseError> {
    for what in story {
        world.apply(what)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_two_attempts_run_at_once(
        settings in settings(),
        seed in any::<u64>(),
        story in prop::collection::vec(happens(), 1..50),
    ) {
        run(&mut World::new(settings, seed, true), &story)?;
    }

    /// After any story, once all is well, a supervisor that is started, again where it is told that somebody lives, launches.
    #[test]
    fn a_run_goes_on_in_the_end(
        settings in settings(),
        seed in any::<u64>(),
        story in prop::collection::vec(happens(), 1..30),
        by in 0..MACHINES,
    ) {
        let mut world = World::new(settings, seed, true);
        run(&mut world, &story)?;
        (0..MACHINES).for_each(|m| world.kill(m));
        for m in 0..MACHINES {
            let machine = &mut world.machines[m];
            (machine.cut, machine.loses, machine.supervisor_stopped) = (0, 0, 0);
            // It goes on now.
            machine.machine_stopped = machine.machine_stopped.min(world.now);
        }
        let before = world.launches;
        // One that is shown the last sign of a dead holder late takes it for one that lives, and is started again.
        for _ in 0..3 {
            world.apply(&Happens::Start(by))?;
            world.apply(&Happens::Time(1600))?;
        }
        prop_assert!(world.launches > before, "{:#?}", world.machines);
    }
}

/// A story in which two attempts run at once without the guard's part.
#[test]
fn a_supervisor_that_is_stopped_while_its_workers_go_on_is_what_the_guard_is_for() {
    let settings = Settings {
        ttl: Ms::secs(60),
        orphan: Ms::secs(120),
        save: Ms::secs(300),
    };
    let story = [
        Happens::Start(0),
        Happens::Time(60),
        Happens::Stop(0, Stopped::Supervisor, 5000),
        Happens::Start(1),
        Happens::Time(3000),
    ];
    let mut world = World::new(settings, 1, false);
    assert!(
        run(&mut world, &story).is_err(),
        "nothing ends the workers of a stopped supervisor"
    );
    let mut world = World::new(settings, 1, true);
    run(&mut world, &story).unwrap();
    assert_eq!(world.launches, 2, "the second machine trains");
}
