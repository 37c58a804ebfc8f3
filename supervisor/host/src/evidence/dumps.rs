//! Python stacks, written by the processes themselves as they exit: they are to be killed anyway.
//!
//! An interpreter with a handler of faulthandler (`PYTHONFAULTHANDLER`) writes the stack of each of its threads on
//! SIGABRT, and exits. First all processes of the attempt are stopped, so that none notices another's exit and runs
//! its next command or reports a lost connection. Then the processes that share an output are asked one after the
//! other. What does not answer in time is left to the kill that follows.

use super::EvidenceOrder;
use crate::process::kill::{abort, signal_process};
use crate::process::stat::proc_stat;
use crate::process::tree::ProcSnapshot;
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use supervise_core::id::{ProcRef, WorkerId};
use supervise_core::observe::stacks::{RankProcess, RankStack, Stacks, read, telling};

const PROCESSES: usize = 128;
const DEPTH: u64 = 64;
/// Time for an interpreter to exit, even on a busy machine, and for its output to reach the file.
const ONE: Duration = Duration::from_secs(4);
const WRITTEN: Duration = Duration::from_millis(1000);
const ALL: Duration = Duration::from_secs(6);
/// Its output is complete after this long without new bytes.
const QUIET: Duration = Duration::from_millis(30);
const LOOK: Duration = Duration::from_millis(3);
const DUMP: u64 = 256 << 10;
/// Every dump of faulthandler has this.
const DUMPED: &str = "(most recent call first)";

#[derive(Debug, Default)]
pub(super) struct Dumps {
    pub(super) stacks: Stacks,
    pub(super) text: String,
}

struct DumpTarget {
    proc: ProcRef,
    who: RankProcess,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
enum Outlet {
    /// To a file, opened by this process.
    File(PathBuf),
    /// To the guard, as the output of a worker.
    Worker(u32),
}

/// Interpreters of an attempt that answer SIGABRT with a dump, by PID.
pub(super) fn answering(procs: &[ProcRef]) -> Vec<ProcRef> {
    let wanted = |p: &&ProcRef| is_python(p.pid) && catches_abort(p.pid);
    procs.iter().filter(wanted).take(PROCESSES).copied().collect()
}

/// Aborts them and reads what they write. `all`: every process of the attempt, except those that watch it.
pub(super) fn take(order: &EvidenceOrder, all: &[ProcRef], answering: &[ProcRef]) -> Dumps {
    if answering.is_empty() || !is_wanted() {
        return Dumps::default();
    }
    let snapshot = ProcSnapshot::take();
    let mut by_outlet: BTreeMap<Outlet, Vec<DumpTarget>> = BTreeMap::new();
    for proc in answering {
        if let Some((worker, depth)) = worker_of(*proc, order, &snapshot) {
            let who = RankProcess {
                worker: WorkerId(worker),
                pid: proc.pid,
                depth,
            };
            let interpreter = DumpTarget { proc: *proc, who };
            by_outlet.entry(outlet(proc.pid, worker)).or_default().push(interpreter);
        }
    }
    let until = Instant::now() + ALL;
    for proc in all {
        // A process that has exited needs no signal; one that refuses is killed like all others.
        let _ = signal_process(*proc, libc::SIGSTOP);
    }
    let answers: Vec<(RankProcess, String)> = std::thread::scope(|scope| {
        let ask = |(outlet, mut list): (Outlet, Vec<DumpTarget>)| {
            list.sort_by_key(|i| (i.who.depth, i.proc.pid));
            scope.spawn(move || ask_all(order, all, &outlet, &list, until))
        };
        let threads: Vec<_> = by_outlet.into_iter().map(ask).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).flatten().collect()
    });
    put_together(order, answers)
}

fn put_together(order: &EvidenceOrder, answers: Vec<(RankProcess, String)>) -> Dumps {
    let mut stands = Vec::new();
    let mut text = String::new();
    for (who, dump) in answers {
        let safe = supervise_config::redact_lines(dump.lines()).join("\n");
        if let Some(frames) = telling(&read(&safe)) {
            stands.push(RankStack {
                who,
                frames: frames.to_vec(),
            });
        }
        text.push_str(&format!(
            "python, process {} of worker {}\n{}\n\n",
            who.pid,
            who.worker,
            safe.trim()
        ));
    }
    let workers: Vec<WorkerId> = (0..).take(order.workers.len()).map(WorkerId).collect();
    Dumps {
        stacks: Stacks::of(stands, &workers),
        text,
    }
}

/// Returns true if the supervisor still holds our input: otherwise nothing has decided that they are killed.
fn is_wanted() -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
}

fn is_python(pid: i32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = exe.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy")
}

fn catches_abort(pid: i32) -> bool {
    let mut status = String::new();
    let read = File::open(format!("/proc/{pid}/status")).and_then(|f| f.take(16 << 10).read_to_string(&mut status));
    let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    read.is_ok() && mask.is_some_and(|mask| mask >> (libc::SIGABRT - 1) & 1 == 1)
}

fn worker_of(proc: ProcRef, order: &EvidenceOrder, all: &ProcSnapshot) -> Option<(u32, u64)> {
    let mut pid = proc.pid;
    for depth in 0..DEPTH {
        if let Some(at) = order.workers.iter().position(|w| w.pid == pid) {
            return Some((u32::try_from(at).ok()?, depth));
        }
        pid = all.get(pid).map(|s| s.ppid).filter(|p| *p > 1)?;
    }
    None
}

fn outlet(pid: i32, worker: u32) -> Outlet {
    let fd = PathBuf::from(format!("/proc/{pid}/fd/2"));
    let is_file = fs::metadata(&fd).is_ok_and(|m| m.is_file());
    match fs::read_link(&fd) {
        Ok(path) if is_file => Outlet::File(path),
        _ => Outlet::Worker(worker),
    }
}

fn ask_all(
    order: &EvidenceOrder,
    all: &[ProcRef],
    outlet: &Outlet,
    list: &[DumpTarget],
    until: Instant,
) -> Vec<(RankProcess, String)> {
    let mut out = Vec::new();
    for one in list {
        if Instant::now() >= until {
            break;
        }
        let path = match outlet {
            // By its descriptor: the path may be in another root, or deleted.
            Outlet::File(_) => PathBuf::from(format!("/proc/{}/fd/2", one.proc.pid)),
            Outlet::Worker(n) => worker_log(order, *n).into(),
        };
        let mut written = FileTail::from_now(&path);
        for_each_reader(one.proc.pid, all, |reader| {
            // If it refuses, it does not forward the dump.
            let _ = signal_process(reader, libc::SIGCONT);
        });
        if !matches!(abort(one.proc), Ok(true)) {
            continue;
        }
        let ended = wait(ONE.min(until.saturating_duration_since(Instant::now())), || {
            is_gone(one.proc)
        });
        // The dump comes before the exit, which takes long on a busy machine. A handler of its own may write anything, or
        // nothing: that is not waited for.
        if !ended && !written.read(None).contains(DUMPED) {
            continue;
        }
        let text = written.read_all(matches!(outlet, Outlet::Worker(_)).then_some(path.as_path()));
        out.push((one.who, text));
    }
    out
}

/// Calls `go_on` for the processes that read another's standard error through a pipe, such as `tee`: they were
/// stopped, too.
fn for_each_reader(pid: i32, all: &[ProcRef], go_on: impl Fn(ProcRef)) {
    let end = |pid: i32, fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok();
    let pipe = end(pid, 2).filter(|p| p.as_os_str().as_encoded_bytes().starts_with(b"pipe:"));
    let Some(pipe) = pipe else { return };
    let reads = |p: &&ProcRef| p.pid != pid && end(p.pid, 0).as_ref() == Some(&pipe);
    all.iter().filter(reads).copied().for_each(go_on);
}

fn worker_log(order: &EvidenceOrder, worker: u32) -> Utf8PathBuf {
    order.attempt.join(format!("worker-{worker}.log"))
}

fn is_gone(proc: ProcRef) -> bool {
    proc_stat(proc.pid).is_none_or(|s| s.start != proc.start || !s.is_running())
}

fn wait(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !done() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

struct FileTail {
    file: Option<File>,
    at: u64,
}

impl FileTail {
    fn from_now(path: &Path) -> Self {
        let file = File::open(path).ok();
        let at = file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        Self { file, at }
    }

    /// Everything new, once nothing more arrives. `again`: the file may have been replaced.
    fn read_all(&mut self, again: Option<&Path>) -> String {
        let (mut text, mut since) = (self.read(again), Instant::now());
        wait(WRITTEN, || {
            let now = self.read(again);
            if now.len() != text.len() {
                (text, since) = (now, Instant::now());
            }
            text.contains(DUMPED) && since.elapsed() >= QUIET
        });
        text
    }

    fn read(&mut self, again: Option<&Path>) -> String {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file
            && file.seek(SeekFrom::Start(self.at)).is_ok()
        {
            // What cannot be read is treated as not written.
            let _ = file.take(DUMP).read_to_end(&mut bytes);
        }
        let state = |f: &File| f.metadata().ok().map(|m| (m.dev(), m.ino()));
        if let Some(new) = again.and_then(|path| File::open(path).ok())
            && self.file.as_ref().and_then(state) != state(&new)
        {
            let _ = new.take(DUMP).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_interpreter_says_where_it_stands_and_leaves_no_core() {
        let dir = tempfile::tempdir().unwrap();
        let program =
            "import signal, sys, time\ndef stands():\n    sys.stderr.write('up\\n')\n    time.sleep(600)\nstands()\n";
        let script = dir.path().join("train.py");
        fs::write(&script, program).unwrap();
        let start = |log: &Path, handler: &str| {
            let errors = File::create(log).unwrap();
            let mut command = Command::new("python3");
            command.arg(&script).env("PYTHONFAULTHANDLER", handler).stderr(errors);
            command.current_dir(dir.path()).stdout(Stdio::null()).spawn().unwrap()
        };
        let (log, other) = (dir.path().join("a.log"), dir.path().join("b.log"));
        let (mut child, mut deaf) = (start(&log, "1"), start(&other, ""));
        let proc = |child: &std::process::Child| proc_stat(i32::try_from(child.id()).unwrap()).unwrap().proc_ref();
        let up = |log: &Path| fs::read_to_string(log).is_ok_and(|t| t.contains("up"));
        assert!(wait(Duration::from_secs(60), || up(&log) && up(&other)));
        let workers = vec![proc(&child), proc(&deaf)];
        let order = super::super::tests::order(dir.path().to_str().unwrap().into(), workers.clone());
        let asked = answering(&workers);
        assert_eq!(asked, workers[..1]);
        let interpreter = DumpTarget {
            proc: workers[0],
            who: RankProcess {
                worker: WorkerId(0),
                pid: workers[0].pid,
                depth: 0,
            },
        };
        // It answers even though it is stopped.
        signal_process(workers[0], libc::SIGSTOP).unwrap();
        let place = outlet(workers[0].pid, 0);
        let until = Instant::now() + Duration::from_secs(60);
        let answers = ask_all(&order, &workers, &place, &[interpreter], until);
        let dumps = put_together(&order, answers);
        let words = dumps.stacks.named().unwrap_or_default();
        assert!(
            // It may be stopped before it leaves the line that prints.
            words.contains("stands in stands (") && (words.contains("train.py:3)") || words.contains("train.py:4)")),
            "{words}: {}",
            dumps.text
        );
        assert_eq!(dumps.stacks.silent, [WorkerId(1)]);
        use std::os::unix::process::ExitStatusExt;
        let status = child.wait().unwrap();
        assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGABRT), false));
        assert!(deaf.try_wait().unwrap().is_none());
        deaf.kill().unwrap();
        deaf.wait().unwrap();
    }

    /// A launcher that saves its workers' output: `worker 2>&1 | tee -a worker.log`.
    #[test]
    fn what_is_passed_on_by_a_process_that_was_stopped_arrives() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("worker-0.log");
        let mut tee = Command::new("tee")
            .arg("-a")
            .arg(&log)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let program = "import sys, time\nsys.stderr.write('up\\n')\ntime.sleep(600)\n";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .env("PYTHONFAULTHANDLER", "1")
            .stderr(tee.stdin.take().unwrap())
            .spawn()
            .unwrap();
        let proc = |child: &std::process::Child| proc_stat(i32::try_from(child.id()).unwrap()).unwrap().proc_ref();
        let all = [proc(&child), proc(&tee)];
        assert!(wait(Duration::from_secs(60), || {
            fs::read_to_string(&log).is_ok_and(|t| t.contains("up"))
        }));
        let order = super::super::tests::order(dir.path().to_str().unwrap().into(), all[..1].to_vec());
        for proc in all {
            signal_process(proc, libc::SIGSTOP).unwrap();
        }
        let who = RankProcess {
            worker: WorkerId(0),
            pid: all[0].pid,
            depth: 0,
        };
        let interpreter = DumpTarget { proc: all[0], who };
        let until = Instant::now() + Duration::from_secs(60);
        let answers = ask_all(&order, &all, &outlet(all[0].pid, 0), &[interpreter], until);
        assert!(answers[0].1.contains("(most recent call first)"), "{answers:?}");
        child.wait().unwrap();
        tee.wait().unwrap();
    }
}
