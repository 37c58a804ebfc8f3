//! Stalls in simulated runs: how often a healthy one is ended, and how soon a real one. What the ranks do is drawn from traces of a
//! real trainer (`tests/fixtures/activity`); the decisions are those of `decide`.
//!
//! `UPDATE_DOCS=1` writes the tables of `docs/stall-measurements.md`.

#![expect(clippy::disallowed_methods, reason = "the page is in the source tree")]

use crate::world::options;
use drawn::{Random, TRAINERS, Traces, Trainer, WINDOW};
use std::path::Path;
use supervise_core::decide::decide;
use supervise_core::event::{ActOutput, Activity, Event, EventKind, TimerKey, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Step, Term, Tick, WallMs};
use supervise_core::journal::record::{Act, ActKind, Decision, JournalRecord, LaunchOrder, StartPoint};
use supervise_core::observe::activity::{ActivitySample, ActivityWindow, Watcher};
use supervise_core::observe::durations::{Clocks, DurationKind};
use supervise_core::spec::RunSpec;
use supervise_core::state::{AttemptProgress, RunState};

mod aim;
mod drawn;
mod starved;

/// Steps of each distribution.
const STEPS: u32 = 1_000_000;

/// A run in step 100 of its first attempt.
struct Run {
    s: RunState,
    spec: RunSpec,
    watcher: Watcher,
}

impl Run {
    fn new(traces: &Traces, random: &mut Random) -> Self {
        let order = LaunchOrder {
            attempt: AttemptNo(1),
            from: StartPoint::Fresh,
            lost: Vec::new(),
            nodes: 1,
        };
        let mut run = Self {
            s: RunState {
                term: Term(1),
                ..RunState::default()
            },
            spec: options::spec(),
            watcher: Watcher::default(),
        };
        let act = Act {
            id: run.s.next_act,
            term: Term(1),
            attempt: Some(AttemptNo(1)),
            kind: ActKind::Launch(Box::new(order)),
        };
        let at = Tick(0);
        let proc = |pid| ProcRef { pid, start: 1 };
        run.s.apply(&JournalRecord::Intended {
            at,
            act: act.clone(),
            reasons: Vec::new(),
        });
        run.fact(
            0,
            EventKind::ActDone {
                act: act.id,
                result: Ok(ActOutput::Launched {
                    guard: proc(1),
                    workers: traces.workers().map(proc).collect(),
                    argv: Vec::new(),
                    ahead: None,
                }),
            },
        );
        run.s.apply(&JournalRecord::Decided {
            at,
            what: Decision::Run,
            reasons: Vec::new(),
        });
        for step in [1, 2] {
            let progress = run.progress(step);
            run.fact(0, progress);
        }
        run.s.clocks = Clocks::default();
        for _ in 0..40 {
            run.watcher.window(traces.healthy(random), DurationKind::Step);
            run.watcher.progress();
        }
        run
    }

    /// A step is overdue after this time.
    fn limit(&self) -> u64 {
        let policy = &self.spec.policy;
        let high = self
            .s
            .clocks
            .of(DurationKind::Step)
            .and_then(|d| d.high())
            .unwrap_or_default();
        ((high.0 as f64 * policy.stall.factor) as u64).max(policy.stall.minimum.0)
    }

    fn progress(&self, step: u64) -> EventKind {
        EventKind::Progress {
            attempt: AttemptNo(1),
            phase: TrainerPhase::Step,
            step: Some(Step(step)),
            beats: 0,
            risen: 0,
            activity: Activity::default(),
        }
    }

    fn event(at: u64, kind: EventKind) -> Event {
        Event {
            at: Tick(at),
            wall: WallMs(0),
            entropy: 0,
            kind,
        }
    }

    fn fact(&mut self, at: u64, kind: EventKind) {
        self.s.apply(&JournalRecord::Fact(Self::event(at, kind)));
    }

    /// The reason of the stop that this event leads to.
    fn ends(&self, at: u64, kind: EventKind) -> Option<String> {
        let out = decide(&self.s, &self.spec, &Self::event(at, kind));
        out.records.iter().find_map(|r| match r {
            JournalRecord::Decided {
                what: Decision::Stop { .. },
                reasons,
                ..
            } => Some(reasons[0].text.clone()),
            _ => None,
        })
    }

    /// Goes on in a step that began at 0, with windows of `make`, up to a moment; `Some`: when it was ended, and why.
    fn goes_on(
        &mut self,
        until: u64,
        prints: bool,
        mut make: impl FnMut(u64) -> ActivityWindow,
    ) -> Option<(u64, String)> {
        let mut at = 0;
        while at + WINDOW <= until {
            at += WINDOW;
            let mut window = make(at);
            window.output = u64::from(prints) * 60;
            let computes = prints || window.pulses.iter().map(|p| p.cpu_ms).sum::<u64>() * 100 > WINDOW;
            let starved = window.is_starved();
            let look: ActivitySample = self.watcher.window(window, DurationKind::Step);
            if computes || starved {
                let activity = Activity {
                    cpu_ms: if computes { WINDOW } else { 0 },
                    output: u64::from(prints),
                    over_ms: WINDOW,
                    gpu: false,
                    starved,
                };
                let phase = TrainerPhase::Step;
                let (attempt, step, beats, risen) = (AttemptNo(1), Some(Step(2)), 0, 0);
                self.fact(
                    at,
                    EventKind::Progress {
                        attempt,
                        phase,
                        step,
                        beats,
                        risen,
                        activity,
                    },
                );
            }
            let attempt = AttemptNo(1);
            let looked = self.ends(at, EventKind::Looked { attempt, look });
            let ended = looked.or_else(|| self.ends(at + 3000, EventKind::Timer(TimerKey::StallCheck)));
            if let Some(why) = ended {
                return Some((at, why));
            }
        }
        None
    }
}

/// Durations of steps, in milliseconds.
struct Kind {
    name: &'static str,
    bounded: bool,
    draw: fn(&mut Random, u32) -> f64,
}

fn pareto(random: &mut Random, index: f64) -> f64 {
    30_000.0 * random.share().powf(-1.0 / index)
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "lognormal, σ = 0.5, median 60 s",
        bounded: true,
        draw: |r, _| 60_000.0 * (0.5 * r.normal()).exp(),
    },
    Kind {
        name: "Pareto, tail index 1.5, from 30 s",
        bounded: false,
        draw: |r, _| pareto(r, 1.5),
    },
    Kind {
        name: "Pareto, tail index 2, from 30 s",
        bounded: false,
        draw: |r, _| pareto(r, 2.0),
    },
    Kind {
        name: "Pareto, tail index 3, from 30 s",
        bounded: false,
        draw: |r, _| pareto(r, 3.0),
    },
    Kind {
        name: "a trend: five times as long at the end of each 10,000 steps",
        bounded: true,
        draw: |r, n| (60_000.0 + 24.0 * f64::from(n % 10_000)) * (0.1 * r.normal()).exp(),
    },
    Kind {
        name: "a validation 30 times as long in every 20th step, told by no line",
        bounded: true,
        draw: |r, n| if n % 20 == 19 { 1_800_000.0 } else { 60_000.0 } * (0.1 * r.normal()).exp(),
    },
    Kind {
        name: "pauses: 1 % of the steps 1 to 2 minutes longer, one in 2,000 compiles for 20",
        bounded: true,
        draw: |r, n| match (r.below(100), n % 2000) {
            (_, 0) => 1_200_000.0,
            (0, _) => 60_000.0 + 60_000.0 * r.share(),
            _ => 10_000.0 * (0.1 * r.normal()).exp(),
        },
    },
];

/// Healthy steps: how many were ended soon, how many late, and how many were overdue.
fn healthy(kind: &Kind, traces: &Traces) -> (u32, u32, u32) {
    let mut random = Random(7);
    let mut run = Run::new(traces, &mut random);
    let minimum = run.spec.policy.stall.minimum.0;
    let (mut soon, mut late, mut overdue) = (0, 0, 0);
    for n in 0..STEPS {
        let took = (kind.draw)(&mut random, n);
        let took = took.min(1e12) as u64;
        // What is shorter than the least limit is not judged.
        if took >= minimum {
            let state = run.s.clone();
            let limit = run.limit();
            // Only the beginning and the end of what is overdue is looked at, or a million steps would take all day.
            let hard = (20 * state.clocks.longest_gap().0).max(3_600_000);
            let late_now = took >= hard;
            if took >= limit {
                overdue += 1;
                let skip = |at: u64| at + 30 * WINDOW < limit || at > limit + 30 * WINDOW && at + 30 * WINDOW < took;
                let mut at = 0;
                let mut ended = None;
                // All ranks work, or one does for the others: it compiles, or collects what nobody uses.
                let alone = random.below(2) == 0;
                while at + WINDOW <= took.min(hard.saturating_sub(1)) && ended.is_none() {
                    at += WINDOW;
                    if skip(at) {
                        at = if at < limit {
                            limit - 30 * WINDOW
                        } else {
                            (took - 30 * WINDOW).max(at)
                        };
                        continue;
                    }
                    let draw = if alone { Traces::alone } else { Traces::healthy };
                    let look = run.watcher.window(draw(traces, &mut random), DurationKind::Step);
                    run.fact(at, busy());
                    let attempt = AttemptNo(1);
                    ended = run.ends(at, EventKind::Looked { attempt, look });
                }
                soon += u32::from(ended.is_some());
                if !alone {
                    run.watcher.progress();
                }
            }
            late += u32::from(late_now);
            run.s = state;
            if late_now {
                continue;
            }
        }
        run.s.clocks.note(DurationKind::Step, Ms(took));
        run.s.clocks.note_gap(Ms(took));
    }
    (soon, late, overdue)
}

fn busy() -> EventKind {
    EventKind::Progress {
        attempt: AttemptNo(1),
        phase: TrainerPhase::Step,
        step: Some(Step(2)),
        beats: 0,
        risen: 0,
        activity: Activity {
            cpu_ms: WINDOW,
            output: 0,
            over_ms: WINDOW,
            gpu: false,
            starved: false,
        },
    }
}

/// A real stall: the trace that is played, and what is changed of it.
struct Stall {
    name: &'static str,
    trace: &'static str,
    is_stopped: bool,
    prints: bool,
}

const fn stall(name: &'static str, trace: &'static str) -> Stall {
    Stall {
        name,
        trace,
        is_stopped: false,
        prints: false,
    }
}

const STALLS: [Stall; 6] = [
    stall("one rank sleeps", "one_sleeps"),
    Stall {
        is_stopped: true,
        ..stall("one rank is stopped (SIGSTOP)", "one_sleeps")
    },
    stall("one rank spins at 5 % of a core", "one_spins_5"),
    stall("one rank spins at 100 %", "one_spins"),
    stall("all ranks spin", "all_spin"),
    Stall {
        prints: true,
        ..stall("one rank sleeps, another prints a line every second", "one_sleeps")
    },
];

/// Steps so long, and so many of them before the stall.
const STEPS_BEFORE: [(u64, u32); 4] = [(10_000, 100), (60_000, 100), (300_000, 100), (300_000, 2000)];
/// The steps' spread: they are lognormal.
const SIGMA: f64 = 0.1;
/// Of a normal distribution one in a thousand lies this many deviations above the mean.
const ONE_IN_A_THOUSAND: f64 = 3.0902;

struct Declared {
    at: u64,
    why: String,
    /// The limit by all that the run has shown, which the page tells.
    limit: u64,
}

fn declared(traces: &Traces, stall: &Stall, step: u64, count: u32) -> Declared {
    let mut random = Random(11);
    let mut run = Run::new(traces, &mut random);
    for _ in 0..count {
        let took = step as f64 * (SIGMA * random.normal()).exp();
        run.s.clocks.note(DurationKind::Step, Ms(took as u64));
        run.s.clocks.note_gap(Ms(took as u64));
    }
    let limit = run.limit();
    let draw = if stall.is_stopped {
        Traces::stopped
    } else {
        Traces::hung
    };
    let (at, why) = run
        .goes_on(48 * 3_600_000, stall.prints, |_| draw(traces, &mut random))
        .unwrap();
    Declared { at, why, limit }
}

/// Declared within two windows of the limit. That is `stall.minimum` for short steps; for long ones three times what one in a thousand
/// exceeds, but after a hundred steps, which say little about a tail, up to 1.7 times as much.
fn is_declared_in_time(run: &Declared, step: u64, count: u32) {
    let Declared { at, why, limit } = run;
    assert!((*limit..limit + 2 * WINDOW).contains(at), "after {at} ms: {why}");
    let policy = options::spec().policy;
    let minimum = policy.stall.minimum.0;
    let aim = policy.stall.factor * step as f64 * (SIGMA * ONE_IN_A_THOUSAND).exp();
    if aim < minimum as f64 / 2.0 {
        assert_eq!(*limit, minimum, "{why}");
    } else {
        let most = if count < 1000 { 1.7 } else { 1.25 };
        let times = *at as f64 / aim;
        assert!(
            (0.95..most).contains(&times),
            "{times} times the aim of {aim} ms: {why}"
        );
    }
}

#[test]
fn healthy_runs_are_left_alone_and_real_stalls_are_found() {
    let pages: Vec<String> = std::thread::scope(|s| {
        let runs: Vec<_> = TRAINERS.iter().map(|trainer| s.spawn(|| page(trainer))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    keep(&format!("{}\n{}", aim::table(), pages.join("\n")));
}

fn page(trainer: &Trainer) -> String {
    // Healthy windows, and those of a rank that waits.
    let traces = Traces::read(trainer, "one_sleeps");
    let mut page = format!(
        "Activity: {}.\n\n| durations of a million steps | overdue | ended soon | ended late |\n| --- | --- | --- | --- |\n",
        traces.source
    );
    for kind in &KINDS {
        let (soon, late, overdue) = healthy(kind, &traces);
        assert_eq!(soon, 0, "{}: ended soon", kind.name);
        assert!(!kind.bounded || late == 0, "{}: {late} ended late", kind.name);
        assert!(late <= 20, "{}: {late} ended late", kind.name);
        page.push_str(&format!("| {} | {overdue} | {soon} | {late} |\n", kind.name));
    }
    page.push_str("\n| stall, after 100 steps of | 10 s | 1 min | 5 min | 5 min, after 2,000 |\n| --- | --- | --- | --- | --- |\n");
    for stall in &STALLS {
        let traces = Traces::read(trainer, stall.trace);
        page.push_str(&format!("| {} |", stall.name));
        for (step, count) in STEPS_BEFORE {
            let run = declared(&traces, stall, step, count);
            is_declared_in_time(&run, step, count);
            assert!(run.why.contains(&trainer.who_hangs()), "{}: {}", stall.name, run.why);
            page.push_str(&format!(" {:.1} min |", run.at as f64 / 60_000.0));
        }
        page.push('\n');
    }
    page
}

#[test]
fn healthy_windows_are_no_stall() {
    for trainer in &TRAINERS {
        let traces = Traces::read(trainer, "one_sleeps");
        let mut random = Random(3);
        let mut watcher = Watcher::default();
        let mut in_a_row = 0;
        let processes = traces.healthy(&mut random).pulses.len();
        for n in 0..40_000 / processes {
            let look = watcher.window(traces.healthy(&mut random), DurationKind::Step);
            in_a_row += u32::from(look.is_stuck());
            if n < 8 || n % 100 == 0 {
                watcher.progress();
            }
        }
        assert_eq!(in_a_row, 0, "{}", trainer.name);
    }
}

/// A command that nobody knows prints its steps at once and then hangs: of those the guard tells the last alone.
#[test]
fn steps_that_are_printed_faster_than_they_are_told_count() {
    let traces = Traces::read(&TRAINERS[0], "one_sleeps");
    for (count, is_watched) in [(2, false), (50, true)] {
        let random = &mut Random(7);
        let mut run = Run::new(&traces, random);
        run.spec.root = None;
        let attempt = run.s.attempt.as_mut().unwrap();
        (attempt.training.pace, attempt.training.step) = (AttemptProgress::begin(Tick(0)), None);
        let mut progress = run.progress(50);
        if let EventKind::Progress { risen, .. } = &mut progress {
            *risen = count;
        }
        run.fact(0, progress);
        let ended = run.goes_on(4 * 3600 * 1000, false, |_| traces.hung(random));
        assert_eq!(ended.is_some(), is_watched, "{ended:?}");
    }
}

/// The generated part of the page.
fn keep(tables: &str) {
    const BEGIN: &str = "<!-- generated -->\n";
    const END: &str = "<!-- end of what is generated -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stall-measurements.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let want = format!("{head}{BEGIN}\n{tables}\n{END}{tail}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    assert_eq!(page, want, "UPDATE_DOCS=1 writes it");
}
