//! A run as trace events, for Perfetto and Chrome's tracing page.
//!
//! Supervisor, attempts with their phases, faults and checkpoints have one track each. Durations are pairs of nested
//! `B` and `E` events. Time is counted as in the ledger: by the term's clock within a term, by the wall clock between
//! terms, never backwards.

use super::{condition, one_line};
use serde_json::{Value, json};
use supervise_core::event::scan::RuleKind;
use supervise_core::event::{EventKind, TrainerPhase};
use supervise_core::id::WallMs;
use supervise_core::journal::record::{Decision, JournalRecord};
use supervise_core::state::{RunMode, RunState};

const NAME: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Track {
    Supervisor = 1,
    Attempts = 2,
    Faults = 3,
    Checkpoints = 4,
}

impl Track {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Supervisor, "supervisor"),
        (Self::Attempts, "attempts"),
        (Self::Faults, "faults"),
        (Self::Checkpoints, "proven steps"),
    ];
}

/// Converts records to trace events.
#[derive(Debug, Default)]
pub struct TraceBuilder {
    state: RunState,
    now: u64,
    began: Option<WallMs>,
    mode: Option<String>,
    attempt: Option<u32>,
    phase: Option<TrainerPhase>,
    step: Option<u64>,
}

/// Receives the events.
pub type EmitFn<'a> = dyn FnMut(&Value) + 'a;

impl TraceBuilder {
    /// Emits the names of the tracks.
    pub fn begin(run: &str, emit: &mut EmitFn<'_>) {
        let named = |what: &str, tid: usize, name: &str| json!({"ph": "M", "name": what, "pid": 1, "tid": tid, "args": {"name": name}});
        emit(&named("process_name", 0, &format!("run {run}")));
        for (track, name) in Track::ALL {
            emit(&named("thread_name", track as usize, name));
        }
    }

    /// Adds the next record.
    pub fn add(&mut self, r: &JournalRecord, emit: &mut EmitFn<'_>) {
        let (tick, wall) = (self.state.now, self.state.wall);
        self.state.apply(r);
        let starts = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        if starts {
            // No supervisor was running until now.
            self.end_mode(emit);
        }
        if self.began.is_some() {
            self.now = self.now.saturating_add(match starts {
                true => u64::try_from(self.state.wall.0.saturating_sub(wall.0)).unwrap_or_default(),
                false => self.state.now.since(tick).0,
            });
        } else {
            self.began = Some(self.state.wall);
        }
        self.follow_attempt(emit);
        self.follow_mode(emit);
        self.tell(r, emit);
    }

    /// Closes open events and returns when the first record was written.
    pub fn finish(mut self, emit: &mut EmitFn<'_>) -> Option<WallMs> {
        self.end_attempt(emit);
        self.end_mode(emit);
        self.began
    }

    fn event(&self, phase: &str, track: Track, name: &str) -> Value {
        let name = one_line(name, NAME);
        // The format wants µs.
        json!({"ph": phase, "name": name, "ts": self.now.saturating_mul(1000), "pid": 1, "tid": track as usize})
    }

    fn end_mode(&mut self, emit: &mut EmitFn<'_>) {
        if let Some(mode) = self.mode.take() {
            emit(&self.event("E", Track::Supervisor, &mode));
        }
    }

    fn follow_mode(&mut self, emit: &mut EmitFn<'_>) {
        let mode = match &self.state.mode {
            RunMode::Idle | RunMode::Finished => None,
            RunMode::Waiting { what, .. } => Some(format!("waiting for {}", condition::thing(what))),
            mode => Some(mode.word().to_owned()),
        };
        if mode == self.mode {
            return;
        }
        self.end_mode(emit);
        if let Some(mode) = mode {
            let mut event = self.event("B", Track::Supervisor, &mode);
            if let Some(why) = self.state.why.first() {
                event["args"] = json!({"because": why.text});
            }
            emit(&event);
            self.mode = Some(mode);
        }
    }

    fn end_phase(&mut self, emit: &mut EmitFn<'_>) {
        if let Some(phase) = self.phase.take() {
            emit(&self.event("E", Track::Attempts, word(phase)));
        }
    }

    fn end_attempt(&mut self, emit: &mut EmitFn<'_>) {
        self.end_phase(emit);
        if let Some(no) = self.attempt.take() {
            emit(&self.event("E", Track::Attempts, &format!("attempt {no}")));
        }
        self.step = None;
    }

    fn follow_attempt(&mut self, emit: &mut EmitFn<'_>) {
        let lives = self.state.live().filter(|a| a.launch.launched.is_some());
        let seen = lives.map(|a| {
            (
                a.no.0,
                a.training.phase,
                a.training.step.map(|s| s.0),
                a.order.from.step().0,
            )
        });
        if seen.map(|s| s.0) != self.attempt {
            self.end_attempt(emit);
        }
        let Some((no, phase, step, from)) = seen else { return };
        if self.attempt.is_none() {
            let mut event = self.event("B", Track::Attempts, &format!("attempt {no}"));
            event["args"] = json!({"attempt": no, "from_step": from});
            emit(&event);
            self.attempt = Some(no);
        }
        if self.phase != Some(phase) {
            self.end_phase(emit);
            emit(&self.event("B", Track::Attempts, word(phase)));
            self.phase = Some(phase);
        }
        if let Some(step) = step.filter(|_| step != self.step) {
            let mut event = self.event("C", Track::Attempts, "step");
            event["args"] = json!({"step": step});
            emit(&event);
            self.step = Some(step);
        }
    }

    /// Emits an instant event.
    fn tell(&self, r: &JournalRecord, emit: &mut EmitFn<'_>) {
        let mark = |track, name: &str, args: Value| {
            let mut event = self.event("i", track, name);
            event["s"] = json!("t");
            event["args"] = args;
            event
        };
        let fault = |name: &str, args: Value| mark(Track::Faults, name, args);
        let event = match r {
            JournalRecord::Fact(e) => match &e.kind {
                EventKind::WorkerExited {
                    attempt,
                    worker,
                    status,
                    first,
                    ..
                } if !status.is_success() => {
                    let words = format!("worker {worker} {}", status.words());
                    fault(
                        &words,
                        json!({"attempt": attempt.0, "worker": worker.0, "first": first}),
                    )
                }
                EventKind::Sighted {
                    attempt,
                    means: means @ (RuleKind::Failure(_) | RuleKind::Exception),
                    sighting: s,
                } => {
                    let class = match means {
                        RuleKind::Failure(class) => class.code(),
                        _ => "exception",
                    };
                    let text = one_line(&s.text, NAME);
                    let args = json!({"attempt": attempt.0, "worker": s.worker.0, "line": s.line, "text": text});
                    fault(class, args)
                }
                EventKind::GuardLost { attempt } => fault("guard lost", json!({"attempt": attempt.0})),
                EventKind::IoStalled { what } => fault("file system hangs", json!({"what": what})),
                EventKind::JournalStalled { why } => fault("journal cannot be written", json!({"why": why})),
                _ => return,
            },
            JournalRecord::Decided { what, reasons, .. } => {
                let because = reasons.first().map(|r| r.text.as_str());
                match what {
                    Decision::Mark { step } => mark(
                        Track::Checkpoints,
                        &format!("step {step}"),
                        json!({"step": step.0, "because": because}),
                    ),
                    Decision::Diagnosed(d) => fault(
                        d.class.code(),
                        json!({"text": d.text, "step": d.step.map(|s| s.0), "diagnosis": true}),
                    ),
                    Decision::Suspect { what } => fault("looks stuck", json!({"what": what})),
                    _ => return,
                }
            }
            JournalRecord::Intended { .. } | JournalRecord::Ignored { .. } => return,
        };
        emit(&event);
    }
}

fn word(phase: TrainerPhase) -> &'static str {
    match phase {
        TrainerPhase::Startup => "startup",
        TrainerPhase::Step => "steps",
        TrainerPhase::Save => "save",
        TrainerPhase::Validate => "validate",
        TrainerPhase::Exit => "exit",
    }
}
