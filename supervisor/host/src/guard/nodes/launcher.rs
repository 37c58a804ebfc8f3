//! `supervise __nodes`: runs the one `srun` of a gang, and connects it with the relays.
//!
//! It is the guard's child, but does not belong to the attempt. When the guard kills the attempt's processes, every
//! relay's connection breaks, and the launcher ends the step: it closes `srun`'s input, then lets Slurm kill the
//! step. It exits when every node has reported that nothing is left there, or has been unreachable long enough to
//! have killed its ranks itself.

mod relays;

use super::lines::{FromNode, LINE, Splitter, ToNode};
use super::rank_windows::Windows;
use super::{BEAT_MS, FENCED_MS, LauncherOrder, NOT_BEGUN, SILENCE_MS, WORDS_AT, steps};
use crate::process::boottime_ms;
use crate::process::spawn::{SpawnProgram, SpawnWiring, close_inherited, start, take_standard};
use crate::process::tree::LAUNCHER_NAME;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use relays::Relays;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::spec::gang::silence_words;

/// All nodes must answer within this, or the launch fails: Slurm itself retries for a while.
const GATHERING_MS: u64 = 180_000;
/// Relays are started beside the launcher: one that has not connected within this never will.
const RELAYS_MS: u64 = 30_000;
const ENDING_MS: u64 = 20_000;
const LOOK_MS: u64 = 100;
/// A step that Slurm still lists is killed again after this.
const AGAIN: Duration = Duration::from_secs(2);

/// Runs until the step has ended. Standard input: the order; standard output: the shared memory; standard error: the
/// socket where relays connect.
#[must_use]
pub fn main() -> i32 {
    match Launcher::begin() {
        Ok(mut launcher) => {
            launcher.work();
            launcher.end();
            0
        }
        Err(_) => NOT_BEGUN,
    }
}

struct NodeLink {
    name: String,
    heard: u64,
    at: Option<u64>,
    gone: bool,
}

struct Launcher {
    order: LauncherOrder,
    env: BTreeMap<String, String>,
    counter: File,
    cpu_ms: u64,
    windows: Windows,
    relays: Relays,
    srun: Option<i32>,
    how: ExitStatus,
    input: Option<File>,
    unsent: VecDeque<u8>,
    output: Option<File>,
    errors: Option<File>,
    lines: Splitter,
    words: Splitter,
    nodes: BTreeMap<u32, NodeLink>,
    ordered: bool,
    began: u64,
    guard: Pid,
    beat_due: u64,
}

impl Launcher {
    fn begin() -> io::Result<Self> {
        close_inherited();
        crate::system::ignore_signals();
        let mut json = Vec::new();
        File::from(take_standard(0)?).read_to_end(&mut json)?;
        let order: LauncherOrder = serde_json::from_slice(&json)?;
        let counter = File::from(take_standard(1)?);
        let socket = UnixListener::from(take_standard(2)?);
        socket.set_nonblocking(true)?;
        let _ = nix::sys::prctl::set_name(LAUNCHER_NAME);
        let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        // Variables that would change `srun`'s behavior are left out.
        let env = variables.filter(|(k, _)| !k.starts_with("SRUN_")).collect();
        let count = order.nodes.saturating_mul(order.ranks.per_node);
        let now = boottime_ms();
        let mut launcher = Self {
            order,
            env,
            counter,
            cpu_ms: 0,
            windows: Windows::default(),
            relays: Relays::new(socket, count),
            srun: None,
            how: ExitStatus::Unknown,
            input: None,
            unsent: VecDeque::new(),
            output: None,
            errors: None,
            lines: Splitter::new(LINE),
            words: Splitter::new(LINE),
            nodes: BTreeMap::new(),
            ordered: false,
            began: now,
            guard: nix::unistd::getppid(),
            beat_due: now,
        };
        if let Err(e) = launcher.start_srun() {
            launcher
                .relays
                .say_all(&format!("supervise: srun cannot be started: {e}"));
        }
        Ok(launcher)
    }

    fn start_srun(&mut self) -> io::Result<()> {
        let (nodes, step) = (self.order.nodes, &self.order.step);
        let words = [
            "srun",
            "--overlap",
            "--input=all",
            "--export=ALL",
            "--mpi=none",
            "--cpu-bind=none",
            "--distribution=block",
            "--ntasks-per-node=1",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--chdir=/",
        ];
        let mut argv: Vec<String> = words.map(str::to_owned).to_vec();
        argv.extend([
            format!("--nodes={nodes}"),
            format!("--ntasks={nodes}"),
            format!("--nodelist={}", self.order.on.join(",")),
            format!("--job-name={step}"),
            self.order.exe.clone(),
            "__node".to_owned(),
        ]);
        let env: Vec<(String, String)> = self.env.clone().into_iter().collect();
        let program = SpawnProgram::new(&argv, &env, Some("/"))?;
        let (input, to_srun) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        crate::guard::log_queue::set_nonblocking(&to_srun)?;
        let (output, errors) = (crate::guard::setup::pipe()?, crate::guard::setup::pipe()?);
        let started = start(
            &program,
            &SpawnWiring {
                input: input.as_fd(),
                output: output.1.as_fd(),
                errors: errors.1.as_fd(),
                cgroup: None,
                dies_with_creator: true,
                gate: None,
            },
        )?;
        self.srun = Some(started.pid);
        self.input = Some(to_srun.into());
        let file = |fd: OwnedFd| Some(File::from(fd));
        (self.output, self.errors) = (file(output.0), file(errors.0));
        Ok(())
    }

    fn work(&mut self) {
        loop {
            let now = boottime_ms();
            self.look(now);
            let late = now >= self.began.saturating_add(RELAYS_MS);
            // A guard that was killed starts no more relays.
            if self.relays.are_gone(late) || nix::unistd::getppid() != self.guard {
                return;
            }
            self.wait(LOOK_MS);
        }
    }

    fn look(&mut self, now: u64) {
        for (rank, signal) in self.relays.hear() {
            self.tell(&ToNode::Signal { rank, signal });
        }
        self.read();
        self.reap();
        let everybody = usize::try_from(self.order.nodes).is_ok_and(|n| self.nodes.len() == n);
        if !self.ordered && everybody && self.relays.are_complete() {
            self.ordered = true;
            if let Ok(json) = serde_json::to_vec(&self.order.ranks) {
                self.tell(&ToNode::Order(json));
            }
        }
        if now >= self.beat_due {
            self.beat_due = now.saturating_add(BEAT_MS);
            // If heartbeats wait to be sent, one is as good as ten.
            if self.unsent.is_empty() {
                let heard = self.nodes.iter().filter_map(|(node, n)| Some((*node, n.at?)));
                let beat = ToNode::Beat(heard.collect());
                self.tell(&beat);
            }
        }
        self.flush();
        self.judge(now);
        self.relays.flush();
    }

    /// Gives up ranks whose exit will never be reported.
    fn judge(&mut self, now: u64) {
        if self.srun.is_none() && self.output.is_none() {
            let words = match self.ordered {
                true => format!("supervise: srun has ended ({:?}) before this rank did", self.how),
                false => format!("supervise: srun has ended ({:?}) before a rank was started", self.how),
            };
            return self.lose(None, &words);
        }
        if !self.ordered && now >= self.began.saturating_add(GATHERING_MS) {
            let here: Vec<&str> = self.nodes.values().map(|n| n.name.as_str()).collect();
            let words = format!(
                "supervise: {} of {} nodes answer ({}): the ranks are not started",
                here.len(),
                self.order.nodes,
                here.join(", ")
            );
            return self.lose(None, &words);
        }
        let is_lost = |n: &NodeLink| !n.gone && now >= n.heard.saturating_add(SILENCE_MS);
        let lost: Vec<(u32, String)> = self
            .nodes
            .iter()
            .filter(|(_, n)| is_lost(n))
            .map(|(node, n)| (*node, n.name.clone()))
            .collect();
        for (node, name) in lost {
            let words = format!("supervise: node {name} has said nothing for {} s", SILENCE_MS / 1000);
            self.lose(Some(node), &words);
        }
    }

    /// Tells the relays of a node, or of all nodes, that their ranks are lost.
    fn lose(&mut self, node: Option<u32>, words: &str) {
        let per_node = self.order.ranks.per_node;
        let all = 0..self.order.nodes.saturating_mul(per_node);
        for rank in all.filter(|rank| node.is_none_or(|node| rank / per_node == node)) {
            self.relays.lose(rank, words);
        }
    }

    fn tell(&mut self, said: &ToNode) {
        if self.input.is_some() {
            self.unsent.extend(said.line());
        }
    }

    fn flush(&mut self) {
        while let Some(input) = self.input.as_mut().filter(|_| !self.unsent.is_empty()) {
            let (first, _) = self.unsent.as_slices();
            match input.write(first) {
                Ok(n) => {
                    self.unsent.drain(..n);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
                Err(_) => self.input = None,
            }
        }
    }

    fn read(&mut self) {
        let mut buffer = [0_u8; 16 << 10];
        while self.relays.have_room() {
            let Some(n) = read_once(&mut self.output, &mut buffer) else {
                break;
            };
            for line in self.lines.push(buffer.get(..n).unwrap_or(&[])) {
                match FromNode::read(&line) {
                    Some(said) => self.on_node(said),
                    None => self.relays.print(0, &[line.as_slice(), b"\n"].concat()),
                }
            }
        }
        while let Some(n) = read_once(&mut self.errors, &mut buffer) {
            for line in self.words.push(buffer.get(..n).unwrap_or(&[])) {
                // The rank may have left an unfinished line, such as a progress bar.
                self.relays.print(0, &[b"\n", line.as_slice(), b"\n"].concat());
            }
        }
    }

    fn on_node(&mut self, said: FromNode) {
        let now = boottime_ms();
        match said {
            FromNode::Here { node, name } if node < self.order.nodes => {
                let heard = NodeLink {
                    name,
                    heard: now,
                    at: None,
                    gone: false,
                };
                self.nodes.insert(node, heard);
            }
            FromNode::Here { .. } => {}
            FromNode::Output { rank, bytes } => self.relays.print(rank, &bytes),
            FromNode::Exit { rank, status } => self.relays.end(rank, status),
            FromNode::Beat { node, at, cpu_ms } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    (node.heard, node.at) = (now, Some(at));
                    self.cpu_ms = self.cpu_ms.saturating_add(cpu_ms);
                    // Without it the ranks' CPU time is unknown; nothing else depends on it.
                    let _ = self.counter.write_at(&self.cpu_ms.to_le_bytes(), 0);
                }
            }
            FromNode::Pulse(told)
                if told.pulse.worker.0 < self.order.nodes.saturating_mul(self.order.ranks.per_node) =>
            {
                self.windows.add(told.pulse.worker.0 / self.order.ranks.per_node, told);
            }
            FromNode::Pulse(_) => {}
            FromNode::Window { node, over_ms, network } => {
                if let Some(known) = self.nodes.get(&node) {
                    self.windows.end(node, &known.name, now, over_ms, network);
                    // Without it no rank is judged.
                    let _ = self.windows.write(&self.counter);
                }
            }
            FromNode::Gone { node } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.gone = true;
                }
            }
        }
    }

    fn reap(&mut self) {
        let Some(pid) = self.srun else { return };
        self.how = match waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => ExitStatus::Code(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => ExitStatus::Signal(signal as i32),
            Ok(_) => return,
            Err(_) => ExitStatus::Unknown,
        };
        self.srun = None;
    }

    fn wait(&self, for_ms: u64) {
        let mut fds = Vec::new();
        let sources = [
            self.output.as_ref().filter(|_| self.relays.have_room()),
            self.errors.as_ref(),
        ];
        fds.extend(
            sources
                .into_iter()
                .flatten()
                .map(|f| PollFd::new(f.as_fd(), PollFlags::POLLIN)),
        );
        if let Some(input) = self.input.as_ref().filter(|_| !self.unsent.is_empty()) {
            fds.push(PollFd::new(input.as_fd(), PollFlags::POLLOUT));
        }
        self.relays.watch(&mut fds);
        let timeout = u16::try_from(for_ms).map_or(PollTimeout::ZERO, PollTimeout::from);
        let _ = poll(&mut fds, timeout);
    }

    fn wait_for(&self, what: &str) {
        let _ = self.counter.set_len(WORDS_AT);
        let _ = self.counter.write_at(what.as_bytes(), WORDS_AT);
    }

    /// Ends the step, and returns when nothing of it can be running on any node.
    fn end(&mut self) {
        self.input = None;
        self.wait_for(&format!("the end of Slurm's step {}", self.order.step));
        let until = boottime_ms().saturating_add(ENDING_MS);
        let is_at_work = |s: &Self| s.srun.is_some() || s.output.is_some() || s.relays.have_unwritten();
        while is_at_work(self) && boottime_ms() < until {
            self.read();
            self.reap();
            self.relays.flush();
            self.wait(LOOK_MS);
        }
        let all_said_so = usize::try_from(self.order.nodes).is_ok_and(|n| self.nodes.len() == n)
            && self.nodes.values().all(|n| n.gone);
        if self.srun.is_none() && (all_said_so || !self.ordered && self.nodes.is_empty()) {
            return;
        }
        // A node that Slurm has given up is not listed but may still be running: wait until it must have killed its
        // ranks, counted from its newest message. Steps listed after that are checked before the next launch.
        let silent = || self.nodes.values().filter(|n| self.ordered && !n.gone);
        let names: Vec<&str> = silent().map(|n| n.name.as_str()).collect();
        if !names.is_empty() {
            self.wait_for(&silence_words(&names));
        }
        let fenced = silent()
            .map(|n| n.heard)
            .max()
            .map_or(0, |heard| heard.saturating_add(FENCED_MS));
        while !steps::kill_those(&self.env, &|name| name == self.order.step).unwrap_or(false) && boottime_ms() < fenced
        {
            std::thread::sleep(AGAIN);
        }
        std::thread::sleep(Duration::from_millis(fenced.saturating_sub(boottime_ms())));
    }
}

/// Reads once without blocking; `None`: nothing has arrived. A source at its end is closed.
fn read_once(source: &mut Option<File>, buffer: &mut [u8]) -> Option<usize> {
    match source.as_mut()?.read(buffer) {
        Ok(n) if n > 0 => return Some(n),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
        _ => *source = None,
    }
    None
}
