//! Where a run stands, as every screen shows it.

use crate::render::{decided, launched, spec};
use supervise::render::progress::{NextActKind, ProgressPace, ProgressReport};
use supervise::render::status::{Liveness, RunLiveness, StatusView};
use supervise_core::event::{Activity, Event, EventKind, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, Step, Tick, WallMs};
use supervise_core::journal::record::{Decision, JournalRecord, WaitCondition};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// Tick and wall clock of the launch in `launched`.
const TICK: u64 = 60_000;
const WALL: i64 = 43_471_000;

struct Training {
    s: RunState,
    ledger: TimeLedger,
    spec: RunSpec,
    at: u64,
}

impl Training {
    fn new() -> Self {
        let mut spec = spec();
        spec.last_step = Some(Step(1000));
        spec.name = Some("grpo".to_owned());
        spec.policy.stall.minimum = Ms::secs(200);
        let mut s = launched();
        s.apply(&decided(Decision::Run, "x"));
        Self {
            s,
            ledger: TimeLedger::default(),
            spec,
            at: 0,
        }
    }

    fn goes_on(&mut self, after: u64, phase: TrainerPhase, step: u64) {
        self.at += after;
        let record = JournalRecord::Fact(Event {
            at: Tick(TICK + self.at),
            wall: WallMs(WALL + i64::try_from(self.at).unwrap()),
            entropy: 0,
            kind: EventKind::Progress {
                attempt: AttemptNo(2),
                phase,
                step: Some(Step(step)),
                beats: 0,
                risen: 0,
                activity: Activity::default(),
            },
        });
        self.s.apply(&record);
        self.ledger.note(&self.s, &record);
    }

    /// Five steps a second, of which the guard reports every fifth.
    fn trains(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let step = self.s.attempt.as_ref().unwrap().training.step.map_or(6, |s| s.0);
            self.goes_on(1000, TrainerPhase::Step, step + 5);
        }
    }

    fn after(&self, silence: u64) -> ProgressReport {
        let now = WALL + i64::try_from(self.at + silence).unwrap();
        ProgressReport::of(&self.s, &self.spec, &self.ledger, true, WallMs(now))
    }
}

#[test]
fn a_hang_is_late_by_what_the_run_has_shown_and_says_when_it_is_restarted() {
    let mut t = Training::new();
    t.trains(100);
    let well = t.after(2_000);
    assert_eq!((well.pace, well.is_late()), (Some(ProgressPace::OnTime), false));
    assert_eq!(
        (well.step, well.planned, well.step_ms),
        (Some(506), Some(1000), Some(Ms(200)))
    );
    assert_eq!(well.since_ms, Some(Ms(2_000)));
    assert_eq!(well.name, "grpo");
    assert_eq!(well.late_words(), None);
    let hangs = t.after(130_000);
    assert_eq!(hangs.pace, Some(ProgressPace::Late));
    assert_eq!(
        hangs.late_words().unwrap(),
        "no step for 2m 10s; usually 200 ms; restart in 1m 10s"
    );
    assert_eq!(hangs.eta, None);
    let over = t.after(210_000);
    assert_eq!(over.pace, Some(ProgressPace::Overdue));
    assert!(
        over.late_words()
            .unwrap()
            .ends_with("restart once its processes are seen to be stuck, in 56m 55s at the latest"),
        "{over:?}"
    );
    t.spec.policy.start.observe = true;
    assert_eq!(t.after(130_000).next.unwrap().what, NextActKind::Report);
}

#[test]
fn a_save_or_a_validation_is_no_hang_before_its_own_time_is_over() {
    let mut t = Training::new();
    t.trains(20);
    for _ in 0..5 {
        let step = t.s.attempt.as_ref().unwrap().training.step.unwrap().0;
        t.goes_on(10, TrainerPhase::Validate, step);
        t.goes_on(60_000, TrainerPhase::Step, step);
        t.trains(20);
    }
    let step = t.s.attempt.as_ref().unwrap().training.step.unwrap().0;
    t.goes_on(10, TrainerPhase::Validate, step);
    assert_eq!(t.after(90_000).pace, Some(ProgressPace::OnTime));
    // A save never ended here: nothing but the settings says how long one takes.
    t.goes_on(10, TrainerPhase::Save, step);
    assert_eq!(t.after(600_000).pace, Some(ProgressPace::OnTime));
    assert_eq!(t.after(1_900_000).pace, Some(ProgressPace::Overdue));
    assert!(
        t.after(1_900_000)
            .late_words()
            .unwrap()
            .starts_with("saving for 31m 40s; restart")
    );
}

#[test]
fn nobody_is_late_while_nobody_watches() {
    let mut t = Training::new();
    t.trains(20);
    let now = WallMs(WALL + 1_000_000);
    let unwatched = ProgressReport::of(&t.s, &t.spec, &t.ledger, false, now);
    assert_eq!((unwatched.pace, unwatched.next), (None, None));
    assert_eq!(unwatched.since_ms, Some(Ms(980_000)));
}

#[test]
fn a_pause_says_when_the_next_attempt_starts() {
    let mut t = Training::new();
    t.s.apply(&decided(
        Decision::Wait {
            what: WaitCondition::Backoff,
            until: Tick(TICK + 30_000),
        },
        "x",
    ));
    let next = t.after(10_000).next.unwrap();
    assert_eq!((next.what, next.in_ms), (NextActKind::Launch, Ms(20_000)));
    assert_eq!(next.words(), "next attempt in 20 s");
}

#[test]
fn a_status_says_that_it_hangs_and_json_has_the_facts() {
    let mut t = Training::new();
    t.trains(100);
    let alive = Liveness {
        alive: true,
        pid: Some(69),
        stopped: false,
    };
    let both = RunLiveness {
        supervisor: alive,
        guard: alive,
    };
    let mut view = StatusView::of(&t.spec.run.0, &t.s, Some(&t.spec), both);
    view.progress = Some(t.after(130_000));
    let text = view.text();
    assert!(
        text.starts_with("run 0123456789abcdef: running, but no step for 2m 10s; usually 200 ms; restart in 1m 10s\n"),
        "{text}"
    );
    assert!(
        text.contains("  training     step 506 of 1000, usually 200 ms a step; last progress 2m 10s ago\n"),
        "{text}"
    );
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["mode"], "running");
    assert_eq!(json["progress"]["pace"], "late");
    assert_eq!(json["progress"]["since_ms"], 130_000);
    assert_eq!(json["progress"]["next"]["what"], "restart");
    assert_eq!(json["progress"]["next"]["in_ms"], 70_000);
    view.supervisor.stopped = true;
    assert!(view.headline().contains("suspended"), "{}", view.headline());
}
