//! The driver's end of the guard connection, and what to do without a guard.

use super::jobs::ExitWitness;
use super::{Driver, DriverMessage};
use crate::render::one_line;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::time::Duration;
use supervise_config::redact_words;
use supervise_core::decide::limits::says_full;
use supervise_core::event::{ActError, ActErrorKind, ActOutput, EventKind};
use supervise_core::id::{ActId, AttemptNo, Ms, ProcRef, Tick};
use supervise_core::journal::record::ActKind;
use supervise_core::spec::script::ScriptNews;
use supervise_core::state::RunMode;
use supervise_host::guard::StandbyGuard;
use supervise_host::guard::nodes::ENDED_MS;
use supervise_host::guard::protocol::{FromGuard, FromShim, ToGuard};
use supervise_host::process::{
    end_run, find_attempt_processes, limit_hint, list_descendants, own_helpers, own_ref, proc_stat, spare_helpers,
};
use supervise_host::wire;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;

/// A running guard sends a message every five seconds; one that is silent for this long counts as dead.
const GUARD_SILENCE: Ms = Ms(90_000);
/// How long after a launch the guard of the next attempt is started.
const STANDBY_AFTER: Ms = Ms(300);
/// Interval between sweeps without a guard; a process that survives one cannot be killed.
const SWEEP: Duration = Duration::from_secs(10);

/// Longest part of a script's message that is journaled.
const SAID: usize = 1000;

/// Longest line of a worker that is journaled.
const LINE: usize = 400;

pub(super) struct GuardLink {
    pub(super) attempt: AttemptNo,
    pub(super) guard: ProcRef,
    pub(super) launching: Option<(ActId, Vec<String>)>,
    pub(super) gone: bool,
    /// When it was first told to kill everything.
    told_to_kill: Option<Tick>,
    /// When it last reported that it waits for nodes.
    waits: Option<Tick>,
    pub(super) heard: Tick,
    /// The kernel log since the launch, if this process made it.
    pub(super) kernel_log: Option<File>,
    pub(super) takes_devices: bool,
    pub(super) takes_lease: bool,
    writer: std::os::unix::net::UnixStream,
    /// Messages are queued because the socket is full; later ones must queue too.
    is_behind: bool,
    tx: mpsc::UnboundedSender<Vec<u8>>,
    lines: Lines<BufReader<OwnedReadHalf>>,
}

impl GuardLink {
    /// Wraps a stream to a guard.
    ///
    /// # Errors
    /// The stream cannot be watched.
    pub(super) fn new(
        stream: std::os::unix::net::UnixStream,
        attempt: AttemptNo,
        guard: ProcRef,
    ) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let writer = stream.try_clone()?;
        let (read, mut write) = UnixStream::from_std(stream)?.into_split();
        let (tx, mut rx) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(bytes) = rx.recv().await {
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            attempt,
            guard,
            launching: None,
            gone: false,
            told_to_kill: None,
            waits: None,
            heard: Tick(0),
            kernel_log: None,
            takes_devices: false,
            takes_lease: false,
            writer,
            is_behind: false,
            tx,
            lines: BufReader::new(read).lines(),
        })
    }

    /// Sends a message, at once if the socket accepts it: a kill must not wait for the rest of this turn of the loop. A guard that
    /// exited is noticed by the end of its lines.
    pub(super) fn say(&mut self, message: &ToGuard) {
        let Ok(line) = wire::encode(message) else { return };
        let written = match self.is_behind {
            true => 0,
            false => self.writer.write(&line).unwrap_or(0),
        };
        if let Some(rest) = line.get(written..).filter(|rest| !rest.is_empty()) {
            self.is_behind = true;
            let _ = self.tx.send(rest.to_vec());
        }
    }

    pub(super) async fn hear(&mut self) -> Option<FromGuard> {
        let line = self.lines.next_line().await.ok().flatten()?;
        serde_json::from_slice(line.as_bytes()).ok()
    }
}

/// The next line of the guard; pending forever without a guard. Cancel safe.
pub(super) async fn line(link: &mut Option<GuardLink>) -> Option<String> {
    match link {
        Some(l) => l.lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

impl Driver {
    pub(super) fn on_guard_line(&mut self, line: Option<String>) {
        let Some(line) = line else { return self.on_guard_end() };
        let now = self.now();
        if let Some(link) = &mut self.guard {
            link.heard = now;
        }
        match serde_json::from_slice::<FromGuard>(line.as_bytes()) {
            Ok(message) => self.on_guard_message(message),
            Err(e) => tracing::error!("unknown message from the guard: {e}"),
        }
    }

    fn on_guard_message(&mut self, message: FromGuard) {
        let now = self.now();
        let Some(link) = &mut self.guard else { return };
        let attempt = link.attempt;
        match message {
            FromGuard::Launched {
                workers,
                guard,
                ahead,
                notes,
            } => {
                let guard = guard.unwrap_or(link.guard);
                link.guard = guard;
                if let Some((act, argv)) = link.launching.take() {
                    self.standby.at = Some(self.now().after(STANDBY_AFTER));
                    self.standby.imports.notes = notes;
                    let ahead = self.how_launched(attempt, &argv, ahead);
                    let result = Ok(ActOutput::Launched {
                        guard,
                        workers,
                        argv,
                        ahead,
                    });
                    self.feed(EventKind::ActDone { act, result });
                }
            }
            FromGuard::LaunchFailed { what, command } => {
                link.gone = true;
                if let Some((act, _)) = link.launching.take() {
                    let error = match command {
                        true => ActError {
                            what,
                            retryable: false,
                            kind: ActErrorKind::Command,
                        },
                        false => not_started(what),
                    };
                    let result = Err(error);
                    self.feed(EventKind::ActDone { act, result });
                }
            }
            FromGuard::Exited {
                worker,
                status,
                first,
                lines,
                ..
            } => {
                let event = EventKind::WorkerExited {
                    attempt,
                    worker,
                    status,
                    first,
                    lines: lines.iter().map(|l| shown_line(l)).collect(),
                };
                self.on_worker_end(attempt, status, event);
            }
            FromGuard::Progress {
                phase,
                step,
                beats,
                risen,
                activity,
                files,
            } => {
                self.feed(EventKind::Progress {
                    attempt,
                    phase,
                    step,
                    beats,
                    risen,
                    activity,
                });
                self.sample(attempt, step, files);
            }
            FromGuard::Sighted { kind: means, sighting } => {
                self.feed(EventKind::Sighted {
                    attempt,
                    means,
                    sighting,
                });
            }
            FromGuard::Looked(look) => self.feed(EventKind::Looked { attempt, look }),
            FromGuard::Numbers { steps } => self.feed(EventKind::Numbers { attempt, steps }),
            FromGuard::TreeGone { unkillable } => {
                if unkillable.is_empty() {
                    link.gone = true;
                    return self.on_guard_saw_it_gone(attempt);
                }
                self.on_tree_gone(attempt, unkillable, ExitWitness::ByGuard);
            }
            FromGuard::Waits { what } => {
                link.waits = Some(now);
                self.on_nodes_wait(attempt, what);
            }
            FromGuard::Dropped { worker, bytes } => {
                let text =
                    format!("{bytes} bytes of worker {worker}'s output were dropped: the disk did not take them");
                self.printer.note(&text);
            }
            FromGuard::Shim(word) => self.on_script(attempt, word),
            FromGuard::Script(news) => self.feed(EventKind::Script { attempt, news }),
            FromGuard::Hello(_) | FromGuard::MayStart | FromGuard::Goes { .. } | FromGuard::HeldBack { .. } => {}
        }
    }

    fn on_script(&mut self, attempt: AttemptNo, word: FromShim) {
        let news = match word {
            FromShim::Refuses { why, .. } => ScriptNews::Refused {
                why: one_line(&why, SAID),
            },
            FromShim::Unmarked { words } => ScriptNews::Unmarked {
                what: one_line(&redact_words(&words).join(" "), SAID),
            },
            FromShim::Again => ScriptNews::Again,
            // Calls before the trainer's own belong to the script.
            FromShim::Passes { .. }
            | FromShim::Trains { .. }
            | FromShim::Called(_)
            | FromShim::Starts { .. }
            | FromShim::Returned { .. }
            | FromShim::Spoilt { .. } => return,
        };
        self.feed(EventKind::Script { attempt, news });
    }

    /// A guard that is stopped or hangs reads no output and notices no exit: it counts as dead.
    pub(super) fn check_guard(&mut self, now: Tick) {
        let silent = |l: &GuardLink| !l.gone && l.launching.is_none() && now.since(l.heard) > GUARD_SILENCE;
        if self.state.mode == RunMode::Running && self.guard.as_ref().is_some_and(silent) {
            let text = format!(
                "no message from the guard for {} s: killing it and its workers",
                GUARD_SILENCE.0 / 1000
            );
            self.printer.note(&text);
            self.on_guard_end();
        }
    }

    /// The connection closed. After a goodbye the guard exited normally, else it died.
    fn on_guard_end(&mut self) {
        let Some(link) = self.guard.take() else { return };
        if link.gone {
            return;
        }
        self.feed(EventKind::GuardLost { attempt: link.attempt });
        if let Some((act, _)) = link.launching {
            let what = "the guard died while it started the workers".to_owned();
            let error = ActError {
                what,
                retryable: true,
                kind: ActErrorKind::Other,
            };
            // First end what it had started: otherwise a new launch would be swept too.
            match self.scans.sweeping {
                true => self.launch.failed = Some((act, error)),
                false => self.feed(EventKind::ActDone {
                    act,
                    result: Err(error),
                }),
            }
        }
    }

    /// Sends signals and kills at once, without waiting for the journal.
    pub(super) fn safety(&mut self, act: supervise_core::journal::record::Act) {
        let message = match act.kind {
            ActKind::Signal { signal } => ToGuard::Signal { signal },
            ActKind::KillTree => ToGuard::KillTree,
            ActKind::Freeze => ToGuard::Freeze,
            ActKind::Thaw => ToGuard::Thaw,
            _ => return,
        };
        let now = self.now();
        // Wait for a node that does not answer: it ends its ranks on its own.
        let patience = match self.spec.gang.nodes {
            0 | 1 => Ms(0),
            _ => Ms(ENDED_MS),
        };
        match &mut self.guard {
            Some(link) if !link.gone => {
                link.say(&message);
                if message != ToGuard::KillTree {
                    return;
                }
                let told = link.told_to_kill.replace(link.told_to_kill.unwrap_or(now));
                // A guard that reports that it waits is working.
                if told.max(link.waits).is_some_and(|since| now >= since.after(patience)) {
                    // It was told before and has not done it: the guard itself may be stopped or hang.
                    let attempt = link.attempt;
                    self.sweep(attempt);
                }
            }
            _ if message == ToGuard::KillTree => {
                let attempt = act
                    .attempt
                    .or(self.state.attempt.as_ref().map(|a| a.no))
                    .unwrap_or_default();
                self.sweep(attempt);
            }
            _ => {}
        }
    }

    /// Kills whatever is left of this run's attempts when no guard does: descendants of the keeper or of this process (which adopts
    /// a keeper's orphans), recorded processes, and processes that carry the marker.
    pub(super) fn sweep(&mut self, attempt: AttemptNo) {
        if std::mem::replace(&mut self.scans.sweeping, true) {
            return;
        }
        let run = self.spec.run.clone();
        let recorded = self.recorded();
        let standby = self.standby.guard.as_ref().map(StandbyGuard::pid);
        let spared: BTreeSet<i32> = [self.store.child.id(), self.work.child.id(), standby]
            .into_iter()
            .flatten()
            .filter_map(|p| i32::try_from(p).ok())
            .collect();
        let standby = standby.and_then(|p| i32::try_from(p).ok());
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let me = own_ref();
            let find = || {
                let mut found = find_attempt_processes(&run, &recorded);
                found.extend(list_descendants(me.pid));
                // Standby interpreters of the next attempt are excluded; list them last, so that none is missed.
                let ahead = standby.map(list_descendants).unwrap_or_default();
                found.sort_unstable();
                found.dedup();
                let helpers = own_helpers(me.pid);
                found.retain(|p| {
                    p.pid != me.pid && !spared.contains(&p.pid) && !ahead.contains(p) && !helpers.contains(p)
                });
                spare_helpers(&mut found);
                adopt(&mut found);
                found
            };
            let unkillable = end_run(&run, find, SWEEP);
            // The driver may have exited meanwhile.
            let _ = tx.send(DriverMessage::Swept { attempt, unkillable });
        });
    }

    /// Recorded processes of attempts of this boot: those found at the start, and those of the attempts launched since.
    pub(super) fn recorded(&self) -> Vec<ProcRef> {
        let mut out = self.journal_recorded.clone();
        if let Some(a) = self.state.attempt.as_ref().filter(|a| a.term == self.state.term) {
            out.extend(a.launch.guard);
            out.extend(a.launch.workers.iter().copied());
        }
        out
    }
}

/// A line of a worker's output as journaled: without control characters and secrets.
fn shown_line(line: &str) -> String {
    one_line(&supervise_config::redact("", line), LINE)
}

/// A launch that could not be made. A resource limit is named, and is not counted as a failure.
pub(super) fn not_started(what: String) -> ActError {
    let (what, kind) = match limit_hint(&what) {
        Some(hint) => (format!("{what}: {hint}"), ActErrorKind::Limit),
        None if says_full(&what) => (what, ActErrorKind::NoRoom),
        None => (what, ActErrorKind::Other),
    };
    ActError {
        what,
        retryable: true,
        kind,
    }
}

/// Reaps adopted orphans that exited, by PID: no other code waits for them.
fn adopt(found: &mut Vec<ProcRef>) {
    found.retain(|p| match proc_stat(p.pid) {
        Some(s) if s.start == p.start && s.is_running() => true,
        Some(s) if s.start == p.start && s.ppid == own_ref().pid => {
            supervise_host::system::reap_child(p.pid);
            false
        }
        _ => false,
    });
}
