//! The driver's side of its two lanes: one question at a time each, with a deadline that is only a fact.

use super::{Driver, LATE};
use std::collections::VecDeque;
use std::process::Stdio;
use supervise_core::event::{ActError, ActErrorKind, ActOutput, EventKind, TimerKey};
use supervise_core::id::{ActId, Ms, Tick};
use supervise_core::record::LaunchOrder;
use supervise_host::lane::{Answer, LaneReply, LaneRequest, Question};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

/// A lane that says nothing for so long is stalled.
const PATIENCE: Ms = Ms(15_000);
/// A lane that is not needed any more may take so long to write down what it has proven.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(2);

/// What an answer is for.
#[derive(Debug)]
pub(super) enum Tag {
    /// A scan.
    Scan,
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
    /// Nobody waits for it.
    Nothing,
    /// The beginning of the term.
    Setup,
}

/// A lane process.
pub(super) struct Lane {
    tx: mpsc::UnboundedSender<Vec<u8>>,
    lines: Lines<BufReader<ChildStdout>>,
    queue: VecDeque<(Tag, Question)>,
    current: Option<(u64, Tag, Tick)>,
    next: u64,
    name: &'static str,
    pub(super) stalled: bool,
    pub(super) child: Child,
}

impl Lane {
    /// Starts a lane from our own program.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(exe: &camino::Utf8Path, name: &'static str) -> std::io::Result<Self> {
        let mut child = Command::new(exe)
            .args(["__lane", name])
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
                // A lane that is gone is seen by the end of its output.
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
            stalled: false,
            child,
        })
    }

    /// Queues a question.
    pub(super) fn ask(&mut self, tag: Tag, ask: Question, now: Tick) {
        self.queue.push_back((tag, ask));
        self.send(now);
    }

    /// Nothing is being asked.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// A scan's answer is not waited for any more: the next question goes out at once, and the lane ends a long
    /// read when it hears it.
    pub(super) fn supersede_scans(&mut self) {
        self.queue.retain(|(tag, _)| !matches!(tag, Tag::Scan));
        if matches!(self.current, Some((_, Tag::Scan, _))) {
            self.current = None;
        }
    }

    /// Lets the lane end: it writes down what it has proven and goes. One that hangs is left behind.
    pub(super) async fn end(&mut self) {
        // Its input closes with the last sender.
        self.tx = mpsc::unbounded_channel().0;
        if !self.stalled {
            let _ = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
        }
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
        if let Ok(mut line) = serde_json::to_vec(&LaneRequest { id, ask }) {
            line.push(b'\n');
            // A writer that is gone means a lane that is gone: its output ends too.
            let _ = self.tx.send(line);
        }
        self.current = Some((id, tag, now.after(PATIENCE)));
    }

    /// When its silence becomes a fact.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.current
            .as_ref()
            .filter(|_| !self.stalled)
            .map(|(_, _, until)| *until)
    }

    /// Takes a reply in; `Some`: the answer to the present question.
    pub(super) fn take(&mut self, reply: LaneReply, now: Tick) -> Option<(Tag, Result<Answer, ActError>)> {
        match reply {
            LaneReply::Working { .. } => {
                if let Some((_, _, until)) = &mut self.current {
                    *until = now.after(PATIENCE);
                }
                None
            }
            LaneReply::Done { id, answer } if self.current.as_ref().is_some_and(|(c, _, _)| *c == id) => {
                let (_, tag, _) = self.current.take()?;
                self.send(now);
                Some((tag, answer.map(|a| *a)))
            }
            LaneReply::Done { .. } | LaneReply::Touched | LaneReply::Kept { .. } => None,
        }
    }
}

/// The next line of a lane; `None` at its end. Cancel safe.
pub(super) async fn line(lane: &mut Lane) -> Option<String> {
    match lane.lines.next_line().await {
        Ok(Some(line)) => Some(line),
        Ok(None) | Err(_) => {
            // A dead lane is replaced by whoever gets this; it must not make the loop spin.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            None
        }
    }
}

impl Driver {
    pub(super) fn on_work_line(&mut self, line: Option<String>) {
        let Some(line) = line else {
            return self.replace_work_lane();
        };
        let Ok(reply) = serde_json::from_str::<LaneReply>(&line) else {
            return;
        };
        let now = self.now();
        if let LaneReply::Kept { act, result } = reply {
            return self.on_kept(act, result);
        }
        if matches!(reply, LaneReply::Touched) {
            let soon = now.after(Ms(0));
            if self.timers.get(&TimerKey::ScanDue).is_some_and(|at| *at > soon) {
                self.timers.insert(TimerKey::ScanDue, soon);
            }
            return;
        }
        if std::mem::take(&mut self.work.stalled) {
            self.feed(EventKind::LaneRecovered);
        }
        if let Some((tag, answer)) = self.work.take(reply, now) {
            self.on_work_answer(tag, answer);
        }
    }

    fn on_work_answer(&mut self, tag: Tag, answer: Result<Answer, ActError>) {
        match tag {
            Tag::Scan => {
                self.scanning = None;
                let report = match answer {
                    Ok(Answer::Scan(report)) => report,
                    Ok(_) => return,
                    Err(e) => supervise_core::event::ScanReport {
                        unreadable: Some(e.what),
                        ..Default::default()
                    },
                };
                self.feed(EventKind::Checkpoints(report));
                if let Some((depth, whole)) = self.scan_again.take() {
                    self.scan(depth, whole);
                }
            }
            Tag::Act(act) => {
                let result = answer.map(|_| ActOutput::Done);
                self.feed(EventKind::ActDone { act, result });
            }
            Tag::Pins(act, order) => self.on_pins(act, &order, answer),
            Tag::Keep(act) => {
                if let Err(e) = answer {
                    self.on_kept(act, Err(e));
                }
            }
            Tag::Append(_) | Tag::Bump | Tag::Nothing | Tag::Setup => {}
        }
    }

    /// The work lane died (killed, or out of memory): a new one takes its place, what was asked failed.
    fn replace_work_lane(&mut self) {
        let Ok(mut fresh) = Lane::start(&self.exe, "work") else {
            return;
        };
        let now = self.now();
        fresh.ask(Tag::Setup, Question::Spec(Box::new(self.spec.clone())), now);
        if self.spec.root.is_some() {
            fresh.ask(Tag::Setup, Question::Watch, now);
        }
        let mut old = std::mem::replace(&mut self.work, fresh);
        self.scanning = None;
        let asked = old
            .current
            .take()
            .map(|(_, tag, _)| tag)
            .into_iter()
            .chain(old.queue.into_iter().map(|(t, _)| t));
        let error = || ActError {
            what: "the helper that works on files died".into(),
            retryable: true,
            kind: ActErrorKind::Other,
        };
        let keeping = self.keeping();
        for tag in asked.collect::<Vec<_>>() {
            match tag {
                Tag::Scan => self.scan(self.spec.policy.depth, 2),
                Tag::Keep(_) => {}
                Tag::Act(act) | Tag::Pins(act, _) => self.feed(EventKind::ActDone {
                    act,
                    result: Err(error()),
                }),
                Tag::Append(_) | Tag::Bump | Tag::Nothing | Tag::Setup => {}
            }
        }
        if let Some(act) = keeping {
            self.on_kept(act, Err(error()));
        }
    }

    /// Silence beyond patience is a fact, told once.
    pub(super) fn check_lanes(&mut self, now: Tick) {
        if self.work.deadline().is_some_and(|at| at <= now) {
            self.work.stalled = true;
            let what = format!(
                "the {} lane has not answered for {} s",
                self.work.name,
                PATIENCE.0 / 1000
            );
            self.feed(EventKind::LaneStalled { what });
        }
        if self.store.deadline().is_some_and(|at| at <= now) {
            self.store.stalled = true;
            self.book.stalled = true;
            let why = format!(
                "the {} lane has not answered for {} s",
                self.store.name,
                PATIENCE.0 / 1000
            );
            self.feed(EventKind::JournalStalled { why });
        }
        if self.book.retry_at.is_some_and(|at| at <= now) {
            self.book.retry_at = None;
        }
        if self.book.bump_at <= now && self.store.is_idle() {
            self.book.bump_at = now.after(Ms(self.book.bump_every.0.max(LATE.0)));
            self.store.ask(Tag::Bump, Question::Bump, now);
        }
    }
}
