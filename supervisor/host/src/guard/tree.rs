//! The attempt's processes: which they are, what they use, and how they end.
//!
//! The guard is a subreaper, so descent from it finds whatever the workers leave behind. Walks through `/proc` are
//! paced by their cost: at most 1/2000 of the time. At the end, only processes started after the guard are read.

use crate::process::census::Census;
use crate::process::cgroup::CgroupLeaf;
use crate::process::kill::{Sweeper, hunt, signal_process};
use crate::process::reap::reap_some;
use crate::process::stat::{ProcStat, proc_stat};
use crate::process::tree::{AttemptMarks, ProcSnapshot, running_children};
use std::collections::BTreeMap;
use std::time::Instant;
use supervise_core::event::ExitStatus;
use supervise_core::id::ProcRef;

const LEFTOVERS_MS: u64 = 2000;

const UNKILLABLE_MS: u64 = 5000;

/// Right after a kill, only the guard's children are checked.
const QUICK_MS: u64 = 50;

/// Pause between walks for new descendants: the first, and later the shortest.
const FIRST_WALK_MS: u64 = 250;
const WALK_MS: u64 = 5000;

/// A walk may take this fraction of the time: one part in so many.
const WALK_SHARE: u64 = 2000;

const KNOWN_LIMIT: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreePhase {
    /// Workers are running.
    Running,
    /// All workers have exited; other processes may run until then.
    Leftovers { due: u64 },
    /// SIGKILL was sent.
    Killing { since: u64, next: u64, told: bool },
    /// No process is left.
    Gone,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeNews {
    Gone,
    Unkillable(Vec<ProcRef>),
}

#[derive(Debug)]
pub(crate) struct ProcessTree {
    pub(crate) end: TreePhase,
    leaf: Option<CgroupLeaf>,
    marks: AttemptMarks,
    sweeper: Sweeper,
    /// Children reaped while others were killed; the guard has not handled them yet.
    reaped: Vec<(i32, ExitStatus)>,
    census: Option<Census>,
    known: BTreeMap<i32, (u64, u64)>,
    leaf_cpu: u64,
    walk_at: u64,
    walk_gap: u64,
    /// The longest pause between walks, whatever they cost.
    hurry: Option<u64>,
    pub(crate) ms_per_tick: u64,
}

impl ProcessTree {
    pub(crate) fn new(guard: ProcRef, tag: String, leaf: Option<CgroupLeaf>, now: u64) -> Self {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
        let ticks = ticks.ok().flatten().and_then(|t| u64::try_from(t).ok());
        Self {
            end: TreePhase::Running,
            leaf,
            marks: AttemptMarks {
                root: Some(guard.pid),
                tag: Some(tag),
                since: guard.start,
                ..AttemptMarks::default()
            },
            sweeper: Sweeper::default(),
            reaped: Vec::new(),
            census: None,
            known: BTreeMap::new(),
            leaf_cpu: 0,
            walk_at: now.saturating_add(FIRST_WALK_MS),
            walk_gap: FIRST_WALK_MS,
            hurry: None,
            ms_per_tick: 1000 / ticks.filter(|t| (1..=1000).contains(t)).unwrap_or(100),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.known.len()
    }

    /// Excludes children of the guard that do not belong to the attempt.
    pub(crate) fn except(&mut self, pids: impl IntoIterator<Item = i32>) {
        self.marks.except = pids.into_iter().collect();
    }

    /// Uses the cgroup leaf only if every worker is in it.
    pub(crate) fn check_leaf(&mut self, workers: &[ProcRef]) {
        let Some(leaf) = &self.leaf else {
            return;
        };
        let members = leaf.members();
        if workers
            .iter()
            .any(|w| !members.contains(&w.pid) && crate::process::is_alive(*w))
        {
            self.leaf = None;
        }
    }

    /// Children that exited and were reaped here, in that order; each is returned once.
    pub(crate) fn take_reaped(&mut self) -> Vec<(i32, ExitStatus)> {
        std::mem::take(&mut self.reaped)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.end == TreePhase::Gone
    }

    /// When [`Self::tick`] or [`Self::walk`] has something to do.
    pub(crate) fn next(&self) -> Option<u64> {
        match self.end {
            TreePhase::Running => Some(self.walk_at),
            TreePhase::Leftovers { due } => Some(due.min(self.walk_at)),
            TreePhase::Killing { next, .. } => Some(next),
            TreePhase::Gone => None,
        }
    }

    /// Schedules a walk because new descendants are likely.
    pub(crate) fn walk_soon(&mut self, now: u64) {
        self.walk_at = self.walk_at.min(now);
    }

    /// Sets the longest pause between walks, whatever they cost, for a search that must not miss anything.
    pub(crate) fn hurry(&mut self, most: Option<u64>) {
        self.hurry = most;
    }

    pub(crate) fn is_walk_due(&self, now: u64) -> bool {
        now >= self.walk_at && self.end == TreePhase::Running
    }

    pub(crate) fn known_pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.known.keys().copied()
    }

    pub(crate) fn walk(&mut self, now: u64) -> Vec<ProcStat> {
        if now < self.walk_at || self.is_gone() {
            return Vec::new();
        }
        let began = Instant::now();
        let marks = AttemptMarks {
            tag: None,
            members: self.members(),
            ..self.marks.clone()
        };
        let found = marks.find_in(&self.look_at_all());
        let cost = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let affordable = cost.saturating_mul(WALK_SHARE) / 1000;
        self.walk_gap = (self.walk_gap.saturating_mul(2)).min(WALK_MS);
        let pause = self.walk_gap.max(affordable);
        self.walk_at = now.saturating_add(self.hurry.map_or(pause, |most| pause.min(most)));
        self.learn(found)
    }

    pub(crate) fn learn(&mut self, found: Vec<ProcStat>) -> Vec<ProcStat> {
        let mut new = Vec::new();
        for stat in found {
            let known = self.known.get(&stat.pid);
            if known.is_none_or(|(start, _)| *start != stat.start)
                && (known.is_some() || self.known.len() < KNOWN_LIMIT)
            {
                self.known.insert(stat.pid, (stat.start, 0));
                new.push(stat);
            }
        }
        new
    }

    pub(crate) fn cpu_ms(&mut self) -> u64 {
        if let Some(total) = self.leaf.as_ref().and_then(CgroupLeaf::cpu_ms) {
            let used = total.saturating_sub(self.leaf_cpu);
            self.leaf_cpu = total;
            return used;
        }
        let mut ticks = 0_u64;
        self.known.retain(|pid, (start, cpu)| {
            let Some(stat) = proc_stat(*pid).filter(|s| s.start == *start) else {
                return false;
            };
            ticks = ticks.saturating_add(stat.cpu.saturating_sub(*cpu));
            *cpu = stat.cpu;
            true
        });
        ticks.saturating_mul(self.ms_per_tick)
    }

    /// Every worker has exited: gives the remaining processes a moment.
    pub(crate) fn workers_ended(&mut self, now: u64) {
        if self.end == TreePhase::Running {
            self.end = TreePhase::Leftovers {
                due: now.saturating_add(LEFTOVERS_MS),
            };
        }
    }

    pub(crate) fn kill(&mut self, now: u64) {
        if matches!(self.end, TreePhase::Running | TreePhase::Leftovers { .. }) {
            self.end = TreePhase::Killing {
                since: now,
                next: now,
                told: false,
            };
        }
    }

    /// Continues the end. `stirred`: a child just exited, so check before the regular time.
    pub(crate) fn tick(&mut self, now: u64, stirred: bool) -> Option<TreeNews> {
        match self.end {
            TreePhase::Leftovers { due } if now >= due => {
                self.kill(now);
                self.tick(now, stirred)
            }
            TreePhase::Leftovers { .. } if stirred => {
                let empty = self.living().is_empty() && self.living().is_empty();
                (empty && self.is_childless()).then(|| self.gone())
            }
            TreePhase::Killing { since, next, told } if stirred || now >= next => self.sweep(now, since, told),
            _ => None,
        }
    }

    fn sweep(&mut self, now: u64, since: u64, told: bool) -> Option<TreeNews> {
        // A descendant of the guard need not be found in `/proc` to be known as running: as it dies, its children
        // become ours, and the next round kills them.
        self.strike();
        if now < since.saturating_add(QUICK_MS) && !self.is_childless() {
            // Do the census that the sweeps begin with.
            if self.recount().is_none() {
                self.look_at_all();
            }
            self.end = TreePhase::Killing {
                since,
                next: now.saturating_add(2),
                told,
            };
            return None;
        }
        let mut left = self.sweep_once();
        if left.is_empty() {
            self.strike();
            left = self.sweep_once();
        }
        if self.sweeper.is_gone() && self.is_childless() {
            return Some(self.gone());
        }
        let lasting = now.saturating_sub(since);
        let tell = lasting >= UNKILLABLE_MS && !told && !left.is_empty();
        // Most processes die within milliseconds; freeing a GPU takes longer; those that hang in the kernel are
        // polled.
        let pause = (lasting / 8).clamp(2, if told { 1000 } else { 100 });
        self.end = TreePhase::Killing {
            since,
            next: now.saturating_add(pause),
            told: told || tell,
        };
        tell.then(|| TreeNews::Unkillable(left.iter().map(ProcStat::proc_ref).collect()))
    }

    /// Returns true if the guard certainly has no children of the attempt, and if that cannot be read: then walks
    /// through `/proc` decide.
    fn is_childless(&self) -> bool {
        let none = running_children(|pid| self.marks.except.contains(&pid)).is_none_or(|left| left.is_empty());
        none && self.members().is_empty()
    }

    fn strike(&mut self) {
        if let Some(leaf) = &self.leaf {
            // Refused only if the leaf is gone; the code below does the same.
            let _ = leaf.kill();
        }
        // A process that forks faster than `/proc` can be read can only be caught among the children.
        let reaped = &mut self.reaped;
        let reap = || reap_some(|pid, status| reaped.push((pid, status)));
        let _ = hunt(|pid| self.marks.except.contains(&pid), reap);
    }

    fn sweep_once(&mut self) -> Vec<ProcStat> {
        let all = self.recount().unwrap_or_else(|| self.look_at_all());
        let marks = AttemptMarks {
            members: self.members(),
            ..self.marks.clone()
        };
        self.sweeper.sweep(true, || marks.find_in(&all))
    }

    fn recount(&self) -> Option<ProcSnapshot> {
        self.census.as_ref().and_then(Census::recount)
    }

    fn look_at_all(&mut self) -> ProcSnapshot {
        let (all, census) = Census::take(self.marks.since);
        self.census = census;
        all
    }

    fn gone(&mut self) -> TreeNews {
        self.end = TreePhase::Gone;
        self.known.clear();
        TreeNews::Gone
    }

    pub(crate) fn tidy(&mut self) {
        if let Some(leaf) = self.leaf.take_if(|_| self.end == TreePhase::Gone) {
            leaf.remove();
        }
    }

    fn members(&self) -> std::collections::BTreeSet<i32> {
        self.leaf.as_ref().map(CgroupLeaf::members).unwrap_or_default()
    }

    pub(crate) fn living(&self) -> Vec<ProcStat> {
        let marks = AttemptMarks {
            members: self.members(),
            ..self.marks.clone()
        };
        marks.find()
    }

    pub(crate) fn freeze(&mut self, frozen: bool) {
        if let Some(leaf) = &self.leaf
            && leaf.freeze(frozen).is_ok()
        {
            return;
        }
        let signal = if frozen { libc::SIGSTOP } else { libc::SIGCONT };
        // Twice: the second round finds what was forked during the first.
        for _ in 0..2 {
            for stat in self.living() {
                // A process that has exited or refuses the signal cannot be stopped anyway.
                let _ = signal_process(stat.proc_ref(), signal);
            }
        }
    }
}
