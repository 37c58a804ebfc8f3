//! The driver's side of its two I/O workers: one question at a time each, with a deadline that is only a fact.

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

/// An I/O worker that says nothing for so long is stalled.
const PATIENCE: Ms = Ms(15_000);
/// A lease is renewed at most this often.
const BUMPS: Ms = Ms(250);
/// An I/O worker that is not needed any more may take so long to write down what it has proven.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(2);
/// An I/O worker that lives for so long and dies then is replaced at once.
const YOUNG: Ms = Ms(10_000);
/// One that died young is replaced after this, doubled with each in a row up to the second.
const PAUSE: Ms = Ms(100);
const PAUSE_LIMIT: Ms = Ms(5_000);
/// So many that died young in a row are no accident.
const IN_A_ROW: u32 = 5;
/// While an answer is waited for, it is looked this often whether somebody stopped the I/O worker. One look is not enough: a job that
/// is suspended and resumed as a whole goes on process by process.
const STOPPED_LOOK: Ms = Ms(1_000);

/// Purpose of an answer.
#[derive(Debug)]
pub(super) enum IoPurpose {
    /// A scan.
    Scan,
    /// The free space of the checkpoint root's disk.
    Space,
    /// Use of the checkpoint root's disk after this save of this attempt.
    Usage(AttemptNo, Step),
    /// The numbers in a step, for this attempt.
    Finite(AttemptNo, CkptId),
    /// An act that is done when this is.
    Act(ActId),
    /// A copy that is made beside the questions: its answer says that it began.
    Keep(ActId),
    /// The pins of a resume point, right before its launch.
    Pins(ActId, Box<LaunchOrder>),
    /// Journal lines up to this sequence number.
    Append(u64),
    /// The lease.
    Bump,
    /// A root that a trainer was seen to save in.
    Seen(Box<TrainerSeen>),
    /// Nobody waits for it.
    Nothing,
    /// The beginning of the term.
    Setup,
}

/// An I/O worker process.
pub(super) struct IoWorker {
    tx: mpsc::UnboundedSender<Vec<u8>>,
    lines: Lines<BufReader<ChildStdout>>,
    queue: VecDeque<(IoPurpose, IoQuestion)>,
    current: Option<(u64, IoPurpose, Tick)>,
    next: u64,
    name: &'static str,
    exe: Utf8PathBuf,
    /// Its output came to an end: it is dead, whoever hears of it and whenever.
    ended: bool,
    /// When it was started, by the boot's clock, and how many before it, in a row, died young.
    born: u64,
    died_young: u32,
    /// When another one may be started in its place, where that failed before.
    not_before: u64,
    /// Since when it is known to be dead.
    ended_at: u64,
    /// When it is looked at next, by the boot's clock, and whether it was stopped at the last look.
    looked_next: u64,
    stopped: bool,
    /// It was stopped, and killed for it.
    given_up: bool,
    replaced: bool,
    pub(super) stalled: bool,
    pub(super) child: Child,
}

impl IoWorker {
    /// Starts an I/O worker from our own program.
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
                // An I/O worker that is gone is seen by the end of its output.
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

    /// It is dead.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// It has been dead for so long, and nothing could take its place.
    pub(super) fn is_gone_for(&self, span: Ms) -> bool {
        self.ended && boottime_ms().saturating_sub(self.ended_at) >= span.0
    }

    /// It took another one's place.
    pub(super) fn is_a_replacement(&self) -> bool {
        self.replaced
    }

    /// How long until a dead one is to be replaced; `None` while it lives. The first is replaced at once.
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

    /// How long until it is to be looked at; `None` while it is asked nothing, or is dead.
    pub(super) fn looked_in(&self) -> Option<Ms> {
        let waits = self.current.is_some() && !self.ended;
        waits.then(|| Ms(self.looked_next.saturating_sub(boottime_ms())))
    }

    /// Kills an I/O worker that somebody stopped while it is asked something: it is dead from then on, and is replaced. One that hangs
    /// in the kernel is not meant, nor one that is slow.
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

    /// Starts another one in its place, and gives back what it left: it is asked nothing yet.
    ///
    /// # Errors
    /// None can be started now; it is tried again after a pause.
    pub(super) fn replace(&mut self) -> std::io::Result<Self> {
        let mut fresh = Self::start(&self.exe, self.name).inspect_err(|_| {
            self.not_before = boottime_ms().saturating_add(PAUSE_LIMIT.0);
        })?;
        if boottime_ms().saturating_sub(self.born) < YOUNG.0 {
            fresh.died_young = self.died_young.saturating_add(1);
        }
        fresh.replaced = true;
        // One whose output ended in another way than by its death.
        let _ = self.child.start_kill();
        Ok(std::mem::replace(self, fresh))
    }

    /// Died young so often in a row that another one would too; how the last one ended, in words.
    pub(super) fn is_hopeless(&mut self) -> Option<String> {
        (self.ended && self.died_young >= IN_A_ROW).then(|| self.end_words())
    }

    /// How a dead one ended, in words.
    fn end_words(&mut self) -> String {
        if self.given_up {
            return "the helper that works on files was stopped (SIGSTOP or SIGTSTP), and was killed".to_owned();
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
        format!("the helper that works on files {how}")
    }

    /// Queues a question.
    pub(super) fn ask(&mut self, tag: IoPurpose, ask: IoQuestion, now: Tick) {
        self.queue.push_back((tag, ask));
        self.send(now);
    }

    /// Something like it is asked, and was not answered.
    pub(super) fn asks(&self, what: impl Fn(&IoPurpose) -> bool) -> bool {
        self.current
            .iter()
            .map(|(_, tag, _)| tag)
            .chain(self.queue.iter().map(|(tag, _)| tag))
            .any(what)
    }

    /// Nothing is being asked.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// A scan's answer is not waited for any more: the next question goes out at once, and the I/O worker ends a long
    /// read when it hears it.
    pub(super) fn supersede_scans(&mut self) {
        self.queue.retain(|(tag, _)| !matches!(tag, IoPurpose::Scan));
        if matches!(self.current, Some((_, IoPurpose::Scan, _))) {
            self.current = None;
        }
    }

    /// Lets the I/O worker end: it writes down what it has proven and goes. One that hangs is left behind.
    pub(super) async fn end(&mut self) {
        // Its input closes with the last sender.
        self.tx = mpsc::unbounded_channel().0;
        if !self.stalled {
            let _ = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
        }
    }

    /// Its work is nobody's any more. One that cannot be killed now dies with what it waits for.
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
            // A writer that is gone means an I/O worker that is gone: its output ends too.
            let _ = self.tx.send(line);
        }
        self.current = Some((id, tag, now.after(PATIENCE)));
        // An answer mostly comes before the first look.
        (self.stopped, self.looked_next) = (false, boottime_ms().saturating_add(STOPPED_LOOK.0));
    }

    /// When its silence becomes a fact.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.current
            .as_ref()
            .filter(|_| !self.stalled)
            .map(|(_, _, until)| *until)
    }

    /// Takes a reply in; `Some`: the answer to the present question.
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

/// The next line of an I/O worker; `None` once, at its end, which stands in the I/O worker from then on. Cancel safe.
pub(super) async fn line(io_worker: &mut IoWorker) -> Option<String> {
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
        // That it ended is seen to by `check_io_workers`.
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
            self.printer.progress(&self.state, &self.spec);
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
            IoPurpose::Append(_) | IoPurpose::Bump | IoPurpose::Nothing | IoPurpose::Setup => {}
        }
    }

    /// Tells a new work I/O worker what it is for.
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
