//! Processes that belong to an attempt.
//!
//! Any of four marks is enough: descent from the guard, or from the keeper that outlives it (both are subreapers, so
//! orphans stay below them); being recorded with its start time; the inherited `SUPERVISE_ATTEMPT` in the
//! environment; and, for a process without an environment, being in a session that a recorded process led.
//! Descendants of a marked process are marked, too. This process and its ancestors never are.

use crate::address::{self, SocketRole};
use crate::process::stat::{ProcStat, proc_stat};
use crate::process::{ATTEMPT_VARIABLE, cgroup};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use supervise_core::id::{ProcRef, RunId};

/// Longest environment that is read: the kernel allows no longer one.
const ENVIRONMENT_LIMIT: u64 = 6 << 20;

pub(crate) const KEEPER_NAME: &std::ffi::CStr = c"supervise-keep";

/// Every process of the machine at (nearly) one moment, except kernel threads.
#[derive(Debug, Default)]
pub struct ProcSnapshot {
    by_pid: BTreeMap<i32, ProcStat>,
}

impl ProcSnapshot {
    /// Reads `/proc`.
    #[must_use]
    pub fn take() -> Self {
        let kernel = kernel_threads();
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Self::default();
        };
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self::of(pids.filter(|pid| !kernel.contains(pid)))
    }

    pub(crate) fn of(pids: impl IntoIterator<Item = i32>) -> Self {
        let stats = pids.into_iter().filter_map(proc_stat);
        Self {
            by_pid: stats.map(|stat| (stat.pid, stat)).collect(),
        }
    }

    /// The process with this PID.
    #[must_use]
    pub fn get(&self, pid: i32) -> Option<&ProcStat> {
        self.by_pid.get(&pid)
    }

    /// All processes, by PID.
    pub fn iter(&self) -> impl Iterator<Item = &ProcStat> {
        self.by_pid.values()
    }

    /// Adds to `marked` all descendants of `root` or of a marked process, except `except` and what is below them.
    fn close(&self, root: Option<i32>, marked: &mut BTreeSet<i32>, except: &BTreeSet<i32>) {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for stat in self.iter() {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
        let mut open: Vec<i32> = marked.iter().copied().chain(root).collect();
        while let Some(parent) = open.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if !except.contains(child) && marked.insert(*child) {
                    open.push(*child);
                }
            }
        }
    }

    fn ancestors(&self, pid: i32) -> BTreeSet<i32> {
        let mut seen = BTreeSet::new();
        let mut next = Some(pid);
        while let Some(pid) = next.filter(|p| *p > 0 && seen.insert(*p)) {
            next = self.get(pid).map(|s| s.ppid);
        }
        seen
    }
}

/// What marks a process as one of the attempt's.
#[derive(Debug, Clone, Default)]
pub struct AttemptMarks {
    pub root: Option<i32>,
    pub recorded: BTreeSet<ProcRef>,
    /// Members of the sessions that these led, if they show no environment; only with `tag`.
    pub leaders: BTreeSet<ProcRef>,
    /// Prefix of the value of `SUPERVISE_ATTEMPT`.
    pub tag: Option<String>,
    /// Members of a cgroup, by PID.
    pub members: BTreeSet<i32>,
    /// Never these, nor processes that only descend from them.
    pub except: BTreeSet<i32>,
    /// Only processes started at this clock tick or later can belong to the attempt.
    pub since: u64,
}

impl AttemptMarks {
    /// The running processes that carry a mark.
    #[must_use]
    pub fn find(&self) -> Vec<ProcStat> {
        self.find_in(&ProcSnapshot::take())
    }

    /// The running processes of a snapshot that carry a mark.
    #[must_use]
    pub fn find_in(&self, all: &ProcSnapshot) -> Vec<ProcStat> {
        let own = nix::unistd::getpid().as_raw();
        let mut except = all.ancestors(own);
        except.extend(&self.except);
        let mut marked = BTreeSet::new();
        all.close(self.root, &mut marked, &except);
        // Descendants of the root need no further check.
        let more: Vec<i32> = all
            .iter()
            .filter(|s| !except.contains(&s.pid) && !marked.contains(&s.pid))
            .filter(|s| self.is_marked(s, all))
            .map(|s| s.pid)
            .collect();
        if !more.is_empty() {
            marked.extend(more);
            all.close(None, &mut marked, &except);
        }
        marked
            .iter()
            .filter_map(|pid| all.get(*pid))
            .filter(|s| s.is_running())
            .copied()
            .collect()
    }

    fn is_marked(&self, stat: &ProcStat, all: &ProcSnapshot) -> bool {
        if self.recorded.contains(&stat.proc_ref()) || self.members.contains(&stat.pid) {
            return true;
        }
        let Some(tag) = self.tag.as_deref().filter(|_| stat.start >= self.since) else {
            return false;
        };
        match origin(stat.pid) {
            ProcessOrigin::Attempt(value) => value.starts_with(tag),
            ProcessOrigin::Bare => self.is_in_session(stat, all),
            ProcessOrigin::Other => false,
        }
    }

    /// A session id can be reused only after its last member has exited, which is proven if a running leader started
    /// at another time. If no leader is running, another session may have had the id since; so this counts only for a
    /// process without an environment that shows its origin.
    fn is_in_session(&self, stat: &ProcStat, all: &ProcSnapshot) -> bool {
        let Some(leader) = self.leaders.iter().find(|l| l.pid == stat.session) else {
            return false;
        };
        let reused = all.get(leader.pid).is_some_and(|now| now.start != leader.start);
        !reused && stat.start >= leader.start
    }
}

/// What a process's initial environment shows about its origin.
#[derive(Debug, PartialEq, Eq)]
enum ProcessOrigin {
    Attempt(String),
    /// No environment: it was started without one, or has overwritten it.
    Bare,
    Other,
}

fn origin(pid: i32) -> ProcessOrigin {
    let mut bytes = Vec::new();
    let read =
        File::open(format!("/proc/{pid}/environ")).and_then(|f| f.take(ENVIRONMENT_LIMIT).read_to_end(&mut bytes));
    match read {
        Ok(_) => origin_of(&bytes),
        Err(_) => ProcessOrigin::Other,
    }
}

fn origin_of(environment: &[u8]) -> ProcessOrigin {
    let mut bare = true;
    for entry in environment.split(|b| *b == 0) {
        if let Some(value) = entry
            .strip_prefix(ATTEMPT_VARIABLE.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
        {
            return ProcessOrigin::Attempt(String::from_utf8_lossy(value).into_owned());
        }
        bare &= !["PATH=", "HOME=", "PWD="]
            .iter()
            .any(|usual| entry.starts_with(usual.as_bytes()));
    }
    if bare {
        ProcessOrigin::Bare
    } else {
        ProcessOrigin::Other
    }
}

/// The running descendants of a process, without itself.
#[must_use]
pub fn list_descendants(pid: i32) -> Vec<ProcRef> {
    let all = ProcSnapshot::take();
    let mut found = BTreeSet::new();
    all.close(Some(pid), &mut found, &BTreeSet::new());
    found
        .iter()
        .filter_map(|pid| all.get(*pid))
        .filter(|s| s.is_running())
        .map(ProcStat::proc_ref)
        .collect()
}

/// Returns true if the process is a guard's log writer: it belongs to no attempt, exits once it has written what it
/// was given, and must be spared when a dead guard's children are killed.
#[must_use]
pub fn is_log_writer(pid: i32) -> bool {
    crate::process::stat::command_head(pid) == "supervise __log_writer"
}

/// Returns true if the process reads network card counters for a guard (see [`crate::guard::fabric`]). It dies with
/// its guard; if a card hangs, it cannot be killed sooner, so nothing waits for it.
pub(crate) fn is_card_reader(pid: i32) -> bool {
    crate::process::stat::command_head(pid).starts_with("supervise __fabric ")
}

pub(crate) const LAUNCHER_NAME: &std::ffi::CStr = c"supervise-nodes";

/// Returns true if the process is the launcher of a gang's step. Sweeps spare it and its children: it ends the nodes'
/// ranks once its guard has exited, and only it receives the nodes' report that nothing is left there.
pub(crate) fn is_launcher(pid: i32) -> bool {
    has_launchers_name(pid)
        && crate::process::stat::command_line(pid).is_some_and(|words| words.get(1).is_some_and(|w| w == "__nodes"))
}

/// Returns true if it has a launcher's name, even for a zombie.
pub(crate) fn has_launchers_name(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == LAUNCHER_NAME.to_bytes())
}

/// Removes processes that belong to no attempt and exit on their own: log writers, card readers, node launchers, and
/// their children.
pub fn spare_helpers(found: &mut Vec<ProcRef>) {
    let launchers = found.iter().filter(|p| is_launcher(p.pid));
    let below: BTreeSet<ProcRef> = launchers.flat_map(|p| list_descendants(p.pid)).collect();
    found.retain(|p| !is_log_writer(p.pid) && !is_card_reader(p.pid) && !is_launcher(p.pid) && !below.contains(p));
}

/// Helpers of the supervisor `me` that exit on their own, with their children: they collect evidence, send
/// notifications and sample GPUs.
#[must_use]
pub fn own_helpers(me: i32) -> Vec<ProcRef> {
    let word = |pid| crate::process::stat::command_line(pid).and_then(|words| words.into_iter().nth(1));
    let helps = |pid: &i32| {
        word(*pid).is_some_and(|w| w == "__evidence" || w == "__notify" || w == supervise_core::event::gpu::FOLLOW)
    };
    let all = children(me).unwrap_or_default().into_iter().filter(helps);
    all.flat_map(|pid| {
        proc_stat(pid)
            .map(|s| s.proc_ref())
            .into_iter()
            .chain(list_descendants(pid))
    })
    .collect()
}

/// Returns true if the process is a keeper (see [`crate::guard`]) that still has descendants. Sweeps spare it,
/// because without it, they could not be told from unrelated processes.
pub(crate) fn keeps(pid: i32) -> bool {
    is_keeper(pid) && children(pid).is_some_and(|list| !list.is_empty())
}

fn is_keeper(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == KEEPER_NAME.to_bytes())
        && crate::process::stat::command_line(pid).is_some_and(|words| words.get(1).is_some_and(|w| w == "__guard"))
}

fn keeper(run: &RunId) -> Option<ProcRef> {
    if address::lives(run, SocketRole::Guard) {
        return None;
    }
    let (_, stream) = address::find(run, SocketRole::Keeper).ok()??;
    let stat = proc_stat(address::peer(&stream)?)?;
    is_keeper(stat.pid).then(|| stat.proc_ref())
}

/// The children of a process's first thread, oldest first, including zombies. `None`: it has exited, or this kernel
/// keeps no such list.
///
/// An empty list is certain; a longer one may change while it is read.
pub(crate) fn children(pid: i32) -> Option<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Some(
        text.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect(),
    )
}

/// Kernel threads, which belong to no attempt and outnumber everything else on machines with many CPUs. Empty if they
/// cannot be seen. None of their PIDs is reused while the rest is read: that would take a full wraparound.
fn kernel_threads() -> HashSet<i32> {
    const PARENT: i32 = 2;
    let is_seen = proc_stat(PARENT).is_some_and(|s| s.is_kernel);
    let all = is_seen.then(|| children(PARENT)).flatten();
    all.unwrap_or_default().into_iter().collect()
}

/// The running children of this process, except some. `None`: this kernel keeps no list of children.
///
/// Only for a single-threaded process that reaps its children itself and adopts orphans: then an empty answer is
/// certain, however fast its descendants fork. Every running descendant is below a running child; a child that exits
/// passes its own children on at the same moment, to the end of the list; and the list was the same when read twice.
/// It never is the same while a process of `except` keeps forking: those must be known not to.
pub(crate) fn running_children(except: impl Fn(i32) -> bool) -> Option<Vec<i32>> {
    let own = nix::unistd::getpid().as_raw();
    let mut list = children(own)?;
    // They keep their PIDs until they are reaped, and are not read again: a fork loop leaves thousands.
    let mut ended = BTreeSet::new();
    loop {
        let mut running = Vec::new();
        for pid in &list {
            match (!ended.contains(pid)).then(|| proc_stat(*pid)).flatten() {
                Some(stat) if !stat.is_running() => {
                    ended.insert(*pid);
                }
                Some(_) if !except(*pid) => running.push(*pid),
                _ => {}
            }
        }
        if !running.is_empty() {
            return Some(running);
        }
        let after = children(own)?;
        if after == list {
            return Some(running);
        }
        list = after;
    }
}

/// Processes left of a run's earlier attempts on this machine, without the help of a running guard.
///
/// `recorded` are workers and descendants recorded by a guard of *this boot*: those of another boot must not be
/// passed, nor any from files that fail the check in [`crate::ownership`]. A caller that kills what is found acts for
/// the run's owner only: root kills no process because a user's file names it. The result contains the keeper of a
/// guard that has exited, recorded processes that are running, processes in their sessions that hide their
/// environment, processes in the run's cgroups, processes that carry the run's tag, and all descendants of these.
/// Helpers that exit on their own are excluded: see [`spare_helpers`].
#[must_use]
pub fn find_attempt_processes(run: &RunId, recorded: &[ProcRef]) -> Vec<ProcRef> {
    let marks = AttemptMarks {
        recorded: recorded.iter().copied().chain(keeper(run)).collect(),
        leaders: recorded.iter().copied().collect(),
        tag: Some(format!("{run}/")),
        members: cgroup::members_of_run(run),
        ..AttemptMarks::default()
    };
    let mut found = marks.find().iter().map(ProcStat::proc_ref).collect();
    spare_helpers(&mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, ppid: i32, session: i32, start: u64) -> ProcStat {
        ProcStat {
            is_kernel: false,
            pid,
            state: b'S',
            ppid,
            group: session,
            session,
            cpu: 0,
            faults: 0,
            threads: 1,
            start,
        }
    }

    fn snapshot(stats: &[ProcStat]) -> ProcSnapshot {
        ProcSnapshot {
            by_pid: stats.iter().map(|s| (s.pid, *s)).collect(),
        }
    }

    fn pids(found: &[ProcStat]) -> Vec<i32> {
        found.iter().map(|s| s.pid).collect()
    }

    // PIDs larger than any on Linux, so that no running process interferes.
    const P: i32 = 5_000_000;

    #[test]
    fn threads_of_the_kernel_are_left_out_and_nothing_else() {
        let seen: BTreeSet<i32> = ProcSnapshot::take().iter().map(|s| s.pid).collect();
        let listed = std::fs::read_dir("/proc").unwrap().flatten();
        let listed = listed.filter_map(|e| e.file_name().to_str()?.parse().ok());
        let here: Vec<ProcStat> = listed.filter_map(proc_stat).collect();
        let before = crate::process::own_ref().start;
        for stat in here.iter().filter(|s| !s.is_kernel && s.start <= before) {
            assert!(seen.contains(&stat.pid), "{stat:?}");
        }
        let kernel = here.iter().filter(|s| s.is_kernel && s.pid != 2 && s.start <= before);
        let seen_of_kernel = kernel.filter(|s| seen.contains(&s.pid)).count();
        // A list that changes while it is read may be incomplete; a kernel without such a list excludes none.
        assert!(seen_of_kernel <= 2 || children(2).is_none(), "{seen_of_kernel}");
    }

    #[test]
    fn descent_is_followed_and_exceptions_are_not() {
        let all = snapshot(&[
            stat(P, 1, P, 10),
            stat(P + 1, P, P, 11),
            stat(P + 2, P + 1, P, 12),
            stat(P + 3, P, P, 13),
            stat(P + 4, P + 3, P, 14),
        ]);
        let marks = AttemptMarks {
            root: Some(P),
            except: [P + 3].into(),
            ..AttemptMarks::default()
        };
        assert_eq!(pids(&marks.find_in(&all)), [P + 1, P + 2]);
    }

    #[test]
    fn a_reused_number_is_not_the_recorded_process() {
        let all = snapshot(&[stat(P, 1, P, 10)]);
        let mut marks = AttemptMarks {
            recorded: [ProcRef { pid: P, start: 9 }].into(),
            ..AttemptMarks::default()
        };
        assert!(marks.find_in(&all).is_empty());
        marks.recorded.insert(ProcRef { pid: P, start: 10 });
        assert_eq!(pids(&marks.find_in(&all)), [P]);
    }

    #[test]
    fn a_session_outlives_its_leader_but_not_a_reused_number() {
        let leader = ProcRef { pid: P, start: 10 };
        let marks = AttemptMarks {
            leaders: [leader].into(),
            ..AttemptMarks::default()
        };
        let orphan = stat(P + 1, 1, P, 20);
        assert!(marks.is_in_session(&orphan, &snapshot(&[orphan])));
        let reused = stat(P, 1, P, 15);
        assert!(!marks.is_in_session(&orphan, &snapshot(&[orphan, reused])));
        let older = stat(P + 1, 1, P, 5);
        assert!(!marks.is_in_session(&older, &snapshot(&[older])));
    }

    #[test]
    fn an_environment_tells_where_a_process_is_from() {
        let tagged = b"PATH=/bin\0SUPERVISE_ATTEMPT=ab/1/2\0";
        assert_eq!(origin_of(tagged), ProcessOrigin::Attempt("ab/1/2".into()));
        assert_eq!(origin_of(b"PATH=/bin\0HOME=/\0"), ProcessOrigin::Other);
        assert_eq!(origin_of(b"XSUPERVISE_ATTEMPT=ab/1/2\0PWD=/\0"), ProcessOrigin::Other);
        assert_eq!(origin_of(b""), ProcessOrigin::Bare);
        assert_eq!(origin_of(&[0; 4096]), ProcessOrigin::Bare);
    }

    #[test]
    fn this_process_and_its_ancestors_are_never_found() {
        let parent = nix::unistd::getppid().as_raw();
        let own = crate::process::own_ref();
        let marks = AttemptMarks {
            recorded: [own].into(),
            members: [parent].into(),
            ..AttemptMarks::default()
        };
        assert!(marks.find().iter().all(|s| s.pid != own.pid));
        assert!(marks.find().iter().all(|s| s.pid != parent));
    }
}
