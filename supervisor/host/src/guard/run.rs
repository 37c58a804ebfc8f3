//! The guard's loop: wait for input, handle it, run what is due.
//!
//! Only `poll` blocks. [`crate::guard::run::inputs`] handles the descriptors, this file the timers.

pub(super) mod calls;
mod deadlines;
mod inputs;
mod pace;
mod samples;

use crate::guard::connection::DriverConnection;
use crate::guard::log_queue::{LogQueue, start_log_writer};
use crate::guard::nodes::NodeLauncher;
use crate::guard::oom::OomWatch;
use crate::guard::output_facts::OutputFacts;
use crate::guard::protocol::{FromGuard, GuardOrder, ScriptWatch};
use crate::guard::rank_watch::RankWatch;
use crate::guard::record::{descendant_line, learn_secrets};
use crate::guard::tree::{ProcessTree, TreeNews, TreePhase};
use crate::guard::worker::{WORKERS_LIMIT, WorkerProcess};
use crate::process::boottime_ms;
use crate::process::kill::signal_group;
use crate::process::stat::{ProcStat, proc_stat};
use calls::Calls;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use pace::REPORT_MS;
pub(crate) use pace::ReportSchedule;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use supervise_core::event::scan::Scanner;
use supervise_core::event::{Activity, StandbyResult};
use supervise_core::id::{ProcRef, Term, WorkerId};
use supervise_core::lease::FenceDeadline;

/// Shortest time between two reports of changes.
const CHANGE_MS: u64 = 1000;

/// Delay of the log writer after the workers, which need the CPU first. Output is queued meanwhile.
const LOG_WRITER_AFTER_MS: u64 = 30;

/// Pause before a log writer that exited is restarted: doubled each time up to the limit.
const LOG_WRITER_PAUSE_MS: u64 = 1000;
const LOG_WRITER_PAUSE_LIMIT_MS: u64 = 60_000;

/// Time for the last output and messages to be written when everything else is done.
const CLOSING_MS: u64 = 2000;

/// How long a new connection may take to send its first message, and how many may wait.
const NEWCOMER_MS: u64 = 5000;
const NEWCOMERS_LIMIT: usize = 8;

const EARLY_LIMIT: usize = 2 * WORKERS_LIMIT;

pub(crate) struct Guard {
    pub(crate) me: ProcRef,
    pub(crate) order: GuardOrder,
    /// The newest term that connected.
    pub(crate) term: Term,
    pub(crate) socket: UnixListener,
    pub(crate) signals: SignalFd,
    pub(crate) connection: Option<DriverConnection>,
    /// Connections that have not sent `Take` or a shim message, with their deadlines.
    pub(crate) newcomers: Vec<(DriverConnection, u64)>,
    pub(crate) lost_at: Option<u64>,
    /// When the workers are killed unless the lease is renewed, if the supervisor reports renewals.
    pub(crate) lease: Option<FenceDeadline>,
    /// When a stop that the guard itself began turns into a kill.
    pub(crate) stop_due: Option<u64>,
    /// Compiled at the first line of output. The inner `None`: the rules were refused, and so the launch.
    pub(crate) scanner: Option<Option<Scanner>>,
    pub(crate) facts: OutputFacts,
    pub(crate) calls: Calls,
    pub(crate) log_queue: LogQueue,
    /// The launcher of the nodes, if the workers stand for ranks there.
    pub(crate) nodes: Option<NodeLauncher>,
    pub(crate) log_writer: Option<i32>,
    pub(crate) log_writer_due: Option<u64>,
    pub(crate) log_writer_pause: u64,
    pub(crate) log_writer_came_last: bool,
    pub(crate) tree: ProcessTree,
    pub(crate) memory: OomWatch,
    pub(crate) pace: ReportSchedule,
    pub(crate) pulses: RankWatch,
    pub(crate) workers: Vec<WorkerProcess>,
    pub(crate) launched: bool,
    /// Sent with the launch: see [`FromGuard::Launched`].
    pub(crate) ahead: Option<StandbyResult>,
    pub(crate) notes: Option<i32>,
    pub(crate) early: Vec<FromGuard>,
    pub(crate) failed: bool,
    pub(crate) frozen: bool,
    pub(crate) bye: bool,
    pub(crate) unkillable: Vec<ProcRef>,
    pub(crate) closing: Option<u64>,
    /// A child exited since the tree was last checked.
    pub(crate) stirred: bool,
    pub(crate) buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum PollSource {
    Signals,
    Socket,
    Connection,
    Newcomer(usize),
    Report(usize),
    Output(usize),
    LogQueue,
}

/// Only the first descendants have their environment searched for secrets: later ones have the same.
const LOOKED_INTO: usize = 64;

impl Guard {
    /// Runs until the tree is gone and no supervisor needs the guard any more; returns the exit code.
    pub(crate) fn run(mut self) -> i32 {
        loop {
            let now = boottime_ms();
            self.on_time(now);
            if self.is_over(now) {
                return 0;
            }
            let due = self.next_due();
            let ready = self.wait(due.saturating_sub(boottime_ms()));
            let now = boottime_ms();
            for source in ready {
                self.on_input(source, now);
            }
            self.newcomers.retain(|(_, until)| *until > now);
        }
    }

    fn wait(&self, for_ms: u64) -> Vec<PollSource> {
        let mut sources = Vec::new();
        let mut fds = Vec::new();
        let mut add = |source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::new(fd, flags));
        };
        let input = PollFlags::POLLIN;
        // Reports before signals: why a program failed to execute must be known before its process is reaped.
        for (i, worker) in self.workers.iter().enumerate() {
            if let Some(report) = &worker.report {
                add(PollSource::Report(i), report.as_fd(), input);
            }
        }
        for (i, worker) in self.workers.iter().enumerate() {
            if let Some(output) = &worker.output {
                add(PollSource::Output(i), output.as_fd(), input);
            }
        }
        add(PollSource::Signals, self.signals.as_fd(), input);
        if let Some(connection) = &self.connection {
            add(PollSource::Connection, connection.fd(), wish(connection));
        }
        for (i, (connection, _)) in self.newcomers.iter().enumerate().rev() {
            add(PollSource::Newcomer(i), connection.fd(), input);
        }
        add(PollSource::Socket, self.socket.as_fd(), input);
        let log_queue: Option<BorrowedFd<'_>> = self.log_queue.fd();
        if let Some(fd) = log_queue {
            let flags = if self.log_queue.has_unsent() {
                PollFlags::POLLOUT
            } else {
                // Only to notice that the log writer has exited.
                PollFlags::empty()
            };
            add(PollSource::LogQueue, fd, flags);
        }
        // Plus one: the clocks may differ by a fraction of a millisecond.
        let timeout = i32::try_from(for_ms.saturating_add(1).min(60_000)).unwrap_or(60_000);
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        if poll(&mut fds, timeout).is_err() {
            return Vec::new();
        }
        let ready = fds.iter().map(|fd| fd.any().unwrap_or(true));
        let ready = sources.iter().zip(ready).filter(|(_, ready)| *ready);
        ready.map(|(source, _)| *source).collect()
    }

    fn on_time(&mut self, now: u64) {
        self.on_orphaned(now);
        self.on_unrenewed(now);
        if let Some(nodes) = self.nodes.as_mut().filter(|n| n.fenced.is_some_and(|at| now >= at)) {
            (nodes.fenced, nodes.ended) = (None, true);
            self.tell_of_nodes(now);
        }
        if self.stop_due.is_some_and(|due| now >= due) {
            self.stop_due = None;
            self.tree.kill(now);
        }
        let stirred = std::mem::take(&mut self.stirred);
        let news = self.tree.tick(now, stirred);
        self.on_news(news, now);
        let walks = self.tree.is_walk_due(now);
        let new = self.tree.walk(now);
        self.record(&new);
        if walks {
            self.look_at_calls();
        }
        self.look_at_scripts(now);
        self.report(now);
        self.look_at_ranks(now);
        self.keep_log_writer(now);
    }

    fn on_news(&mut self, news: Option<TreeNews>, now: u64) {
        let unkillable = match news {
            None => return,
            Some(TreeNews::Unkillable(left)) => left,
            Some(TreeNews::Gone) => {
                // The processes that exited last have not been reaped yet.
                self.reap(now);
                self.end_calls(now);
                self.look_for_kill();
                self.hear_the_last(now);
                Vec::new()
            }
        };
        self.unkillable.clone_from(&unkillable);
        // Until its launcher has exited, part of the gang may run on another node.
        if self.is_gone() || !unkillable.is_empty() {
            self.tell(FromGuard::TreeGone { unkillable });
        }
        self.tree.tidy();
    }

    fn report(&mut self, now: u64) {
        if self.log_queue.has_untold_loss() && now >= self.pace.loss_at {
            self.pace.loss_at = now.saturating_add(REPORT_MS);
            for (worker, bytes) in self.log_queue.take_lost() {
                let worker = WorkerId(worker);
                self.tell(FromGuard::Dropped { worker, bytes });
            }
        }
        if now < self.pace.due() || !self.launched {
            return;
        }
        if !self.tree.is_gone() {
            return self.tell_progress(now);
        }
        if let Some(nodes) = self.nodes.as_ref().filter(|n| !n.ended) {
            let what = nodes.waits_for();
            self.pace.reported = now;
            self.pace.changed = false;
            self.tell(FromGuard::Waits { what });
        }
    }

    pub(super) fn tell_progress(&mut self, now: u64) {
        let activity = Activity {
            cpu_ms: match &mut self.nodes {
                Some(nodes) => nodes.cpu_ms(),
                None => self.tree.cpu_ms(),
            },
            output: std::mem::take(&mut self.pace.output),
            over_ms: now.saturating_sub(self.pace.reported),
            gpu: self.pulses.is_device_at_work(),
            starved: self.pulses.is_starved(),
        };
        self.pace.reported = now;
        self.pace.free_at = now.saturating_add(CHANGE_MS);
        self.pace.changed = false;
        let files = self.pulses.take_files();
        self.tell(FromGuard::Progress {
            phase: self.facts.phase,
            step: self.facts.step,
            beats: self.facts.beats,
            risen: self.facts.risen,
            activity,
            files,
        });
        self.tell_numbers(now, false);
    }

    /// Metrics are kept until a supervisor is connected.
    pub(super) fn tell_numbers(&mut self, now: u64, last: bool) {
        if self.connection.is_some()
            && let Some(steps) = self.facts.numbers.take(now, last)
        {
            self.tell(FromGuard::Numbers { steps });
        }
    }

    fn keep_log_writer(&mut self, now: u64) {
        let hurries = self.log_writer_pause == 0 && (self.tree.is_gone() || self.log_queue.is_full_of_output());
        if self.log_writer_due.is_none_or(|due| now < due && !hurries) {
            return;
        }
        self.log_writer_due = None;
        self.log_writer_came_last = self.tree.is_gone();
        match start_log_writer(&self.order) {
            Ok((pid, pipe)) => {
                self.log_writer = Some(pid);
                self.spare_helpers();
                self.log_queue.connect(pipe);
                self.pump();
            }
            Err(_) => self.log_writer_later(now),
        }
    }

    /// Excludes our own children that do not belong to the attempt.
    fn spare_helpers(&mut self) {
        let nodes = self.nodes.as_ref().map(|n| n.pid);
        let helpers = [nodes, self.log_writer, self.pulses.helper()];
        self.tree.except(helpers.into_iter().flatten());
    }

    fn log_writer_later(&mut self, now: u64) {
        self.log_writer = None;
        self.log_queue.disconnect();
        self.log_writer_pause = (self.log_writer_pause * 2).clamp(LOG_WRITER_PAUSE_MS, LOG_WRITER_PAUSE_LIMIT_MS);
        if self.log_queue.is_wanted() && self.closing.is_none() {
            self.log_writer_due = Some(now.saturating_add(self.log_writer_pause));
        }
    }

    fn next_due(&self) -> u64 {
        let tree_lives = !self.tree.is_gone();
        let waits = self.nodes.as_ref().is_some_and(|n| !n.ended);
        let report = (self.launched && (tree_lives || waits)).then(|| self.pace.due());
        let loss = self.log_queue.has_untold_loss().then_some(self.pace.loss_at);
        let newcomer = self.newcomers.iter().map(|(_, until)| *until).min();
        // Once the tree is being killed, the orphan deadline no longer matters.
        let orphan = self
            .orphan_due()
            .filter(|_| !matches!(self.tree.end, TreePhase::Killing { .. }));
        let lease = self
            .lease_due()
            .filter(|_| matches!(self.tree.end, TreePhase::Running | TreePhase::Leftovers { .. }));
        [
            self.tree.next(),
            self.watches().then(|| self.look_due()),
            report,
            loss,
            newcomer,
            orphan,
            lease,
            self.stop_due,
            self.calls.next_due(),
            self.log_writer_due,
            self.closing,
            self.nodes.as_ref().and_then(|n| n.fenced),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// The tree is gone, no supervisor will connect again, and the last messages are sent or timed out.
    fn is_over(&mut self, now: u64) -> bool {
        let unneeded = self.bye || self.failed || self.orphan_due().is_some_and(|due| now >= due);
        if !self.is_gone() || !unneeded {
            return false;
        }
        let until = *self.closing.get_or_insert(now.saturating_add(CLOSING_MS));
        let unsaid = self.connection.as_ref().is_some_and(DriverConnection::has_unsent);
        let unwritten = self.log_queue.has_unsent() && self.log_queue.is_connected();
        if now < until && (unsaid || unwritten) {
            return false;
        }
        // When a script is being learned from, its output is read as soon as we exit, and then its directory is
        // deleted. Output of a worker that exited at once is read at once, too.
        if matches!(self.order.script, Some(ScriptWatch::Record)) || self.log_writer_came_last {
            self.log_queue.disconnect();
            return now >= until || self.log_writer.is_none();
        }
        true
    }

    /// Sends an event of a worker, but never before `Launched`.
    fn tell_in_order(&mut self, message: FromGuard) {
        if self.launched {
            self.tell(message);
        } else if !self.failed && self.early.len() < EARLY_LIMIT {
            self.early.push(message);
        }
    }

    pub(crate) fn tell(&mut self, message: FromGuard) {
        if let Some(connection) = &mut self.connection
            && connection.send(message).is_err()
        {
            self.lose_connection(boottime_ms());
        }
    }

    fn lose_connection(&mut self, now: u64) {
        self.connection = None;
        self.lost_at = Some(now);
        // The supervisor that froze the tree cannot thaw it any more.
        if std::mem::take(&mut self.frozen) {
            self.tree.freeze(false);
        }
    }

    /// The launch failed: kill what was started.
    pub(crate) fn fail(&mut self, what: String, command: bool, now: u64) {
        if !self.failed {
            self.failed = true;
            self.tell(FromGuard::LaunchFailed { what, command });
            self.tree.kill(now);
        }
    }

    /// Once every worker has executed its program: report it, then send what was held back.
    fn check_launched(&mut self, now: u64) {
        if self.launched || self.failed || self.workers.iter().any(|w| w.report.is_some()) {
            return;
        }
        self.launched = true;
        let procs: Vec<ProcRef> = self.workers.iter().map(|w| w.proc).collect();
        let workers = procs.clone();
        let guard = Some(self.me);
        let (ahead, notes) = (self.ahead.take(), self.notes);
        self.tell(FromGuard::Launched {
            workers,
            guard,
            ahead,
            notes,
        });
        for message in std::mem::take(&mut self.early) {
            self.tell(message);
        }
        self.tree.check_leaf(&procs);
        let stats: Vec<ProcStat> = procs.iter().filter_map(|p| proc_stat(p.pid)).collect();
        let new = self.tree.learn(stats);
        self.record(&new);
        if self.log_queue.is_wanted() {
            self.log_writer_due = Some(now.saturating_add(LOG_WRITER_AFTER_MS));
        }
        // Makes the OOM killer prefer any worker to the guard. Only root may do so.
        let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
    }

    fn record(&mut self, new: &[ProcStat]) {
        // A script may export secrets that only its children get.
        let known = supervise_config::known_secrets().len();
        for stat in new {
            self.memory.note(stat.pid);
        }
        let before = self.tree.size().saturating_sub(new.len());
        for stat in new.iter().take(LOOKED_INTO.saturating_sub(before)) {
            learn_secrets(stat.pid);
        }
        let secrets = supervise_config::known_secrets();
        if secrets.len() > known {
            self.log_queue.secrets(secrets);
        }
        for stat in new {
            self.log_queue.tree(descendant_line(stat));
        }
        if !new.is_empty() {
            self.pump();
        }
    }

    fn signal_workers(&self, signal: i32) {
        for worker in self.workers.iter().filter(|w| w.exit.is_none()) {
            // A process that has exited needs no signal; a refused signal shows because the process keeps running.
            let _ = signal_group(worker.proc, signal);
        }
        self.signal_calls(signal);
    }
}

fn wish(connection: &DriverConnection) -> PollFlags {
    if connection.has_unsent() {
        PollFlags::POLLIN | PollFlags::POLLOUT
    } else {
        PollFlags::POLLIN
    }
}
