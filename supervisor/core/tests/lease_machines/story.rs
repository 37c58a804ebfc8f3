//! Stories of two machines, and the server that both of them see.

use super::MACHINES;
use proptest::prelude::*;
use std::collections::BTreeMap;
use supervise_core::id::{Ms, Term};
use supervise_core::lease::Holder;

/// Settings of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) ttl: Ms,
    pub(super) orphan: Ms,
    pub(super) save: Ms,
}

pub(super) fn settings() -> impl Strategy<Value = Settings> {
    let all = [(60, 120, 300), (60, 0, 0), (20, 1, 1), (120, 0, 0), (60, 30, 0)];
    prop::sample::select(all.to_vec()).prop_map(|(ttl, orphan, save)| Settings {
        ttl: Ms::secs(ttl),
        orphan: Ms::secs(orphan),
        save: Ms::secs(save),
    })
}

/// The part that is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Supervisor,
    Machine,
}

#[derive(Debug, Clone)]
pub(super) enum Happens {
    /// So many steps of time pass.
    Time(u64),
    Start(usize),
    /// The supervisor dies; its guard does not.
    Kill(usize),
    /// For so many steps. It is not at a convenient place.
    Stop(usize, Stopped, u64),
    /// The file system does not answer for so many steps; what was asked is done at their end.
    Cut(usize, u64),
    /// For so many steps what is asked is done, and the answer is an error, or that it was there already.
    LoseReplies(usize, u64),
    /// Its workers end by themselves: the supervisor launches anew.
    Crash(usize),
}

pub(super) fn happens() -> impl Strategy<Value = Happens> {
    let machine = 0..MACHINES;
    let span = prop_oneof![1_u64..40, 40_u64..300, 300_u64..1500];
    let stopped = prop_oneof![Just(Stopped::Supervisor), Just(Stopped::Machine)];
    prop_oneof![
        6 => prop_oneof![1_u64..60, 60_u64..1200].prop_map(Happens::Time),
        4 => machine.clone().prop_map(Happens::Start),
        1 => machine.clone().prop_map(Happens::Kill),
        4 => (machine.clone(), stopped, span.clone()).prop_map(|(m, s, n)| Happens::Stop(m, s, n)),
        2 => (machine.clone(), span.clone()).prop_map(|(m, n)| Happens::Cut(m, n)),
        2 => (machine.clone(), span).prop_map(|(m, n)| Happens::LoseReplies(m, n)),
        2 => machine.prop_map(Happens::Crash),
    ]
}

/// A term's directory on the server.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Dir {
    pub(super) holder: Option<Holder>,
    pub(super) beat: Option<u64>,
}

/// The server: what it has now, and what it had.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) now: BTreeMap<Term, Dir>,
    pub(super) past: Vec<(u64, BTreeMap<Term, Dir>)>,
}

impl Server {
    pub(super) fn change(&mut self, at: u64, change: impl FnOnce(&mut BTreeMap<Term, Dir>)) {
        change(&mut self.now);
        self.past.push((at, self.now.clone()));
    }

    pub(super) fn at(&self, at: u64) -> BTreeMap<Term, Dir> {
        let known = self.past.partition_point(|(t, _)| *t <= at);
        known.checked_sub(1).map(|i| self.past[i].1.clone()).unwrap_or_default()
    }
}
