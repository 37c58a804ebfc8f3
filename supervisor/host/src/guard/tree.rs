//! The attempt's processes: who they are, what they use, and their end.
//!
//! The guard is a subreaper, so descent from it finds whatever the workers left behind. Looking through `/proc`
//! is paced by what it costs: at most a two-thousandth of the time. At an end only what was started since the guard is read.

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

/// How long what workers left behind may take to end by itself.
const LEFTOVERS_MS: u64 = 2000;

/// How long after SIGKILL a process counts as one that cannot be killed.
const UNKILLABLE_MS: u64 = 5000;

/// Right after a kill, its end is looked for by the guard's children alone.
const QUICK_MS: u64 = 50;

/// Pause between looks for new descendants: the first, and the least later on.
const FIRST_WALK_MS: u64 = 250;
const WALK_MS: u64 = 5000;

/// A walk may take one part in this many of the time.
const WALK_SHARE: u64 = 2000;

/// Known descendants: more are not written down.
const KNOWN_LIMIT: usize = 16_384;

/// Place of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreePhase {
    /// Workers run.
    Running,
    /// All workers ended; what is left has until then.
    Leftovers { due: u64 },
    /// Being killed.
    Killing { since: u64, next: u64, told: bool },
    /// Nothing is left.
    Gone,
}

/// News of the tree's end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeNews {
    Gone,
    Unkillable(Vec<ProcRef>),
}

/// All processes of the attempt.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pub(crate) end: TreePhase,
    leaf: Option<CgroupLeaf>,
    marks: AttemptMarks,
    sweeper: Sweeper,
    /// Children that were reaped while others were killed: the guard has not heard of them yet.
    reaped: Vec<(i32, ExitStatus)>,
    /// The last look through everything.
    census: Option<Census>,
    /// Descendants by number: start time and the CPU time last seen.
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

    /// Descendants that are known.
    pub(crate) fn size(&self) -> usize {
        self.known.len()
    }

    /// Child processes of the guard that are not the attempt's.
    pub(crate) fn except(&mut self, pids: impl IntoIterator<Item = i32>) {
        self.marks.except = pids.into_iter().collect();
    }

    /// The leaf is used only where every worker is in it.
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

    /// Children that ended and were reaped here, in that order; each is told once.
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

    /// Something happened that makes new descendants likely.
    pub(crate) fn walk_soon(&mut self, now: u64) {
        self.walk_at = self.walk_at.min(now);
    }

    /// Something is looked for that must not be missed: whatever a walk costs, the next comes after this pause.
    pub(crate) fn hurry(&mut self, most: Option<u64>) {
        self.hurry = most;
    }

    /// Returns true if [`Self::walk`] looks now.
    pub(crate) fn is_walk_due(&self, now: u64) -> bool {
        now >= self.walk_at && self.end == TreePhase::Running
    }

    /// Everything seen so far that may still live.
    pub(crate) fn known_pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.known.keys().copied()
    }

    /// Looks for descendants nobody has seen yet.
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

    /// Remembers what it did not know yet, and returns it.
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

    /// CPU time used since the last call, in milliseconds.
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

    /// Every worker has ended: what is left gets a moment.
    pub(crate) fn workers_ended(&mut self, now: u64) {
        if self.end == TreePhase::Running {
            self.end = TreePhase::Leftovers {
                due: now.saturating_add(LEFTOVERS_MS),
            };
        }
    }

    /// Begins to kill.
    pub(crate) fn kill(&mut self, now: u64) {
        if matches!(self.end, TreePhase::Running | TreePhase::Leftovers { .. }) {
            self.end = TreePhase::Killing {
                since: now,
                next: now,
                told: false,
            };
        }
    }

    /// Goes on with the end. `stirred`: a child ended just now, so that a look is worth it before its time.
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
        // A descendant of the guard needs no look through `/proc` to be known as alive: as long as it dies, what it
        // leaves behind becomes a child here, and is killed by the next round.
        self.strike();
        if now < since.saturating_add(QUICK_MS) && !self.is_childless() {
            // Time for the look that the sweeps begin with.
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
        // Most die within milliseconds; what frees a GPU takes longer; what hangs in the kernel is watched.
        let pause = (lasting / 8).clamp(2, if told { 1000 } else { 100 });
        self.end = TreePhase::Killing {
            since,
            next: now.saturating_add(pause),
            told: told || tell,
        };
        tell.then(|| TreeNews::Unkillable(left.iter().map(ProcStat::proc_ref).collect()))
    }

    /// Nothing runs below the guard but what is not the attempt's, for certain; also where that cannot be read: then
    /// looks through `/proc` decide.
    fn is_childless(&self) -> bool {
        let none = running_children(|pid| self.marks.except.contains(&pid)).is_none_or(|left| left.is_empty());
        none && self.members().is_empty()
    }

    /// Kills what is in the leaf, and the children.
    fn strike(&mut self) {
        if let Some(leaf) = &self.leaf {
            // Refused only where the leaf is gone; the rest does the same.
            let _ = leaf.kill();
        }
        // A process that forks faster than `/proc` can be read is caught among the children, or not at all.
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

    /// Removes what is left of it once its end was told.
    pub(crate) fn tidy(&mut self) {
        if let Some(leaf) = self.leaf.take_if(|_| self.end == TreePhase::Gone) {
            leaf.remove();
        }
    }

    fn members(&self) -> std::collections::BTreeSet<i32> {
        self.leaf.as_ref().map(CgroupLeaf::members).unwrap_or_default()
    }

    /// Every living process of the attempt.
    pub(crate) fn living(&self) -> Vec<ProcStat> {
        let marks = AttemptMarks {
            members: self.members(),
            ..self.marks.clone()
        };
        marks.find()
    }

    /// Stops everything, or lets it go on.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        if let Some(leaf) = &self.leaf
            && leaf.freeze(frozen).is_ok()
        {
            return;
        }
        let signal = if frozen { libc::SIGSTOP } else { libc::SIGCONT };
        // Twice: what was forked while the first round went on is found by the second.
        for _ in 0..2 {
            for stat in self.living() {
                // What is gone or refuses cannot be stopped anyway.
                let _ = signal_process(stat.proc_ref(), signal);
            }
        }
    }
}
