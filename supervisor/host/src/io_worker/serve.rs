//! The I/O worker's loop: one request after the other, and unrequested work in between.
//!
//! A thread reads the requests, so that a long one notices that another waits. Watch events arrive through the same
//! channel. Only this loop changes the tracker.

use super::checkpoint_places::{CheckpointDirs, RunCheckpoints};
use super::copy::{CopyRequest, keep};
use super::edit::{prune, store_dir};
use super::generation_store::GenerationStore;
use super::leftovers;
use super::own_modules::name_own_modules;
use super::prefetch::{PathChange, Prefetch, TOLD};
use super::proof_record::VERIFIED;
use super::protocol::{IoAnswer, IoQuestion, IoReply, IoRequest};
use super::rate_limit::RateLimit;
use super::reply::{TELL, getting_on, say, telling};
use super::reshard_in_place::{Cutter, limits, perform_all};
use super::scan::RootProver;
use super::term::TermOnDisk;
use super::tree::WalkMode;
use super::watch::{Watch, WatchEvent};
use super::write::disk_error;
use super::write::internal;
use crate::process::give_way;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;
use supervise_checkpoint::latest_file::LATEST;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::id::ActId;
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_trainers::{adapter_of, expect};

/// The exit code of an I/O worker that cannot start a thread.
pub const NO_THREAD: i32 = 69;

enum Wake {
    Line(String),
    /// Standard input has ended: the requester has exited.
    End,
    Told(WatchEvent),
}

struct IoService {
    wakes: Sender<Wake>,
    spec: Option<Box<RunSpec>>,
    prover: Option<RootProver>,
    /// For a trainer with a single checkpoint; `prover` is then the live set's.
    generations: Option<GenerationStore>,
    tenure: TermOnDisk,
    watch: Option<Watch>,
    prefetch: Prefetch,
}

/// Niceness of reading checkpoints, so that the training comes first.
const NICE: i32 = 10;
/// Lines read and not answered, besides the current one; the end of input counts as one.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Standard input has ended: the requester has exited, and nothing may be taken on its behalf.
static GONE: AtomicBool = AtomicBool::new(false);

/// Returns true if the supervisor no longer waits for the current answer.
fn another_question_waits() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

fn nobody_listens() -> bool {
    GONE.load(Ordering::Relaxed)
}

fn listen(wakes: &Sender<Wake>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        WAITING.fetch_add(1, Ordering::Relaxed);
        if wakes.send(Wake::Line(line)).is_err() {
            return;
        }
    }
    GONE.store(true, Ordering::Relaxed);
    WAITING.fetch_add(1, Ordering::Relaxed);
    // Without a loop that receives it there is nothing to end.
    let _ = wakes.send(Wake::End);
}

/// Runs an I/O worker until its standard input ends. Returns the exit code.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    if args.first().is_some_and(|name| name == "work") {
        give_way(NICE);
    }
    let (wakes, woken) = channel();
    let io_worker = IoService::new(wakes.clone());
    let listening = std::thread::Builder::new().spawn(move || listen(&wakes));
    match listening {
        Ok(_) => io_worker.serve(&woken),
        Err(e) => {
            tracing::error!("an I/O worker cannot listen to its questions: {e}");
            NO_THREAD
        }
    }
}

impl IoService {
    fn new(wakes: Sender<Wake>) -> Self {
        Self {
            wakes,
            spec: None,
            prover: None,
            generations: None,
            tenure: TermOnDisk::default(),
            watch: None,
            prefetch: Prefetch::default(),
        }
    }

    fn serve(mut self, woken: &Receiver<Wake>) -> i32 {
        let mut lines = VecDeque::new();
        loop {
            let mut next = match self.prefetch.due() {
                _ if !lines.is_empty() => woken.try_recv().ok().map(Ok),
                None => Some(woken.recv().map_err(|_| RecvTimeoutError::Disconnected)),
                Some(at) => Some(woken.recv_timeout(at.saturating_duration_since(Instant::now()))),
            };
            // Watch events are handled before requests, so that an answer includes every change reported before the
            // request.
            let mut top = false;
            while let Some(woke) = next {
                match woke {
                    Ok(Wake::Told(told)) => top |= self.told(told),
                    Ok(line) => lines.push_back(line),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return 0,
                }
                next = woken.try_recv().ok().map(Ok);
            }
            if top {
                self.follow();
            }
            match lines.pop_front() {
                Some(Wake::Line(line)) => {
                    WAITING.fetch_sub(1, Ordering::Relaxed);
                    if let Err(code) = self.line(&line) {
                        return code;
                    }
                }
                Some(_) => break,
                None => self.work(),
            }
        }
        self.end();
        0
    }

    fn line(&mut self, line: &str) -> Result<(), i32> {
        let request: IoRequest = serde_json::from_slice(line.as_bytes()).map_err(|e| {
            tracing::error!("an I/O worker cannot read its request: {e}");
            70
        })?;
        let id = request.id;
        let answer = self.answer(id, request.ask).map(Box::new);
        let scanned = matches!(&answer, Ok(a) if matches!(**a, IoAnswer::Scan(_)));
        say(&IoReply::Done { id, answer });
        if !another_question_waits() {
            self.tenure.snapshot(false);
        }
        if scanned && let (Some(prover), Some(watch)) = (self.prover.as_mut(), self.watch.as_mut()) {
            watch.follow(prover);
            self.prefetch.noticed(prover, TOLD);
        }
        Ok(())
    }

    /// Handles a watch event. Returns whether directories may have been created or removed.
    fn told(&mut self, told: WatchEvent) -> bool {
        let (Some(prover), Some(watch)) = (self.prover.as_mut(), self.watch.as_mut()) else {
            return false;
        };
        watch.took();
        match told {
            WatchEvent::Top => true,
            WatchEvent::Lost => {
                prover.lost = true;
                watch.caught_up();
                true
            }
            // A newer release of AReaL ends each save with it, and writes nothing in place.
            WatchEvent::Changed { path, closed: true }
                if self.generations.is_some() && path.file_name() == Some(LATEST) =>
            {
                say(&IoReply::Touched);
                false
            }
            WatchEvent::Changed { path, closed } => match self.prefetch.told(prover, &path, closed) {
                PathChange::NewDir => true,
                PathChange::Gone => {
                    watch.gone(&path);
                    true
                }
                PathChange::Plain => false,
            },
        }
    }

    /// Directories were created or removed: updates the watches of the newest steps.
    fn follow(&mut self) {
        let (Some(prover), Some(watch)) = (self.prover.as_mut(), self.watch.as_mut()) else {
            return;
        };
        // The next scan reports what cannot be read now.
        let _ = prover.refresh(WalkMode::Quick);
        watch.follow(prover);
        self.prefetch.noticed(prover, TOLD);
        if watch.is_partial() {
            self.prefetch.poll_from_now_on();
        }
    }

    fn work(&mut self) {
        if let Some(prover) = &mut self.prover
            && self.prefetch.work(prover, &another_question_waits)
        {
            say(&IoReply::Touched);
        }
    }

    fn end(&mut self) {
        if let Some(prover) = &mut self.prover {
            self.prefetch.write_down(prover);
        }
    }

    fn records(&self) -> Option<Utf8PathBuf> {
        self.spec.as_ref().map(|s| s.run_dir.join(VERIFIED))
    }

    fn answer(&mut self, id: u64, ask: IoQuestion) -> Result<IoAnswer, ActError> {
        match ask {
            IoQuestion::Spec(spec) => {
                self.generations = RunCheckpoints::of(&spec)
                    .and_then(|place| GenerationStore::of(&place))
                    .map(|store| store.keeping_records(&spec.run_dir));
                self.prover = match &self.generations {
                    Some(store) => store.live_prover(),
                    None => spec.root.as_ref().map(|root| {
                        RootProver::new(root, adapter_of(&spec), &expect(&spec)).keeping_records(&spec.run_dir)
                    }),
                };
                self.spec = Some(spec);
                Ok(IoAnswer::Done)
            }
            IoQuestion::OwnSteps(own) => {
                if let Some(store) = &mut self.generations {
                    store.know(&own);
                }
                if let Some(prover) = &mut self.prover {
                    prover.own = own;
                }
                Ok(IoAnswer::Done)
            }
            IoQuestion::Open(_)
            | IoQuestion::Peek { .. }
            | IoQuestion::TakeLease { .. }
            | IoQuestion::Begin { .. }
            | IoQuestion::Adopt { .. }
            | IoQuestion::Append { .. }
            | IoQuestion::Bump
            | IoQuestion::Release
            | IoQuestion::Lines { .. }
            | IoQuestion::SaveRequest { .. }
            | IoQuestion::SaveAnswer { .. }
            | IoQuestion::Attempt { .. } => {
                self.tenure.asked = id;
                self.tenure.answer(ask, &nobody_listens)
            }
            IoQuestion::Look(look) => Ok(IoAnswer::Seen(look.here(&mut telling(id)).map_err(Into::into))),
            IoQuestion::Leftovers { run_dir, store } => leftovers::list(&run_dir, &store).map(IoAnswer::Leftovers),
            IoQuestion::Delete { run_dir, store, places } => {
                leftovers::delete(&run_dir, &store, &places).map(|()| IoAnswer::Done)
            }
            other => self.about_the_root(id, other),
        }
    }

    fn about_the_root(&mut self, id: u64, ask: IoQuestion) -> Result<IoAnswer, ActError> {
        let root = self
            .spec
            .as_ref()
            .and_then(|s| s.root.clone())
            .ok_or_else(|| internal("this run has no root"))?;
        let records = self.records();
        let store = self.spec.as_ref().map(|s| store_dir(s, &root)).unwrap_or_default();
        let prover = self
            .prover
            .as_mut()
            .ok_or_else(|| internal("no specification was given"))?;
        match ask {
            IoQuestion::Scan { depth, whole, thorough } => {
                let mut told = Instant::now();
                let rate = self.spec.as_ref().map_or(0, |s| s.policy.proof.background_rate);
                let mut limit = RateLimit::new(if thorough { 0 } else { rate });
                let mut working = |bytes| {
                    limit.hold(bytes, another_question_waits);
                    if told.elapsed() >= TELL {
                        told = Instant::now();
                        say(&IoReply::Working { id, bytes, of: 0 });
                    }
                    !another_question_waits()
                };
                let how = match thorough {
                    true => WalkMode::Thorough,
                    false => WalkMode::Quick,
                };
                let (seen, report) = match &mut self.generations {
                    Some(store) => {
                        let (seen, report) = store.look(prover, depth, whole, how, &mut working);
                        (seen, Some(report))
                    }
                    None => (prover.look(depth, whole, how, &mut working), None),
                };
                self.prefetch.scanned(&seen, depth);
                let mut report = report.unwrap_or(seen);
                if let Some(spec) = &self.spec
                    && let ResumeIntent::Path { path, .. } = &spec.resume
                    && !path.starts_with(&root)
                {
                    report.steps.extend(elsewhere(spec, path, depth, &mut working));
                }
                if let Some(spec) = &self.spec {
                    name_own_modules(spec, &mut report.steps);
                }
                Ok(IoAnswer::Scan(report))
            }
            IoQuestion::Pins { ckpt } if ckpt.0.is_absolute() => {
                let spec = self
                    .spec
                    .as_ref()
                    .ok_or_else(|| internal("no specification was given"))?;
                let found = elsewhere(spec, &ckpt.0, Depth::Structure, &mut |_| true);
                Ok(IoAnswer::Pins(found.map(|c| c.pins)))
            }
            IoQuestion::Pins { ckpt } => {
                let pins = match &mut self.generations {
                    Some(store) => store.pins(prover, &ckpt),
                    None => prover.pins_now(&ckpt),
                };
                let pins = pins.map_err(|e| disk_error(&format!("looking at {ckpt}"), &e))?;
                Ok(IoAnswer::Pins(pins))
            }
            IoQuestion::Finite { ckpt, thorough } => {
                let rate = self.spec.as_ref().map_or(0, |s| s.policy.proof.background_rate);
                let rate = if thorough { 0 } else { rate };
                let (mut limit, mut told) = (RateLimit::new(rate), Instant::now());
                let mut working = |bytes| {
                    limit.hold(bytes, another_question_waits);
                    if told.elapsed() >= TELL {
                        told = Instant::now();
                        say(&IoReply::Working { id, bytes, of: 0 });
                    }
                };
                // A trainer with a single checkpoint has no older steps.
                let odd = match &self.generations {
                    Some(_) => None,
                    None => prover.odd_weights(&ckpt, &mut working),
                };
                Ok(IoAnswer::Finite(odd))
            }
            IoQuestion::Edit { edits, by } => match &self.generations {
                Some(store) => store
                    .perform(&edits, &by, records.as_ref(), &mut telling(id))
                    .map(|()| IoAnswer::Done),
                None => {
                    let memory = self.spec.as_ref().map_or(0, |s| s.policy.proof.memory);
                    let mut cutter = Cutter {
                        root: &root,
                        store: &store,
                        prover,
                        by: &by,
                        records: records.as_deref(),
                        limits: limits(memory),
                    };
                    let mut tell = getting_on(id);
                    let mut go_on = |n, of| {
                        tell(n, of);
                        !nobody_listens()
                    };
                    let done = perform_all(&mut cutter, &edits, &mut go_on)?;
                    Ok(done.map_or(IoAnswer::Done, IoAnswer::Resharded))
                }
            },
            IoQuestion::Prune { steps } => match &self.generations {
                Some(generations) => generations.prune(&steps, records.as_ref()),
                None => prune(&root, &store, &steps, records.as_deref()),
            }
            .map(|()| IoAnswer::Done),
            IoQuestion::Keep {
                act,
                ckpt,
                step,
                pins,
                rate,
            } => {
                let places = self.generations.as_ref().map(|k| k.places.clone());
                let places = places.ok_or_else(|| internal("this trainer keeps each step by itself"))?;
                let reserve = self.spec.as_ref().map_or(0, |s| s.policy.protect.reserve);
                let wanted = CopyRequest {
                    ckpt,
                    step,
                    pins,
                    rate,
                    reserve,
                };
                keep_beside(places, act, wanted)
            }
            IoQuestion::Watch => {
                let wakes = self.wakes.clone();
                let tell = move |told| {
                    // If the loop has ended, there is no receiver.
                    let _ = wakes.send(Wake::Told(told));
                };
                let top = prover.root.clone();
                self.watch = Watch::start(&top, tell, || say(&IoReply::Touched));
                match &mut self.watch {
                    Some(watch) if prover.looked => watch.follow(prover),
                    Some(_) => {}
                    None => self.prefetch.poll_from_now_on(),
                }
                Ok(IoAnswer::Done)
            }
            _ => Err(internal("a question that no I/O worker answers")),
        }
    }
}

/// Copies in a thread: the answer reports the start, and a separate line the result.
fn keep_beside(places: CheckpointDirs, act: ActId, wanted: CopyRequest) -> Result<IoAnswer, ActError> {
    let copying = std::thread::Builder::new().name("keep".to_owned()).spawn(move || {
        let result = keep(&places, &wanted);
        say(&IoReply::Kept { act, result });
    });
    match copying {
        Ok(_) => Ok(IoAnswer::Done),
        Err(e) => Err(internal(&format!("no thread for a copy: {e}"))),
    }
}

/// A step outside the root that the user named, identified by its absolute path.
fn elsewhere(
    spec: &RunSpec,
    path: &Utf8Path,
    depth: Depth,
    working: &mut dyn FnMut(u64) -> bool,
) -> Option<CheckpointSummary> {
    let parent = path.parent()?;
    let name = CkptId(Utf8PathBuf::from(path.file_name()?));
    let mut prover = RootProver::new(parent, adapter_of(spec), &expect(spec));
    let report: ScanReport = prover.scan(depth, 0, working);
    let found = report.steps.into_iter().find(|c| c.id == name)?;
    let mut summary = match found.findings.first() {
        Some(f) if f.code == "unreadable" => found,
        _ => prover.prove(&name, depth, working),
    };
    summary.id = CkptId(path.to_owned());
    Some(summary)
}
