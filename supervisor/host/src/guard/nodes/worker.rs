//! `supervise __node`: the parent of the ranks of one node. It is the direct child of Slurm's step daemon, reports
//! the ranks' output and exits, and kills the ranks when it is told to, when its output has no reader any more, or
//! when it has received nothing for too long.
//!
//! Standard output is non-blocking: a node that is cut off must still act in time.

use super::lines::{FromNode, PIECE, Splitter, ToNode};
use super::rank_windows::RankPulse;
use super::{ANSWER_MS, ORDER_LIMIT, RanksOrder, SILENCE_MS};
use crate::guard::counters::{RankCounter, WatchedRank, name_of, waits_in};
use crate::guard::protocol::WorkerOrder;
use crate::guard::setup::signals;
use crate::guard::tree::{ProcessTree, TreePhase};
use crate::guard::worker::{PipeRead, WorkerProcess, refusal_words};
use crate::process::kill::signal_group;
use crate::process::reap::reap_one;
use crate::process::spawn::{SpawnProgram, SpawnWiring, close_inherited, start, take_standard};
use crate::process::{boottime_ms, own_ref};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use supervise_core::event::ExitStatus;
use supervise_core::id::WorkerId;
use supervise_core::spec::gang::is_of_a_node;

/// Bytes waiting for the launcher; with more, the ranks' output is not read.
const UNSENT: usize = 1 << 20;
const CLOSING_MS: u64 = 5000;
const SIGNALS_PER_TURN: usize = 64;

/// Runs until no process of its ranks is left. Call it before creating any thread.
#[must_use]
pub fn main() -> i32 {
    match NodeWorker::begin() {
        Ok(node) => node.run(),
        Err(_) => 70,
    }
}

struct NodeWorker {
    number: u32,
    input: Option<File>,
    words: Splitter,
    output: File,
    unsent: VecDeque<Vec<u8>>,
    unsent_bytes: usize,
    signals: SignalFd,
    tree: Option<ProcessTree>,
    order: RanksOrder,
    workers: Vec<WorkerProcess>,
    /// What the ranks use, if the launcher accepts it.
    counter: Option<RankCounter>,
    kernel_log: Option<File>,
    /// The newest of our timestamps that the launcher has confirmed. A delayed confirmation proves no more than that.
    heard: u64,
    beat_due: u64,
    stirred: bool,
    closing: Option<u64>,
}

impl NodeWorker {
    fn begin() -> io::Result<Self> {
        close_inherited();
        let input = take_standard(0)?;
        let output = take_standard(1)?;
        for fd in [&input, &output] {
            crate::guard::log_queue::set_nonblocking(fd)?;
        }
        let signals = signals()?;
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let _ = nix::sys::prctl::set_name(c"supervise-node");
        let number = std::env::var("SLURM_NODEID").ok().and_then(|n| n.parse().ok());
        let number = number.ok_or_else(|| io::Error::other("no SLURM_NODEID"))?;
        let now = boottime_ms();
        let mut node = Self {
            number,
            input: Some(input.into()),
            words: Splitter::new(ORDER_LIMIT),
            output: output.into(),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            signals,
            tree: None,
            order: RanksOrder::default(),
            workers: Vec::new(),
            counter: None,
            kernel_log: None,
            heard: now,
            beat_due: now.saturating_add(ANSWER_MS),
            stirred: false,
            closing: None,
        };
        let name = std::env::var("SLURMD_NODENAME").unwrap_or_else(|_| crate::process::host_name());
        node.say(&FromNode::Here { node: number, name });
        Ok(node)
    }

    fn run(mut self) -> i32 {
        loop {
            let now = boottime_ms();
            self.on_time(now);
            self.flush();
            let is_gone = self.tree.as_ref().is_none_or(ProcessTree::is_gone);
            if is_gone && (self.input.is_none() || self.tree.is_some()) {
                let until = *self.closing.get_or_insert(now.saturating_add(CLOSING_MS));
                if self.unsent.is_empty() || now >= until {
                    return 0;
                }
            }
            self.wait(now);
        }
    }

    fn on_time(&mut self, now: u64) {
        if now >= self.heard.saturating_add(SILENCE_MS) {
            // The other end may have been replaced by now.
            self.input = None;
        }
        let (input, stirred) = (self.input.is_some(), std::mem::take(&mut self.stirred));
        if let Some(tree) = &mut self.tree
            && !tree.is_gone()
        {
            if !input {
                tree.kill(now);
            }
            let gone = matches!(tree.tick(now, stirred), Some(crate::guard::tree::TreeNews::Gone));
            tree.walk(now);
            if gone {
                self.reap(now);
                for at in 0..self.workers.len() {
                    self.drain(at, usize::MAX);
                }
                self.say(&FromNode::Gone { node: self.number });
                if let Some(tree) = &mut self.tree {
                    tree.tidy();
                }
            }
        }
        self.count(now);
        if now >= self.beat_due {
            self.beat_due = now.saturating_add(ANSWER_MS);
            let cpu_ms = self
                .tree
                .as_mut()
                .filter(|t| !t.is_gone())
                .map_or(0, ProcessTree::cpu_ms);
            // If one waits to be sent, a second adds nothing.
            if self.unsent_bytes < UNSENT {
                self.say(&FromNode::Beat {
                    node: self.number,
                    at: now,
                    cpu_ms,
                });
            }
        }
    }

    /// Ends a window of the ranks' counters. It is not sent if much is unsent: it would arrive late.
    fn count(&mut self, now: u64) {
        let tree = self.tree.as_mut().filter(|t| t.end == TreePhase::Running);
        let (Some(tree), Some(counter)) = (tree, self.counter.as_mut().filter(|c| now >= c.due())) else {
            return;
        };
        let ranked = self.workers.iter().map(|w| WatchedRank {
            worker: w.id,
            pid: w.proc.pid,
        });
        let ranked: Vec<WatchedRank> = ranked.collect();
        let counts = counter.window(now, &ranked, self.order.single, tree.known_pids());
        tree.except(counter.helper());
        let Some(counts) = counts.filter(|_| self.unsent_bytes < UNSENT) else {
            return;
        };
        for pulse in counts.pulses {
            let waits = matches!(pulse.state, b'S' | b'D')
                .then(|| waits_in(pulse.pid))
                .flatten();
            let name = self.order.single.then(|| name_of(pulse.pid)).flatten();
            self.say(&FromNode::Pulse(RankPulse { pulse, name, waits }));
        }
        self.say(&FromNode::Window {
            node: self.number,
            over_ms: counts.over_ms,
            network: counts.network,
        });
    }

    fn wait(&mut self, now: u64) {
        let due = [
            Some(self.beat_due),
            self.counter.as_ref().map(RankCounter::due),
            self.input.as_ref().map(|_| self.heard.saturating_add(SILENCE_MS)),
            self.tree.as_ref().and_then(ProcessTree::next),
            self.closing,
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        let reads = self.unsent_bytes < UNSENT;
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if !self.unsent.is_empty() {
            fds.push(PollFd::new(self.output.as_fd(), PollFlags::POLLOUT));
        }
        if let Some(input) = &self.input {
            fds.push(PollFd::new(input.as_fd(), PollFlags::POLLIN));
        }
        for worker in &self.workers {
            let output = worker.output.as_ref().filter(|_| reads);
            let both = [worker.report.as_ref(), output].into_iter().flatten();
            fds.extend(both.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)));
        }
        let for_ms = due.saturating_sub(now).saturating_add(1).min(ANSWER_MS);
        let timeout = i32::try_from(for_ms).ok().and_then(|ms| PollTimeout::try_from(ms).ok());
        let _ = poll(&mut fds, timeout.unwrap_or(PollTimeout::ZERO));
        drop(fds);
        self.hear();
        for at in 0..self.workers.len() {
            self.check_report(at);
        }
        let mut asked = false;
        for _ in 0..SIGNALS_PER_TURN {
            let Ok(Some(info)) = self.signals.read_signal() else {
                break;
            };
            asked |= i32::try_from(info.ssi_signo) == Ok(libc::SIGTERM);
        }
        // When the job ends, Slurm signals every process of a step, but only direct children of its daemon: forward
        // it to the ranks.
        if asked {
            self.signal(None, libc::SIGTERM);
        }
        if reads {
            for at in 0..self.workers.len() {
                self.drain(at, 4);
            }
        }
        self.reap(boottime_ms());
    }

    /// Handles the launcher's messages. The end of the stream means: kill the ranks.
    fn hear(&mut self) {
        let mut buffer = [0_u8; 16 << 10];
        while let Some(input) = &mut self.input {
            match input.read(&mut buffer) {
                Ok(0) => self.input = None,
                Ok(n) => {
                    for line in self.words.push(buffer.get(..n).unwrap_or(&[])) {
                        match ToNode::read(&line) {
                            Some(ToNode::Order(json)) => self.launch(&json),
                            Some(ToNode::Signal { rank, signal }) => self.signal(Some(rank), signal),
                            Some(ToNode::Beat(heard)) => self.note_heard(&heard),
                            None => {}
                        }
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
                Err(_) => self.input = None,
            }
        }
    }

    fn note_heard(&mut self, heard: &[(u32, u64)]) {
        let own = heard.iter().find(|(node, _)| *node == self.number);
        if let Some((_, at)) = own.filter(|(_, at)| *at <= boottime_ms()) {
            self.heard = self.heard.max(*at);
        }
    }

    fn launch(&mut self, json: &[u8]) {
        if self.tree.is_some() {
            return;
        }
        let now = boottime_ms();
        // The order was delayed so long that another attempt may be running by now.
        if now >= self.heard.saturating_add(SILENCE_MS) {
            self.input = None;
            return;
        }
        let Ok(order) = serde_json::from_slice::<RanksOrder>(json) else {
            self.input = None;
            return;
        };
        let tree = ProcessTree::new(own_ref(), order.tag.clone(), None, now);
        self.counter = order.pulses.then(|| RankCounter::new(now, tree.ms_per_tick));
        self.tree = Some(tree);
        self.order = order;
        self.kernel_log = crate::kernel_log::from_now();
        for rank in self.first()..self.first().saturating_add(self.order.per_node) {
            let made = self.worker_order(rank).and_then(|order| {
                let program = SpawnProgram::new(&order.argv, &order.env, Some(order.cwd.as_str()))?;
                let (reader, writer) = crate::guard::setup::pipe()?;
                let null = crate::guard::log_queue::null()?;
                let wiring = SpawnWiring {
                    input: null.as_fd(),
                    output: writer.as_fd(),
                    errors: writer.as_fd(),
                    cgroup: None,
                    dies_with_creator: true,
                    gate: None,
                };
                Ok(WorkerProcess::new(WorkerId(rank), start(&program, &wiring)?, reader))
            });
            match made {
                Ok(worker) => self.workers.push(worker),
                Err(e) => self.refuse(rank, &format!("it cannot be started: {e}")),
            }
        }
        if let Some(tree) = self.tree.as_mut().filter(|_| self.workers.is_empty()) {
            tree.workers_ended(now);
        }
    }

    fn first(&self) -> u32 {
        self.number.saturating_mul(self.order.per_node)
    }

    /// Variables of a rank: the order's, and those that Slurm sets on each node.
    fn worker_order(&self, rank: u32) -> io::Result<WorkerOrder> {
        let own = usize::try_from(rank).ok().and_then(|at| self.order.own.get(at));
        let own = own.ok_or_else(|| io::Error::other("the order has no such rank"))?;
        let mut env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .filter(|(k, _)| is_of_a_node(k))
            .collect();
        env.extend(self.order.env.iter().chain(own).cloned());
        Ok(WorkerOrder {
            argv: self.order.argv.clone(),
            env: env.into_iter().collect(),
            cwd: self.order.cwd.clone().into(),
        })
    }

    fn check_report(&mut self, at: usize) {
        let Some(worker) = self.workers.get_mut(at) else { return };
        let Some(refusal) = worker.check_report() else { return };
        let rank = worker.id.0;
        if let Ok(order) = self.worker_order(rank) {
            let (what, _) = refusal_words(WorkerId(rank), &order, refusal);
            self.print(rank, format!("supervise: {what}\n").as_bytes());
        }
    }

    /// A rank that never ran exits with the shell's status for a command that cannot be executed.
    fn refuse(&mut self, rank: u32, why: &str) {
        self.print(rank, format!("supervise: {why}\n").as_bytes());
        self.say(&FromNode::Exit {
            rank,
            status: ExitStatus::Code(126),
        });
    }

    fn signal(&self, rank: Option<u32>, signal: i32) {
        let meant = self.workers.iter().filter(|w| rank.is_none_or(|rank| w.id.0 == rank));
        for worker in meant.filter(|w| w.exit.is_none()) {
            // A process that has exited needs no signal; a refused signal shows because the process keeps running.
            let _ = signal_group(worker.proc, signal);
        }
    }

    fn reap(&mut self, now: u64) {
        let Some(tree) = &mut self.tree else { return };
        let mut reaped = tree.take_reaped();
        while let Ok(Some(one)) = reap_one() {
            reaped.push(one);
        }
        for (pid, status) in reaped {
            self.stirred = true;
            if self.counter.as_mut().is_some_and(|counter| counter.was_helper(pid)) {
                continue;
            }
            let Some(at) = self.workers.iter().position(|w| w.proc.pid == pid && w.exit.is_none()) else {
                continue;
            };
            self.check_report(at);
            // Its last output is read before its exit is reported.
            self.drain(at, 64);
            if let Some(worker) = self.workers.get_mut(at) {
                worker.exit = Some(status);
                let rank = worker.id.0;
                if status != ExitStatus::Code(0) {
                    self.tell_of_gpus(rank);
                }
                self.say(&FromNode::Exit { rank, status });
            }
        }
        let all = self.workers.iter().all(|w| w.exit.is_some());
        if let Some(tree) = self.tree.as_mut().filter(|t| all && t.end == TreePhase::Running) {
            tree.workers_ended(now);
        }
    }

    /// Adds this node's GPU errors to the output of the first rank that fails here: no other process reads this
    /// kernel log.
    fn tell_of_gpus(&mut self, rank: u32) {
        let Some(log) = self.kernel_log.take() else { return };
        let ranks = self.workers.iter().map(|w| w.proc.pid);
        let ours: BTreeSet<i32> = self
            .tree
            .iter()
            .flat_map(ProcessTree::known_pids)
            .chain(ranks)
            .collect();
        for error in crate::kernel_log::gpu_errors(log, |pid| ours.contains(&pid)) {
            let line = format!("\nsupervise: the kernel of this node: {error}\n");
            self.print(rank, line.as_bytes());
        }
    }

    fn drain(&mut self, at: usize, reads: usize) {
        let mut buffer = [0_u8; PIECE * 16];
        for _ in 0..reads {
            let Some(worker) = self.workers.get_mut(at) else { return };
            match worker.read(&mut buffer) {
                PipeRead::Dry | PipeRead::Ended => return,
                PipeRead::Bytes(n) => {
                    let rank = worker.id.0;
                    self.print(rank, buffer.get(..n).unwrap_or(&[]));
                }
            }
        }
    }

    fn print(&mut self, rank: u32, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            let bytes = piece.to_vec();
            self.say(&FromNode::Output { rank, bytes });
        }
    }

    fn say(&mut self, said: &FromNode) {
        let line = said.line();
        self.unsent_bytes = self.unsent_bytes.saturating_add(line.len());
        self.unsent.push_back(line);
    }

    /// Writes whole lines: each is short enough to be written at once or not at all.
    fn flush(&mut self) {
        while let Some(line) = self.unsent.front() {
            match self.output.write(line) {
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
                Err(_) => self.input = None,
            }
            self.unsent_bytes = self.unsent_bytes.saturating_sub(line.len());
            self.unsent.pop_front();
        }
    }
}
