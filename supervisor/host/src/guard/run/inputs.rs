//! Inputs of the guard: messages of the supervisor, signals, output, exits of children.

use super::{Guard, NEWCOMER_MS, NEWCOMERS_LIMIT, PollSource};
use crate::address::is_trusted;
use crate::guard::connection::DriverConnection;
use crate::guard::protocol::{FromGuard, GuardHello, ToGuard, WorkerState};
use crate::guard::record::{OUTPUT_ENDS, end_line, exit_line};
use crate::guard::tree::TreePhase;
use crate::guard::worker::refusal_words;
use crate::guard::worker::{PipeRead, WorkerProcess};
use crate::process::boottime_ms;
use crate::process::reap::reap_one;
use supervise_config::{redact_lines, redact_text};
use supervise_core::event::scan::{RuleKind, ScanMatch, ScanRule, Scanner};
use supervise_core::event::{ExitStatus, Sighting};
use supervise_core::id::{Term, WorkerId};
use supervise_core::rulebook::taxonomy::Class;

const READS_PER_TURN: usize = 4;

/// Reads after a worker's exit: its last output must be scanned before the exit is reported. A pipe holds less.
pub(super) const READS_AT_END: usize = 64;

/// Delay after a worker's exit before looking for its descendants, so that the supervisor's kill can come first.
const FAILED_MS: u64 = 5;

const SIGNALS_PER_TURN: usize = 64;

impl Guard {
    pub(super) fn on_input(&mut self, source: PollSource, now: u64) {
        match source {
            PollSource::Signals => self.on_signals(now),
            PollSource::Socket => self.accept_connection(now),
            PollSource::Connection => self.on_connection(now),
            PollSource::Newcomer(at) => self.on_newcomer(at, now),
            PollSource::Report(at) => self.on_report(at, now),
            PollSource::Output(at) => {
                self.drain(at, READS_PER_TURN);
                self.pump();
            }
            PollSource::LogQueue if self.log_queue.has_unsent() => self.pump(),
            // Only polled for hangup, which would be reported until its process is reaped.
            PollSource::LogQueue => self.log_queue.disconnect(),
        }
    }

    /// SIGTERM is for the supervisor to handle; without one, the guard stops its tree itself.
    fn on_signals(&mut self, now: u64) {
        let mut asked = false;
        for _ in 0..SIGNALS_PER_TURN {
            let Ok(Some(info)) = self.signals.read_signal() else {
                break;
            };
            asked |= i32::try_from(info.ssi_signo) == Ok(libc::SIGTERM);
        }
        self.reap(now);
        if asked && self.connection.is_none() && self.stop_due.is_none() {
            self.signal_workers(libc::SIGTERM);
            self.stop_due = Some(now.saturating_add(self.order.stop_grace.0));
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.tree.is_gone() && self.nodes.as_ref().is_none_or(|n| n.ended)
    }

    /// If everything on the nodes and here has exited, reports the end of the tree.
    pub(super) fn tell_of_nodes(&mut self, now: u64) {
        if self.nodes.as_ref().is_some_and(|n| n.ended) && self.tree.is_gone() {
            self.hear_the_last(now);
            self.tell(FromGuard::TreeGone { unkillable: Vec::new() });
        }
    }

    /// The workers have exited. Ranks on other nodes are still read until their launcher has exited, too.
    pub(super) fn hear_the_last(&mut self, now: u64) {
        for at in 0..self.workers.len() {
            self.drain(at, usize::MAX);
            if self.is_gone() {
                self.end_output(at);
            }
        }
        if self.is_gone() {
            self.log_queue.tree(OUTPUT_ENDS.to_owned());
        }
        self.pump();
        // The last step is reported with the exit, however soon it came.
        if self.pace.changed {
            self.tell_progress(now);
        }
        self.tell_numbers(now, true);
    }

    /// Reaps and handles every child that exited.
    ///
    /// The kernel returns zombie children in the order of their birth. A worker killed by a signal takes its peers
    /// down a moment later, never the other way round, so it is reported first.
    pub(super) fn reap(&mut self, now: u64) {
        let mut reaped = self.tree.take_reaped();
        while let Ok(Some(one)) = reap_one() {
            reaped.push(one);
        }
        let mut ended: Vec<(usize, ExitStatus)> = Vec::new();
        for (pid, status) in reaped {
            self.stirred = true;
            if self.log_writer == Some(pid) {
                self.log_writer_later(now);
                continue;
            }
            if self.pulses.was_helper(pid) {
                self.spare_helpers();
                continue;
            }
            if let Some(nodes) = self.nodes.as_mut().filter(|n| n.is(pid)) {
                nodes.note_end(status, now);
                self.tell_of_nodes(now);
                continue;
            }
            let is_it = |(at, w): (usize, &WorkerProcess)| {
                (w.proc.pid == pid && w.exit.is_none() && !self.calls.has_ended(at)).then_some(at)
            };
            let worker = self.workers.iter().enumerate().find_map(is_it);
            if worker.is_none() {
                self.log_queue.tree(end_line(pid, status));
            }
            // Reaping frees the PID: another process may have used it and exited since.
            let first = worker.filter(|at| ended.iter().all(|(other, _)| other != at));
            ended.extend(first.map(|at| (at, status)));
        }
        if matches!(self.tree.end, TreePhase::Running) {
            ended.sort_by_key(|(_, status)| !matches!(status, ExitStatus::Signal(_)));
        }
        for (at, status) in ended {
            self.on_worker_end(at, status, now);
        }
    }

    pub(super) fn on_worker_end(&mut self, at: usize, status: ExitStatus, now: u64) {
        self.on_report(at, now);
        self.drain(at, READS_AT_END);
        let Some(status) = self.status_by_calls(at, status, now) else {
            return;
        };
        if !status.is_success() {
            self.look_for_kill();
        }
        let first = self.workers.iter().all(|w| w.exit.is_none());
        let others_are_well = self.workers.iter().all(|w| w.exit.is_none_or(ExitStatus::is_success));
        let Some(worker) = self.workers.get_mut(at) else {
            return;
        };
        worker.exit = Some(status);
        // Only the worker that failed first shows its last lines: it explains the others.
        let lines = match others_are_well && !status.is_success() {
            true => redact_lines(worker.tail.lines().iter().map(String::as_str)),
            false => Vec::new(),
        };
        let (worker, step) = (worker.id, self.facts.step);
        if !self.failed {
            self.tell_in_order(FromGuard::Exited {
                worker,
                status,
                first,
                step,
                lines,
            });
            self.log_queue.tree(exit_line(worker, status, step));
            self.pump();
        }
        // Record its descendants before anything happens to this guard; the supervisor's kill may come first.
        self.tree.walk_soon(now.saturating_add(FAILED_MS));
        if self.workers.iter().all(|w| w.exit.is_some()) {
            self.tree.workers_ended(now);
        }
    }

    /// Looks for an OOM kill: such a process prints nothing, so the kernel's message stands in for it. What we kill
    /// ourselves needs no other cause.
    pub(super) fn look_for_kill(&mut self) {
        let failed = self.workers.iter().find(|w| w.exit.is_none_or(|e| !e.is_success()));
        let (Some(worker), true) = (failed.map(|w| w.id), self.launched && !self.failed) else {
            return;
        };
        if let Some(text) = self.memory.killed() {
            let hit = ScanMatch {
                kind: RuleKind::Failure(Class::MemHostOom.into()),
                sighting: Sighting {
                    rule: "host_oom".into(),
                    worker,
                    line: 0,
                    text,
                    number: None,
                    count: 1,
                },
                total: None,
                numbers: None,
            };
            self.on_hits(vec![hit]);
        }
    }

    fn on_report(&mut self, at: usize, now: u64) {
        let Some(worker) = self.workers.get_mut(at) else {
            return;
        };
        if worker.report.is_none() {
            return;
        }
        if let Some(refusal) = worker.check_report() {
            let id = worker.id;
            let index = usize::try_from(id.0).unwrap_or(usize::MAX);
            if let Some(order) = self.order.workers.get(index) {
                let (what, command) = refusal_words(id, order, refusal);
                self.fail(what, command, now);
            }
        }
        self.check_launched(now);
    }

    /// Reads a worker's output: scans every line and passes every byte to the log writer.
    pub(super) fn drain(&mut self, at: usize, reads: usize) {
        for _ in 0..reads {
            let Some(worker) = self.workers.get_mut(at) else {
                return;
            };
            match worker.read(&mut self.buffer) {
                PipeRead::Dry => return,
                PipeRead::Ended => return self.end_output(at),
                PipeRead::Bytes(n) => {
                    let bytes = self.buffer.get(..n).unwrap_or(&[]);
                    let (id, scanner, rules) = (worker.id, &mut self.scanner, &self.order.rules);
                    let mut hits = Vec::new();
                    worker.lines.log_queue(bytes, |number, line| {
                        hits.extend(look(scanner, rules, id, number, line));
                    });
                    worker.tail.log_queue(bytes);
                    self.log_queue.output(id.0, bytes);
                    let count = u64::try_from(n).unwrap_or(u64::MAX);
                    self.pace.output = self.pace.output.saturating_add(count);
                    self.pulses.on_output(count);
                    self.on_hits(hits);
                }
            }
        }
    }

    /// No process can write any more, so text without a final newline counts as a line.
    pub(super) fn end_output(&mut self, at: usize) {
        let Some(worker) = self.workers.get_mut(at) else {
            return;
        };
        worker.close();
        let (id, scanner, rules) = (worker.id, &mut self.scanner, &self.order.rules);
        let mut hits = Vec::new();
        worker.lines.finish(|number, line| {
            hits.extend(look(scanner, rules, id, number, line));
        });
        self.on_hits(hits);
    }

    fn on_hits(&mut self, hits: Vec<ScanMatch>) {
        for hit in hits {
            let change = self.facts.note(hit);
            self.pace.changed |= change.progress;
            if change.progress {
                self.pulses.on_progress(boottime_ms());
            }
            for (kind, sighting) in change.sighted.into_iter().chain(change.first) {
                // Progress reported after it would look like the end of the in-process restart.
                if kind == RuleKind::Heals && self.pace.changed && self.launched {
                    self.tell_progress(boottime_ms());
                }
                let text = redact_text(&sighting.text);
                let sighting = Sighting { text, ..sighting };
                self.tell_in_order(FromGuard::Sighted { kind, sighting });
            }
        }
    }

    /// Writes what the log writer accepts. An exited log writer is noticed when its process is reaped.
    pub(super) fn pump(&mut self) {
        if self.log_queue.pump().is_err() {
            self.log_queue.disconnect();
        }
    }

    fn accept_connection(&mut self, now: u64) {
        while let Ok((stream, _)) = self.socket.accept() {
            if self.newcomers.len() >= NEWCOMERS_LIMIT || !is_trusted(&stream) {
                continue;
            }
            if let Ok(connection) = DriverConnection::new(stream) {
                self.newcomers.push((connection, now.saturating_add(NEWCOMER_MS)));
            }
        }
    }

    /// Handles the first message of a connection; anything unexpected closes it.
    fn on_newcomer(&mut self, at: usize, now: u64) {
        let Some((connection, _)) = self.newcomers.get_mut(at) else {
            return;
        };
        let (said, end) = connection.receive();
        if said.is_empty() && end.is_ok() {
            return;
        }
        let (connection, _) = self.newcomers.swap_remove(at);
        let mut said = said.into_iter();
        match said.next() {
            Some(ToGuard::Take { term }) if term > self.term => {
                self.take(term, connection);
                said.for_each(|message| self.on_message(message, now));
            }
            Some(ToGuard::Shim(word)) => self.on_shim(word, connection, now),
            _ => {}
        }
    }

    /// Hands the guard to a newer term; an older connection is closed.
    fn take(&mut self, term: Term, connection: DriverConnection) {
        self.term = term;
        self.connection = Some(connection);
        self.lost_at = None;
        // The lease of the previous term no longer counts; the new term will send its own.
        self.lease = None;
        self.bye = false;
        let hello = GuardHello {
            guard: self.me,
            run: self.order.run.clone(),
            term: self.order.term,
            attempt: self.order.attempt,
            workers: self
                .workers
                .iter()
                .map(|w| WorkerState {
                    proc: w.proc,
                    exit: w.exit,
                })
                .collect(),
            phase: self.facts.phase,
            step: self.facts.step,
            total: self.facts.total,
            sightings: self.facts.sightings(),
            gone: self.is_gone(),
            unkillable: self.unkillable.clone(),
            takes_devices: true,
            takes_lease: true,
        };
        self.tell(FromGuard::Hello(Box::new(hello)));
        self.repeat_news();
    }

    fn on_connection(&mut self, now: u64) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let sent = connection.flush();
        let (said, end) = connection.receive();
        for message in said {
            self.on_message(message, now);
        }
        if sent.is_err() || end.is_err() {
            self.lose_connection(now);
        }
    }

    fn on_message(&mut self, message: ToGuard, now: u64) {
        match message {
            ToGuard::Take { term } => self.term = self.term.max(term),
            ToGuard::Signal { signal } => self.signal_workers(signal),
            ToGuard::KillTree => self.tree.kill(now),
            ToGuard::Freeze => {
                self.frozen = true;
                self.tree.freeze(true);
            }
            ToGuard::Thaw => {
                self.frozen = false;
                self.tree.freeze(false);
            }
            ToGuard::Devices(pulses) => self.pulses.on_devices(pulses),
            ToGuard::Lease(until) => self.lease = until,
            ToGuard::Bye => self.bye = true,
            // Shims have connections of their own.
            ToGuard::Shim(_) => {}
        }
    }
}

/// Scans a line. The rules are compiled at the first line: that takes milliseconds, which a start need not wait for.
/// The supervisor reports rules that do not compile; here the output is kept and nothing is sighted.
fn look(
    scanner: &mut Option<Option<Scanner>>,
    rules: &[ScanRule],
    id: WorkerId,
    number: u64,
    line: &[u8],
) -> Vec<ScanMatch> {
    let compiled = scanner.get_or_insert_with(|| Scanner::new(rules.to_vec()).ok());
    let hits = compiled.as_mut().map(|scanner| scanner.all(id, number, line));
    hits.unwrap_or_default()
}
