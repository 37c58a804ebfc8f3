//! The driver's side of its two I/O workers: each answers one question at a time; a missed deadline only becomes a fact.

mod replace;

use super::Driver;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use supervise_core::checkpoint::CkptId;
use supervise_core::event::{ActError, ActOutput, EventKind, TimerKey, signal_name};
use supervise_core::id::{ActId, AttemptNo, Ms, Step, Tick};
use supervise_core::journal::record::{Act, ActKind, LaunchOrder};
use supervise_core::spec::seen::TrainerSeen;
use supervise_host::io_worker::{DiskRoom, IoAnswer, IoQuestion, IoReply, IoRequest, NO_THREAD, PathAnswer};
use supervise_host::process::{boottime_ms, own_program, proc_stat};
use supervise_host::wire;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

/// An I/O worker that is silent for this long is stalled.
const PATIENCE: Ms = Ms(15_000);
/// Shortest interval between two renewals of the lease.
const BUMPS: Ms = Ms(250);
/// Time for an I/O worker that is no longer needed to write down what it has proven.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(2);
/// An I/O worker that ran for this long before it died is replaced at once.
const YOUNG: Ms = Ms(10_000);
/// Pause before an I/O worker that died young is replaced; doubled for each one in a row, up to the second.
const PAUSE: Ms = Ms(100);
const PAUSE_LIMIT: Ms = Ms(5_000);
/// This many early deaths in a row are no accident.
const IN_A_ROW: u32 = 5;
/// How often to check whether the I/O worker was stopped while an answer is due. One check is not enough: a job that is suspended
/// and resumed continues process by process.
const STOPPED_LOOK: Ms = Ms(1_000);

#[derive(Debug)]
pub(super) enum IoPurpose {
    Scan,
    Space,
    /// Usage of the checkpoint root's disk after this save of this attempt.
    Usage(AttemptNo, Step),
    /// Whether the numbers in a step are finite, for this attempt.
    Finite(AttemptNo, CkptId),
    /// An act that is complete with this answer.
    Act(ActId),
    /// A copy made in the background: the answer says that it began.
    Keep(ActId),
    /// The pins of a resume point, right before its launch.
    Pins(ActId, Box<LaunchOrder>),
    /// A request for a save.
    Save(SavePurpose),
    Append(u64),
    Bump,
    /// A root that a trainer was seen to save in.
    Seen(Box<TrainerSeen>),
    /// The answer is ignored.
    Nothing,
    Setup,
}

/// What is done with an attempt's files of requests for a save.
#[derive(Debug)]
pub(super) enum SavePurpose {
    /// A request is written.
    Request(ActId),
    /// The empty file is there, and its attempt can be launched.
    Prepared(ActId, Box<LaunchOrder>),
    Answer(AttemptNo, u64),
}

pub(super) struct IoWorkerProcess {
    tx: mpsc::UnboundedSender<Vec<u8>>,
    lines: Lines<BufReader<ChildStdout>>,
    queue: VecDeque<(IoPurpose, IoQuestion)>,
    current: Option<(u64, IoPurpose, Tick)>,
    next: u64,
    name: &'static str,
    exe: Utf8PathBuf,
    /// Its output ended: it is dead, even if that was not handled yet.
    ended: bool,
    /// When it was started (boot clock, ms), and how many before it died young in a row.
    born: u64,
    died_young: u32,
    /// Earliest time for a replacement, if one could not be started before.
    not_before: u64,
    ended_at: u64,
    /// When to check next whether it is stopped (boot clock, ms), and whether it was at the last check.
    looked_next: u64,
    stopped: bool,
    /// It was found stopped, and killed.
    given_up: bool,
    replaced: bool,
    pub(super) stalled: bool,
    pub(super) child: Child,
}

impl IoWorkerProcess {
    /// Starts an I/O worker from this executable.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(exe: &Utf8Path, name: &'static str) -> std::io::Result<Self> {
        let mut child = Command::new(own_program(exe.as_std_path()))
            .arg0(exe)
            .args(["__io_worker", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Out of reach of the terminal's interrupt.
            .process_group(0)
            .spawn()?;
        let mut input = child.stdin.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        let output = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        let (tx, mut rx) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(bytes) = rx.recv().await {
                // Its exit is noticed by the end of its output.
                if input.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let lines = BufReader::new(output).lines();
        Ok(Self {
            tx,
            lines,
            queue: VecDeque::new(),
            current: None,
            next: 1,
            name,
            exe: exe.to_owned(),
            ended: false,
            born: boottime_ms(),
            died_young: 0,
            not_before: 0,
            ended_at: 0,
            looked_next: 0,
            stopped: false,
            given_up: false,
            replaced: false,
            stalled: false,
            child,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns true if it has been dead for this long without a replacement.
    pub(super) fn is_gone_for(&self, span: Ms) -> bool {
        self.ended && boottime_ms().saturating_sub(self.ended_at) >= span.0
    }

    /// Returns true if it replaced another one.
    pub(super) fn is_a_replacement(&self) -> bool {
        self.replaced
    }

    /// Time until a dead one is to be replaced; `None` while it is running. The first is replaced at once.
    pub(super) fn replaced_in(&self) -> Option<Ms> {
        if !self.ended {
            return None;
        }
        let pause = match self.died_young {
            0 => Ms(0),
            n => Ms((PAUSE.0 << n.min(10)).min(PAUSE_LIMIT.0)),
        };
        let at = self.born.saturating_add(pause.0).max(self.not_before);
        Some(Ms(at.saturating_sub(boottime_ms())))
    }

    /// Time until the next check; `None` if no answer is due or it is dead.
    pub(super) fn looked_in(&self) -> Option<Ms> {
        let waits = self.current.is_some() && !self.ended;
        waits.then(|| Ms(self.looked_next.saturating_sub(boottime_ms())))
    }

    /// Kills an I/O worker that was stopped (SIGSTOP) while an answer is due, so that it is replaced. Does not apply to one that
    /// hangs in the kernel or is slow.
    pub(super) fn give_up_if_stopped(&mut self) {
        if self.looked_in() != Some(Ms(0)) {
            return;
        }
        let now = boottime_ms();
        self.looked_next = now.saturating_add(STOPPED_LOOK.0);
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let stopped = pid.and_then(proc_stat).is_some_and(|s| s.is_stopped());
        if stopped && self.stopped {
            let _ = self.child.start_kill();
            (self.ended, self.given_up, self.ended_at) = (true, true, now);
        }
        self.stopped = stopped;
    }

    /// Replaces it and returns the unanswered questions.
    ///
    /// # Errors
    /// No process can be started now; it is tried again after a pause.
    pub(super) fn replace(&mut self) -> std::io::Result<Self> {
        let mut fresh = Self::start(&self.exe, self.name).inspect_err(|_| {
            self.not_before = boottime_ms().saturating_add(PAUSE_LIMIT.0);
        })?;
        if boottime_ms().saturating_sub(self.born) < YOUNG.0 {
            fresh.died_young = self.died_young.saturating_add(1);
        }
        fresh.replaced = true;
        // Its output may have ended without its death.
        let _ = self.child.start_kill();
        Ok(std::mem::replace(self, fresh))
    }

    /// If so many died young in a row that another one would too: how the last one ended.
    pub(super) fn is_hopeless(&mut self) -> Option<String> {
        (self.ended && self.died_young >= IN_A_ROW).then(|| self.end_words())
    }

    fn end_words(&mut self) -> String {
        if self.given_up {
            return "the I/O worker was stopped (SIGSTOP or SIGTSTP), and was killed".to_owned();
        }
        let how = match self.child.try_wait() {
            Ok(Some(status)) => match (status.code(), status.signal()) {
                (Some(NO_THREAD), _) => {
                    let none = std::io::Error::from_raw_os_error(libc::EAGAIN);
                    format!("could not start a thread: {none} (see `ulimit -u`, `ulimit -v`)")
                }
                (Some(code), _) => format!("ended with exit code {code}"),
                (None, Some(signal)) => format!("was ended by {}", signal_name(signal)),
                (None, None) => "ended".to_owned(),
            },
            _ => "ended".to_owned(),
        };
        format!("the I/O worker {how}")
    }

    pub(super) fn ask(&mut self, tag: IoPurpose, ask: IoQuestion, now: Tick) {
        self.queue.push_back((tag, ask));
        self.send(now);
    }

    /// Returns true if a matching question is unanswered.
    pub(super) fn asks(&self, what: impl Fn(&IoPurpose) -> bool) -> bool {
        self.current
            .iter()
            .map(|(_, tag, _)| tag)
            .chain(self.queue.iter().map(|(tag, _)| tag))
            .any(what)
    }

    /// What it was asked and did not answer, in order.
    pub(super) fn unanswered(&mut self) -> Vec<IoPurpose> {
        let current = self.current.take().map(|(_, tag, _)| tag);
        current
            .into_iter()
            .chain(self.queue.drain(..).map(|(tag, _)| tag))
            .collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// Stops waiting for a scan: the next question is sent at once, and the I/O worker aborts a long read when it receives it.
    pub(super) fn supersede_scans(&mut self) {
        self.queue.retain(|(tag, _)| !matches!(tag, IoPurpose::Scan));
        if matches!(self.current, Some((_, IoPurpose::Scan, _))) {
            self.current = None;
        }
    }

    /// Lets the I/O worker write down what it has proven and exit. One that hangs is left behind.
    pub(super) async fn end(&mut self) {
        // Its input closes with the last sender.
        self.tx = mpsc::unbounded_channel().0;
        if !self.stalled {
            let _ = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
        }
    }

    /// Discards its work. One that cannot be killed now exits when the kernel releases it.
    pub(super) fn abandon(&mut self) {
        let _ = self.child.start_kill();
    }

    fn send(&mut self, now: Tick) {
        if self.current.is_some() {
            return;
        }
        let Some((tag, ask)) = self.queue.pop_front() else {
            return;
        };
        let id = self.next;
        self.next += 1;
        if let Ok(line) = wire::encode(&IoRequest { id, ask }) {
            // If the writer is gone, the I/O worker is too: its output ends as well.
            let _ = self.tx.send(line);
        }
        self.current = Some((id, tag, now.after(PATIENCE)));
        // Most answers come before the first check.
        (self.stopped, self.looked_next) = (false, boottime_ms().saturating_add(STOPPED_LOOK.0));
    }

    /// When its silence becomes a fact.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.current
            .as_ref()
            .filter(|_| !self.stalled)
            .map(|(_, _, until)| *until)
    }

    /// Handles a reply; returns the answer if it completes the current question.
    pub(super) fn take(&mut self, reply: IoReply, now: Tick) -> Option<(IoPurpose, Result<IoAnswer, ActError>)> {
        match reply {
            IoReply::Working { .. } => {
                if let Some((_, _, until)) = &mut self.current {
                    *until = now.after(PATIENCE);
                }
                None
            }
            IoReply::Done { id, answer } if self.current.as_ref().is_some_and(|(c, _, _)| *c == id) => {
                let (_, tag, _) = self.current.take()?;
                self.send(now);
                Some((tag, answer.map(|a| *a)))
            }
            IoReply::Done { .. } | IoReply::Touched | IoReply::Kept { .. } => None,
        }
    }
}

/// The next line of an I/O worker; `None` once, when its output ended. Cancel safe.
pub(super) async fn line(io_worker: &mut IoWorkerProcess) -> Option<String> {
    if io_worker.ended {
        return std::future::pending().await;
    }
    match io_worker.lines.next_line().await {
        Ok(Some(line)) => Some(line),
        Ok(None) | Err(_) => {
            io_worker.ended = true;
            io_worker.ended_at = boottime_ms();
            None
        }
    }
}

impl Driver {
    pub(super) fn on_work_line(&mut self, line: Option<String>) {
        // `check_io_workers` handles its end.
        let Some(line) = line else { return };
        let Ok(reply) = serde_json::from_slice::<IoReply>(line.as_bytes()) else {
            return;
        };
        let now = self.now();
        if let IoReply::Kept { act, result } = reply {
            return self.on_kept(act, result);
        }
        if matches!(reply, IoReply::Touched) {
            let soon = now.after(Ms(0));
            if self.timers.get(&TimerKey::ScanDue).is_some_and(|at| *at > soon) {
                self.timers.insert(TimerKey::ScanDue, soon);
            }
            return;
        }
        // It may be another one's silence that ends.
        if std::mem::take(&mut self.work.stalled) || self.state.context.io_stalled.is_some() {
            self.feed(EventKind::IoRecovered);
        }
        if let IoReply::Working { bytes, of, .. } = reply
            && of > 0
        {
            self.printer.working(Some((bytes, of)));
            self.printer.progress(&self.state, &self.spec, &self.ledger);
        }
        if let Some((tag, answer)) = self.work.take(reply, now) {
            self.on_work_answer(tag, answer);
        }
    }

    fn on_work_answer(&mut self, tag: IoPurpose, answer: Result<IoAnswer, ActError>) {
        self.printer.working(None);
        match tag {
            IoPurpose::Scan => self.on_scanned(answer),
            IoPurpose::Act(act) => {
                let prunes = |a: &Act| matches!(a.kind, ActKind::Prune(_));
                let pruned = self.state.pending.get(&act).is_some_and(prunes);
                let result = answer.map(|answer| match answer {
                    IoAnswer::Resharded(derived) => ActOutput::Resharded(derived),
                    _ if pruned => ActOutput::Pruned,
                    _ => ActOutput::Done,
                });
                self.feed(EventKind::ActDone { act, result });
            }
            IoPurpose::Pins(act, order) => self.on_pins(act, &order, answer),
            IoPurpose::Keep(act) => {
                if let Err(e) = answer {
                    self.on_kept(act, Err(e));
                }
            }
            IoPurpose::Space => {
                let DiskRoom { free, files, works } = match answer {
                    Ok(IoAnswer::Seen(Ok(PathAnswer::Disk(room)))) => room,
                    _ => DiskRoom::default(),
                };
                self.feed(EventKind::Space { free, files, works });
            }
            IoPurpose::Seen(seen) => self.on_seen_root(*seen, &answer),
            IoPurpose::Usage(attempt, step) => self.on_disk_usage(attempt, step, answer),
            IoPurpose::Finite(attempt, ckpt) => {
                let found = match answer {
                    Ok(IoAnswer::Finite(found)) => found,
                    _ => None,
                };
                let (odd, tensors) = found.unzip();
                self.feed(EventKind::Finite {
                    attempt,
                    ckpt,
                    odd,
                    tensors,
                });
            }
            IoPurpose::Save(purpose) => self.on_save_file(purpose, answer),
            IoPurpose::Append(_) | IoPurpose::Bump | IoPurpose::Nothing | IoPurpose::Setup => {}
        }
    }

    /// Tells a new work I/O worker about the run.
    pub(super) fn introduce(&mut self) {
        let now = self.now();
        let knows = IoQuestion::Spec(Box::new(self.spec.clone()));
        self.work.ask(IoPurpose::Setup, knows, now);
        self.tell_own_steps();
        if self.spec.root.is_some() {
            self.work.ask(IoPurpose::Setup, IoQuestion::Watch, now);
        }
    }

    /// Tells the work I/O worker which steps the journal knows, and how their files were then.
    pub(super) fn tell_own_steps(&mut self) {
        if !self.state.disk.own.is_empty() {
            let now = self.now();
            self.work
                .ask(IoPurpose::Setup, IoQuestion::OwnSteps(self.state.disk.own.clone()), now);
        }
    }
}
