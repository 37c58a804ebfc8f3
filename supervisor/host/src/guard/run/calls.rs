//! Trainer calls made by a script: messages of our shims, and trainers that bypassed them.

use super::Guard;
use super::inputs::READS_AT_END;
use crate::address::peer;
use crate::guard::connection::DriverConnection;
use crate::guard::protocol::{CallClaim, FromGuard, FromShim, ScriptWatch, ShimCall};
use crate::guard::protocol::{WAY_VARIABLE, variables};
use crate::guard::tree::TreePhase;
use crate::process::is_alive;
use crate::process::kill::signal_process;
use crate::process::stat::{command_line, proc_stat};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use supervise_core::event::ExitStatus;
use supervise_core::id::{ProcRef, WorkerId};
use supervise_core::spec::script::{CallAnswer, CallBook, CallPlace, ScriptNews, worker_of};
use supervise_trainers::script_call;

const HELD_LIMIT: usize = 64;
const NEWS_LIMIT: usize = 64;
/// How long a script whose call failed may take to exit: `tee` and the like write the last lines meanwhile.
const OVER_MS: u64 = 3000;
const WAIT_MS: u64 = 2000;
const LOOK_MS: u64 = 500;
const LOOK_LIMIT: usize = 1024;

/// Interval, in milliseconds, at which to look for a trainer until one is found: it needs many seconds to its first
/// save.
pub(crate) fn look_every(watch: &ScriptWatch) -> u64 {
    match watch {
        ScriptWatch::Record => 200,
        ScriptWatch::Marks { .. } => 1000,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    book: CallBook,
    shims: Vec<Option<ProcRef>>,
    /// Scripts that exited while their calls run: the worker ends when the call does.
    ended: BTreeMap<usize, ExitStatus>,
    look_at: u64,
    over_at: Option<u64>,
    /// A call that was not learned, and how long it waits for the learned one; with a reason: it is refused then.
    waits: Option<(Option<String>, CallClaim, DriverConnection, u64)>,
    held: Vec<DriverConnection>,
    /// Messages that the supervisor must receive, including one that connects later.
    news: Vec<FromGuard>,
    /// A trainer runs as expected, so nothing more is looked for.
    settled: bool,
}

impl Calls {
    /// Returns true if this worker's script exited while one of its calls runs.
    pub(super) fn has_ended(&self, at: usize) -> bool {
        self.ended.contains_key(&at)
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        let look = (!self.ended.is_empty()).then_some(self.look_at);
        let waits = self.waits.as_ref().map(|(.., until)| *until);
        [look, waits, self.over_at].into_iter().flatten().min()
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        let calls = self.book.calls().iter().enumerate();
        calls.filter(|(_, call)| call.end.is_none()).map(|(at, _)| at)
    }

    /// Running calls whose shim was killed, and the trainer with it.
    fn lost(&self) -> Vec<usize> {
        let is_gone = |at: &usize| matches!(self.shims.get(*at), Some(Some(shim)) if !is_alive(*shim));
        self.running().filter(is_gone).collect()
    }
}

impl Guard {
    /// Handles a shim's message. Its connection stays open if it has to wait.
    pub(super) fn on_shim(&mut self, word: FromShim, mut from: DriverConnection, now: u64) {
        match word {
            FromShim::Passes { .. } => return self.tell(FromGuard::Shim(word)),
            FromShim::Starts { rank, mut claim } => {
                claim.place.rank = claim.place.rank.or(rank);
                return self.on_call(None, claim, from, now);
            }
            FromShim::Refuses { why, claim } => return self.on_call(Some(why), claim, from, now),
            FromShim::Returned { call, status } => {
                self.on_return(call, status, now);
                // A shim that has exited does not need the answer.
                let _ = from.send(FromGuard::MayStart);
                return;
            }
            FromShim::Spoilt { what } => self.news(FromGuard::Script(ScriptNews::Spoilt { what })),
            // Only a recorder asks for calls.
            FromShim::Called(_) | FromShim::Trains { .. } if self.order.script != Some(ScriptWatch::Record) => return,
            word => self.news(FromGuard::Shim(word)),
        }
        self.hold(from);
    }

    fn hold(&mut self, caller: DriverConnection) {
        if self.calls.held.len() < HELD_LIMIT {
            self.calls.held.push(caller);
        }
    }

    /// Handles a trainer call; `refused`: it is not the learned call.
    fn on_call(&mut self, refused: Option<String>, claim: CallClaim, mut from: DriverConnection, now: u64) {
        let fits = refused.is_none();
        let book = &self.calls.book;
        let answer = book.answer(&claim.as_call(), fits, claim.is_learnt);
        match answer {
            CallAnswer::Start => return self.begin_call(claim, from),
            CallAnswer::Wait => {
                let until = now.saturating_add(WAIT_MS);
                let before = self.calls.waits.replace((refused, claim, from, until));
                if let Some((.., caller, _)) = before {
                    self.hold(caller);
                }
                return;
            }
            CallAnswer::Again => self.news(FromGuard::Shim(FromShim::Again)),
            CallAnswer::HoldBack { at_once } => {
                self.news(FromGuard::Script(ScriptNews::HeldBack {
                    what: claim.what,
                    at_once,
                }));
                if at_once {
                    let _ = from.send(held_back());
                    return;
                }
            }
            CallAnswer::Over => self.calls.over_at = self.calls.over_at.map(|_| now),
        }
        self.hold(from);
    }

    fn begin_call(&mut self, claim: CallClaim, mut from: DriverConnection) {
        let at = self.script_of(claim.place);
        let shim = peer(&from.fd()).and_then(proc_stat).map(|s| s.proc_ref());
        // Output that the script printed before counts as context.
        self.drain(at, READS_AT_END);
        let worker = self.workers.get_mut(at);
        let (id, line, output) = worker.map_or((WorkerId(0), 0, None), |w| (w.id, w.lines.complete(), w.output_path()));
        if self.calls.book.of(id, self.workers.len()).next().is_none() {
            self.facts.forget(id, line);
            self.news(FromGuard::Script(ScriptNews::Called {
                worker: id,
                line,
                what: claim.what.clone(),
            }));
        }
        let call = self.calls.book.begin(claim.as_call());
        self.calls.shims.push(shim);
        let _ = from.send(FromGuard::MayStart);
        let _ = from.send(FromGuard::Goes { call, output });
        if let Some((_, claim, mut other, _)) = self.calls.waits.take() {
            let what = claim.what;
            self.news(FromGuard::Script(ScriptNews::HeldBack { what, at_once: true }));
            let _ = other.send(held_back());
        }
    }

    fn script_of(&self, place: CallPlace) -> usize {
        usize::try_from(worker_of(place, self.workers.len()).0).unwrap_or_default()
    }

    fn on_return(&mut self, call: usize, status: ExitStatus, now: u64) {
        let Some(place) = self.calls.book.calls().get(call).map(|c| c.place) else {
            return;
        };
        let at = self.script_of(place);
        self.drain(at, READS_AT_END);
        let Some(ended) = self.calls.book.end(call, status) else {
            return;
        };
        let what = ended.what.clone();
        self.news(FromGuard::Script(ScriptNews::Returned { what, status }));
        if !status.is_success() && !self.order.patient {
            self.calls.over_at = self.calls.over_at.or(Some(now.saturating_add(OVER_MS)));
        }
        self.settle_script(at, now);
    }

    /// Once all calls of an exited script have ended, gives the script their status.
    fn settle_script(&mut self, at: usize, now: u64) {
        if let Some(own) = self.calls.ended.remove(&at) {
            self.on_worker_end(at, own, now);
        }
    }

    /// Status of a worker that exited, from its script's calls if it made any. `None`: one of them is still running.
    pub(super) fn status_by_calls(&mut self, at: usize, own: ExitStatus, now: u64) -> Option<ExitStatus> {
        let refuses = |(why, claim, ..): &(Option<String>, CallClaim, DriverConnection, u64)| {
            why.is_some() || claim.other.is_some()
        };
        if self.calls.waits.as_ref().is_some_and(refuses) {
            self.end_wait(u64::MAX);
        }
        let id = self.workers.get(at)?.id;
        let lost = self.calls.lost();
        for call in lost {
            self.end_lost(call);
        }
        let Some(status) = self.calls.book.status(id, self.workers.len(), own) else {
            self.calls.ended.insert(at, own);
            self.calls.look_at = now.saturating_add(LOOK_MS);
            return None;
        };
        let was_called = self.calls.book.of(id, self.workers.len()).next().is_some();
        if was_called && status.is_success() && !own.is_success() && matches!(self.tree.end, TreePhase::Running) {
            self.news(FromGuard::Script(ScriptNews::Failed { status: own }));
        }
        Some(status)
    }

    /// Ends a call whose shim was killed, and the trainer with it.
    fn end_lost(&mut self, call: usize) {
        let status = ExitStatus::Signal(libc::SIGKILL);
        if let Some(ended) = self.calls.book.end(call, status) {
            let what = ended.what.clone();
            self.news(FromGuard::Script(ScriptNews::Returned { what, status }));
        }
    }

    pub(super) fn end_calls(&mut self, now: u64) {
        let running: Vec<usize> = self.calls.running().collect();
        for call in running {
            self.end_lost(call);
        }
        self.settle_scripts(now);
    }

    fn settle_scripts(&mut self, now: u64) {
        let ended: Vec<usize> = self.calls.ended.keys().copied().collect();
        for at in ended {
            self.settle_script(at, now);
        }
    }

    pub(super) fn look_at_scripts(&mut self, now: u64) {
        self.end_wait(now);
        if !self.calls.ended.is_empty() && now >= self.calls.look_at {
            self.settle_scripts(now);
        }
        if self.calls.over_at.is_some_and(|at| now >= at) {
            self.calls.over_at = None;
            self.leave_scripts(now);
        }
    }

    /// After a failed call, does not wait for the rest of the script.
    fn leave_scripts(&mut self, now: u64) {
        let workers = self.workers.len();
        for at in 0..workers {
            let Some(worker) = self.workers.get(at).filter(|w| w.exit.is_none()) else {
                continue;
            };
            let status = self.calls.book.status(worker.id, workers, ExitStatus::Code(0));
            if status.is_some_and(|s| !s.is_success()) {
                self.calls.ended.remove(&at);
                self.on_worker_end(at, ExitStatus::Unknown, now);
            }
        }
    }

    /// The learned call has not come: accept a call whose root differs only in a date, and refuse any other.
    fn end_wait(&mut self, now: u64) {
        match self.calls.waits.take_if(|(.., until)| now >= *until) {
            Some((None, claim, caller, _)) if claim.other.is_none() => self.begin_call(claim, caller),
            Some((refused, claim, caller, _)) => {
                let why = refused.or_else(|| claim.other.clone()).unwrap_or_default();
                self.news(FromGuard::Shim(FromShim::Refuses { why, claim }));
                self.hold(caller);
            }
            None => {}
        }
    }

    pub(super) fn signal_calls(&self, signal: i32) {
        if self.calls.ended.is_empty() {
            return;
        }
        for shim in self.calls.running().filter_map(|at| *self.calls.shims.get(at)?) {
            let _ = signal_process(shim, signal);
        }
    }

    fn news(&mut self, word: FromGuard) {
        if self.calls.news.len() < NEWS_LIMIT {
            self.calls.news.push(word.clone());
        }
        self.tell_in_order(word);
    }

    /// Repeats what an earlier supervisor may not have received.
    pub(super) fn repeat_news(&mut self) {
        for word in self.calls.news.clone() {
            self.tell(word);
        }
    }

    pub(super) fn look_at_calls(&mut self) {
        let Some(watch) = self.order.script.clone().filter(|_| !self.calls.settled) else {
            return;
        };
        let known: Vec<i32> = self.tree.known_pids().take(LOOK_LIMIT).collect();
        for pid in known {
            let Some(words) = trainer(pid) else { continue };
            self.calls.settled = true;
            self.tree.hurry(None);
            match &watch {
                ScriptWatch::Record => {
                    let called = Box::new(called(pid, words));
                    return self.news(FromGuard::Shim(FromShim::Called(called)));
                }
                ScriptWatch::Marks { ours } if !script_call::is_marked(&words, ours) => {
                    return self.news(FromGuard::Shim(FromShim::Unmarked { words }));
                }
                ScriptWatch::Marks { .. } => {}
            }
        }
    }
}

fn held_back() -> FromGuard {
    FromGuard::HeldBack {
        why: "another training of this script is running: one `supervise run` is one training, so supervise each by itself"
            .to_owned(),
    }
}

/// The command line of a process, if it is a trainer and not a shim about to become one.
fn trainer(pid: i32) -> Option<Vec<String>> {
    let before = program(pid)?;
    let words = command_line(pid)?;
    let is_trainer = script_call::is_trainer(&words) && Some(&before) == program(pid).as_ref();
    (is_trainer && Some(before) != program(std::process::id())).then_some(words)
}

fn program(pid: impl std::fmt::Display) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn called(pid: i32, words: Vec<String>) -> ShimCall {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|b| *b == b'=')?;
        let (name, value) = (entry.get(..at)?, entry.get(at + 1..)?);
        let os = |b: &[u8]| OsString::from(OsStr::from_bytes(b));
        (name != WAY_VARIABLE.as_bytes()).then(|| (os(name), os(value)))
    };
    ShimCall {
        words,
        cwd: cwd
            .as_deref()
            .and_then(Path::to_str)
            .map_or_else(|| "/".into(), Utf8PathBuf::from),
        env: variables(environ.split(|b| *b == 0).filter_map(pair)),
        past: true,
    }
}
