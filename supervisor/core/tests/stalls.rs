//! Stalls in simulated runs: how often a healthy one is ended, and how soon a real one. What the ranks do is drawn from traces of a
//! real trainer (`tests/fixtures/activity`); the decisions are those of `decide`.
//!
//! `UPDATE_DOCS=1` writes the tables of `docs/stalls.md`.

#![expect(clippy::disallowed_methods, reason = "the page is in the source tree")]

use crate::traces::Seen;
use crate::world::options;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use supervise_core::activity::{Look, Pulse, Watcher, Window};
use supervise_core::decide::decide;
use supervise_core::durations::{Clock, Clocks};
use supervise_core::event::{ActOutput, Activity, Event, EventKind, Phase, TimerKey};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Step, Term, Tick, WallMs, WorkerId};
use supervise_core::record::{Act, ActKind, Decision, LaunchOrder, Record, StartPoint};
use supervise_core::spec::RunSpec;
use supervise_core::state::{Pace, State};

const WINDOW: u64 = 10_000;
/// Whose SFT trainer was recorded.
const TRAINERS: [&str; 2] = ["verl", "areal"];
/// Steps of each distribution.
const STEPS: u32 = 1_000_000;

/// A small generator of random numbers that needs no crate and gives the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither of them.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

#[derive(Debug, Deserialize)]
struct Traces {
    source: String,
    #[serde(flatten)]
    by: BTreeMap<String, Vec<Seen>>,
}

impl Traces {
    fn read(trainer: &str) -> Self {
        crate::traces::read(&format!("{trainer}_sft.json"))
    }

    /// A window of ten seconds, from pieces of a trace that follow each other.
    fn window(&self, name: &str, random: &mut Random) -> Window {
        let pieces = &self.by[name];
        let mut at = random.below(pieces.len());
        let (mut out, mut network) = (Window::default(), 0);
        while out.over_ms < WINDOW {
            let seen = &pieces[at % pieces.len()];
            at += 1;
            out.over_ms += seen.over_ms;
            network += seen.network;
            out.pulses.resize(seen.ranks.len(), Pulse::default());
            for ((p, r), n) in out.pulses.iter_mut().zip(&seen.ranks).zip(0..) {
                *p = Pulse {
                    worker: WorkerId(n),
                    pid: 1000 + n as i32,
                    state: r.state as u8,
                    cpu_ms: p.cpu_ms + r.cpu_ms,
                    wait_ms: p.wait_ms + r.wait_ms,
                    switches: p.switches + r.switches,
                    faults: p.faults + r.faults,
                    bytes: p.bytes + r.bytes,
                };
            }
        }
        out.network = Some(network);
        out
    }
}

/// A run in step 100 of its first attempt.
struct Run {
    s: State,
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
            s: State {
                term: Term(1),
                ..State::default()
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
        run.s.apply(&Record::Intended {
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
                    workers: vec![proc(1000), proc(1001)],
                    argv: Vec::new(),
                    ahead: None,
                }),
            },
        );
        run.s.apply(&Record::Decided {
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
            run.watcher.window(traces.window("healthy", random), Clock::Step);
            run.watcher.progress();
        }
        run
    }

    fn progress(&self, step: u64) -> EventKind {
        EventKind::Progress {
            attempt: AttemptNo(1),
            phase: Phase::Step,
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
        self.s.apply(&Record::Fact(Self::event(at, kind)));
    }

    /// The reason of the stop that this event leads to.
    fn ends(&self, at: u64, kind: EventKind) -> Option<String> {
        let out = decide(&self.s, &self.spec, &Self::event(at, kind));
        out.records.iter().find_map(|r| match r {
            Record::Decided {
                what: Decision::Stop { .. },
                reasons,
                ..
            } => Some(reasons[0].text.clone()),
            _ => None,
        })
    }

    /// Goes on in a step that began at 0, with windows of `make`, up to a moment; `Some`: when it was ended, and why.
    fn goes_on(&mut self, until: u64, prints: bool, mut make: impl FnMut(u64) -> Window) -> Option<(u64, String)> {
        let mut at = 0;
        while at + WINDOW <= until {
            at += WINDOW;
            let mut window = make(at);
            window.output = u64::from(prints) * 60;
            let computes = prints || window.pulses.iter().map(|p| p.cpu_ms).sum::<u64>() * 100 > WINDOW;
            let look: Look = self.watcher.window(window, Clock::Step);
            if computes {
                let activity = Activity {
                    cpu_ms: WINDOW,
                    output: u64::from(prints),
                    over_ms: WINDOW,
                    gpu: false,
                };
                let phase = Phase::Step;
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
    let minimum = run.spec.policy.stall_minimum.0;
    let (mut soon, mut late, mut overdue) = (0, 0, 0);
    for n in 0..STEPS {
        let took = (kind.draw)(&mut random, n);
        let took = took.min(1e12) as u64;
        // What is shorter than the least limit is not judged.
        if took >= minimum {
            let state = run.s.clone();
            let factor = run.spec.policy.stall_factor;
            let high = state.clocks.of(Clock::Step).and_then(|d| d.high()).unwrap_or_default();
            let limit = ((high.0 as f64 * factor) as u64).max(minimum);
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
                    let mut window = traces.window("healthy", &mut random);
                    if alone {
                        window.network = Some(0);
                        window.pulses[1] = traces.window("one_sleeps", &mut random).pulses[0];
                    }
                    let look = run.watcher.window(window, Clock::Step);
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
        run.s.clocks.note(Clock::Step, Ms(took));
        run.s.clocks.note_gap(Ms(took));
    }
    (soon, late, overdue)
}

fn busy() -> EventKind {
    EventKind::Progress {
        attempt: AttemptNo(1),
        phase: Phase::Step,
        step: Some(Step(2)),
        beats: 0,
        risen: 0,
        activity: Activity {
            cpu_ms: WINDOW,
            output: 0,
            over_ms: WINDOW,
            gpu: false,
        },
    }
}

/// Real stalls: what is played, and what is changed of it.
const STALLS: [(&str, &str, bool); 6] = [
    ("one rank sleeps", "one_sleeps", false),
    ("one rank is stopped (SIGSTOP)", "stopped", false),
    ("one rank spins at 5 % of a core", "one_spins_5", false),
    ("one rank spins at 100 %", "one_spins", false),
    ("all ranks spin", "all_spin", false),
    (
        "one rank sleeps, another prints a line every second",
        "one_sleeps",
        true,
    ),
];

fn declared(traces: &Traces, stall: &str, prints: bool, step: u64) -> (u64, String) {
    let mut random = Random(11);
    let mut run = Run::new(traces, &mut random);
    for _ in 0..100 {
        let took = step as f64 * (0.1 * random.normal()).exp();
        run.s.clocks.note(Clock::Step, Ms(took as u64));
        run.s.clocks.note_gap(Ms(took as u64));
    }
    let made = |_| match stall {
        "stopped" => {
            let mut window = traces.window("one_sleeps", &mut random);
            window.pulses[1].state = b'T';
            window
        }
        name => traces.window(name, &mut random),
    };
    run.goes_on(48 * 3_600_000, prints, made).unwrap()
}

#[test]
fn healthy_runs_are_left_alone_and_real_stalls_are_found() {
    let pages: Vec<String> = TRAINERS.iter().map(|trainer| page(&Traces::read(trainer))).collect();
    keep(&pages.join("\n"));
}

fn page(traces: &Traces) -> String {
    let mut page = format!(
        "Activity: {}.\n\n| durations of a million steps | overdue | ended soon | ended late |\n| --- | --- | --- | --- |\n",
        traces.source
    );
    for kind in &KINDS {
        let (soon, late, overdue) = healthy(kind, traces);
        assert_eq!(soon, 0, "{}: ended soon", kind.name);
        assert!(!kind.bounded || late == 0, "{}: {late} ended late", kind.name);
        assert!(late <= 20, "{}: {late} ended late", kind.name);
        page.push_str(&format!("| {} | {overdue} | {soon} | {late} |\n", kind.name));
    }
    let steps = [10_000, 60_000, 300_000];
    page.push_str("\n| stall, after 100 steps of | 10 s | 1 min | 5 min |\n| --- | --- | --- | --- |\n");
    for (name, trace, prints) in STALLS {
        page.push_str(&format!("| {name} |"));
        for step in steps {
            let (at, why) = declared(traces, trace, prints, step);
            assert!(at <= (20 * step).max(900_000), "{name} after {at} ms: {why}");
            assert!(why.contains("worker 1 (pid 1001)"), "{name}: {why}");
            page.push_str(&format!(" {:.1} min |", at as f64 / 60_000.0));
        }
        page.push('\n');
    }
    page
}

#[test]
fn healthy_windows_are_no_stall() {
    for trainer in TRAINERS {
        let traces = Traces::read(trainer);
        let mut random = Random(3);
        let mut watcher = Watcher::default();
        let mut in_a_row = 0;
        for n in 0..20_000 {
            let look = watcher.window(traces.window("healthy", &mut random), Clock::Step);
            in_a_row += u32::from(look.is_stuck());
            if n < 8 || n % 100 == 0 {
                watcher.progress();
            }
        }
        assert_eq!(in_a_row, 0, "{trainer}");
    }
}

/// The generated part of the page.
/// A command that nobody knows prints its steps at once and then hangs: of those the guard tells the last alone.
#[test]
fn steps_that_are_printed_faster_than_they_are_told_count() {
    let traces = Traces::read("verl");
    for (count, is_watched) in [(2, false), (50, true)] {
        let random = &mut Random(7);
        let mut run = Run::new(&traces, random);
        run.spec.root = None;
        let attempt = run.s.attempt.as_mut().unwrap();
        (attempt.pace, attempt.step) = (Pace::begin(Tick(0)), None);
        let mut progress = run.progress(50);
        if let EventKind::Progress { risen, .. } = &mut progress {
            *risen = count;
        }
        run.fact(0, progress);
        let ended = run.goes_on(4 * 3600 * 1000, false, |_| traces.window("one_sleeps", random));
        assert_eq!(ended.is_some(), is_watched, "{ended:?}");
    }
}

fn keep(tables: &str) {
    const BEGIN: &str = "<!-- generated -->\n";
    const END: &str = "<!-- end of what is generated -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stalls.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let want = format!("{head}{BEGIN}\n{tables}\n{END}{tail}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    assert_eq!(page, want, "UPDATE_DOCS=1 writes it");
}
