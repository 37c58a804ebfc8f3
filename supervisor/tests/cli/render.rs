//! Words, letter by letter: what they are changed to is read in a diff of this file.

use supervise::render::explain::StoryBuilder;
use supervise::render::last_words::last_words;
use supervise::render::record::{line, words};
use supervise::render::status::{Liveness, RunLiveness, StatusView};
use supervise_core::checkpoint::{CkptId, Depth, PinsHash, StateKind};
use supervise_core::event::rehearsal::{Rehearsal, RehearsalResult};
use supervise_core::event::{ActOutput, Event, EventKind, ExitStatus, OperatorRequest};
use supervise_core::id::{ActId, AttemptNo, Ms, ProcRef, RunId, Step, Term, Tick, WallMs, WorkerId};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{
    Act, ActKind, AfterStop, Decision, Diagnosis, DiskEdit, FailureAction, JournalRecord, LaunchOrder, NoticeKind,
    RunOutcome, StartPoint, WaitCondition,
};
use supervise_core::spec::policy::{Policy, ProofPolicy};
use supervise_core::spec::{GangSpec, Numbering, ResumeIntent, RunSpec, SaveCadence, SavePolicy};
use supervise_core::state::RunState;

pub(crate) fn spec() -> RunSpec {
    let (every, at_end) = (Some(2), true);
    RunSpec {
        run: RunId("0123456789abcdef".into()),
        name: None,
        trainer: supervise_trainers::verl::PPO,
        trainer_version: None,
        declared: None,
        learnt: None,
        config_hash: 1,
        root: Some("/ckpt".into()),
        run_dir: "/ckpt/.supervise".into(),
        config_file: None,
        command: vec!["python3".into()],
        cwd: "/".into(),
        env: Default::default(),
        gang: GangSpec::driver(),
        cadence: SaveCadence { every, at_end },
        last_step: Some(Step(10)),
        world: Some(2),
        indivisible: Vec::new(),
        roles: Vec::new(),
        resume: ResumeIntent::Auto,
        keep: None,
        policy: Policy {
            proof: ProofPolicy {
                depth: Depth::Structure,
                ..ProofPolicy::default()
            },
            ..Policy::default()
        },
        not_restored: vec![StateKind::Rollout],
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        saves_at_stop: false,
        has_tail: false,
        save_door: false,
    }
}

pub(crate) fn fact(kind: EventKind) -> JournalRecord {
    JournalRecord::Fact(Event {
        at: Tick(60_000),
        wall: WallMs(43_471_000),
        entropy: 0,
        kind,
    })
}

pub(crate) fn decided(what: Decision, reason: &str) -> JournalRecord {
    JournalRecord::Decided {
        at: Tick(60_000),
        what,
        reasons: vec![Reason::new("test", reason.to_owned())],
    }
}

fn order(from: StartPoint) -> LaunchOrder {
    LaunchOrder {
        attempt: AttemptNo(2),
        from,
        lost: vec![StateKind::DataOrder],
        nodes: 1,
    }
}

fn step_6() -> StartPoint {
    StartPoint::Step {
        ckpt: CkptId("global_step_6".into()),
        step: Step(6),
        pins: PinsHash(1),
        load: Vec::new(),
        roles: Default::default(),
    }
}

fn begun() -> RunState {
    let mut s = RunState::default();
    s.apply(&fact(begins()));
    s
}

fn begins() -> EventKind {
    EventKind::TermStarted {
        term: Term(2),
        boot: "b".into(),
        host: "node1".into(),
        version: "0".into(),
        config: 1,
        trainer_version: None,
        living: None,
        spread: Default::default(),
        orphans: Vec::new(),
    }
}

/// A term whose second attempt is launched from step 6.
pub(crate) fn launched() -> RunState {
    let mut s = begun();
    let order = order(step_6());
    let start = Decision::StartFrom {
        order: order.clone(),
        edits: Vec::new(),
        care: false,
        intent: ResumeIntent::Auto,
    };
    s.apply(&decided(start, "x"));
    s.apply(&decided(Decision::Launch { order: order.clone() }, "x"));
    let act = Act {
        id: ActId(1),
        term: Term(2),
        attempt: Some(AttemptNo(2)),
        kind: ActKind::Launch(Box::new(order)),
    };
    s.apply(&JournalRecord::Intended {
        at: Tick(60_000),
        act,
        reasons: Vec::new(),
    });
    s.apply(&fact(EventKind::ActDone {
        act: ActId(1),
        result: Ok(ActOutput::Launched {
            guard: ProcRef { pid: 70, start: 1 },
            workers: vec![ProcRef { pid: 71, start: 1 }],
            argv: vec!["python3".into()],
            ahead: None,
        }),
    }));
    s
}

#[test]
fn a_resume_is_told_with_its_reason_its_edits_and_its_losses() {
    let edits = vec![
        DiskEdit::MoveAside {
            from: CkptId("global_step_8".into()),
            whole: false,
            foreign: false,
            others: false,
            why: "above the resume point 6".into(),
        },
        DiskEdit::WriteTracker { step: Step(6) },
    ];
    let start = JournalRecord::Decided {
        at: Tick(0),
        what: Decision::StartFrom {
            order: order(step_6()),
            edits,
            care: false,
            intent: ResumeIntent::Auto,
        },
        reasons: vec![
            Reason::new(
                "newest_whole",
                "global_step_6 is the newest whole step (proven: structure)",
            ),
            Reason::new("not_whole", "global_step_8 is damaged: model.pt: torn [zip_truncated]"),
        ],
    };
    assert_eq!(
        line(&start, &begun()).unwrap(),
        "12:04:31Z attempt 2: resume from global_step_6: newest whole step (proven: structure); moved aside: global_step_8 \
         (damaged: model.pt: torn [zip_truncated]); the tracker file names step 6; NOT restored: data order"
    );
}

#[test]
fn what_is_decided_long_after_the_last_fact_bears_its_own_time() {
    // Half an hour of wake-ups, which leave no record of themselves.
    let late = JournalRecord::Decided {
        at: Tick(60_000 + 1_800_000),
        what: Decision::Stop {
            then: AfterStop::Diagnose,
            gently: false,
        },
        reasons: vec![Reason::new("stalled", "stuck: no progress for 1800 s")],
    };
    let mut s = launched();
    s.apply(&late);
    assert!(
        line(&late, &s).unwrap().starts_with("12:34:31Z "),
        "{:?}",
        line(&late, &s)
    );
    let view = StatusView::of("0123456789abcdef", &s, Some(&spec()), RunLiveness::default());
    assert_eq!(view.since, Some(43_471_000 + 1_800_000));

    let mut teller = StoryBuilder::default();
    for r in [fact(begins()), late] {
        teller.add(&r);
    }
    let view = teller.finish("0123456789abcdef", None);
    assert_eq!(view.attempts[0].told[1].at, WallMs(43_471_000 + 1_800_000));
    assert!(view.text().contains("  12:34:31Z "), "{}", view.text());
}

#[test]
fn decisions_have_one_line_each() {
    let s = launched();
    let diagnosis = Diagnosis {
        class: "mem.cuda_oom".into(),
        action: FailureAction::RelaunchOnce,
        answer: None,
        advice: None,
        fingerprint: 1,
        step: Some(Step(7)),
        text: "worker 0 line 12: CUDA out of memory".into(),
        node: None,
        worker: None,
        at_start: false,
    };
    for (what, says) in [
        (
            Decision::Fence {
                attempt: Some(AttemptNo(1)),
            },
            "making sure that nothing of attempt 1 lives: why",
        ),
        (
            Decision::TakeOver { attempt: AttemptNo(1) },
            "attempt 1: taken over from its guard: why",
        ),
        (
            Decision::Stop {
                then: AfterStop::Diagnose,
                gently: false,
            },
            "attempt 2: killing the workers, then finding out why: why",
        ),
        (
            Decision::Stop {
                then: AfterStop::Stopped,
                gently: true,
            },
            "attempt 2: stopping the workers, then the run is stopped: why",
        ),
        (
            Decision::Drain {
                until: Tick(90_000),
                then: AfterStop::Stopped,
            },
            "attempt 2: a save may finish first, then the run is stopped: why",
        ),
        (
            Decision::Diagnosed(diagnosis),
            "attempt 2: worker 0 line 12: CUDA out of memory (mem.cuda_oom) at step 7; one restart may help",
        ),
        (
            Decision::Distrust {
                ckpt: CkptId("global_step_6".into()),
            },
            "global_step_6 is not chosen again: why",
        ),
        (
            Decision::Trust {
                ckpts: vec![CkptId("global_step_4".into()), CkptId("global_step_6".into())],
            },
            "global_step_4, global_step_6 may be chosen again: why",
        ),
        (
            Decision::Charge {
                attempts: 1,
                step_backs: 0,
                spared: false,
            },
            "1 attempt without progress so far: why",
        ),
        (
            Decision::Wait {
                what: WaitCondition::Backoff,
                until: s.now.after(Ms::secs(5)),
            },
            "restarting in 5 s: why",
        ),
        (
            Decision::Wait {
                what: WaitCondition::Readable,
                until: s.now.after(Ms::secs(90)),
            },
            "waiting until a newer step can be read, for at most 1m 30s: why",
        ),
        (Decision::Mark { step: Step(8) }, "step 8 is proven: why"),
        (Decision::StopAfterSave, "attempt 2: stops at the next proven step: why"),
        (
            Decision::Suspect {
                what: "no step for 10m".into(),
            },
            "attempt 2: no step for 10m",
        ),
        (
            Decision::Noticed {
                what: NoticeKind::ResumeAhead,
                text: "the first training record is step 5".into(),
            },
            "WARNING: attempt 2: the first training record is step 5",
        ),
        (
            Decision::Finish {
                outcome: RunOutcome::GaveUp {
                    why: "5 attempts without progress".into(),
                },
            },
            "gave up: 5 attempts without progress: why",
        ),
        (
            Decision::Finish {
                outcome: RunOutcome::Stopped,
            },
            "stopped: why",
        ),
    ] {
        assert_eq!(
            words(&decided(what.clone(), "why"), &s).as_deref(),
            Some(says),
            "{what:?}"
        );
    }
    for what in [Decision::Choose, Decision::Run, Decision::Fence { attempt: None }] {
        assert_eq!(words(&decided(what, "why"), &s), None);
    }
}

#[test]
fn facts_are_told_where_they_matter() {
    let s = launched();
    let attempt = AttemptNo(2);
    for (kind, says) in [
        (
            EventKind::WorkerExited {
                attempt,
                worker: WorkerId(1),
                status: ExitStatus::Signal(9),
                first: true,
                lines: Vec::new(),
            },
            Some("attempt 2: worker 1 was killed by SIGKILL"),
        ),
        (
            EventKind::WorkerExited {
                attempt,
                worker: WorkerId(1),
                status: ExitStatus::Code(0),
                first: false,
                lines: Vec::new(),
            },
            None,
        ),
        (
            EventKind::TreeGone {
                attempt,
                unkillable: vec![ProcRef { pid: 9, start: 1 }],
            },
            Some("attempt 2: SIGKILL did not end these processes: 9"),
        ),
        (
            EventKind::TreeGone {
                attempt,
                unkillable: Vec::new(),
            },
            None,
        ),
        (
            EventKind::Rehearsed(Rehearsal {
                term: Term(2),
                config: 1,
                version: None,
                result: RehearsalResult::Refused {
                    what: vec!["a relaunch would fail".into()],
                },
            }),
            Some(
                "WARNING: rehearsed a restart, and it would fail: a relaunch would fail; fix it before the first failure needs it",
            ),
        ),
        (EventKind::IoRecovered, Some("the file system answers again")),
        (
            EventKind::TimeGap {
                missing: Ms::secs(3600),
            },
            Some("the machine or the supervisor was paused for 1h; timeouts were extended"),
        ),
        (
            EventKind::Operator(OperatorRequest::Stop {
                after_save: true,
                by: "supervise stop".into(),
                left: None,
            }),
            Some("a stop at the next proven step was asked for by supervise stop"),
        ),
        (EventKind::Timer(supervise_core::event::TimerKey::ScanDue), None),
    ] {
        assert_eq!(words(&fact(kind.clone()), &s).as_deref(), says, "{kind:?}");
    }
}

#[test]
fn a_status_reads_like_this() {
    let s = launched();
    let alive = RunLiveness {
        supervisor: Liveness {
            alive: true,
            pid: Some(69),
            stopped: false,
        },
        guard: Liveness {
            alive: true,
            pid: Some(70),
            stopped: false,
        },
    };
    let spec = spec();
    let view = StatusView::of(&spec.run.0, &s, Some(&spec), alive);
    let head = "run 0123456789abcdef: launching\n  trainer      verl-ppo\n  root         /ckpt\n  supervisor   alive, pid 69\n  guard        alive, pid 70\n  term         2\n  attempt      2, resumed from step 6";
    assert!(
        view.text().starts_with(head) || view.text().starts_with(&head.replace("launching", "running")),
        "{}",
        view.text()
    );
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["attempt"]["resumed_from"], 6);
    assert_eq!(json["attempt"]["workers"], serde_json::json!([71]));
    assert_eq!(json["retries"], 5);
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys.join(" "),
        "version run root run_dir trainer term mode supervisor guard attempts restarts attempt mark charged retries outcome reasons last_step \
         checkpoints kept since last_progress problem rehearsal scheduler danger undead ledger progress"
    );
    let gone = StatusView::of(&spec.run.0, &s, Some(&spec), RunLiveness::default());
    assert!(gone.headline().starts_with("not running (was: "), "{}", gone.headline());
}

#[test]
fn the_last_words_say_what_no_resume_brought_back() {
    let mut s = launched();
    s.apply(&decided(Decision::Mark { step: Step(10) }, "x"));
    s.apply(&decided(
        Decision::Finish {
            outcome: RunOutcome::Finished { step: Some(Step(10)) },
        },
        "x",
    ));
    assert_eq!(
        last_words(&s, &spec()),
        "finished: step 10 is proven (exit code 0)\nnewest proven step: 10 of 10; 2 attempts, term 2\n\
         not restored at the last resume from global_step_6: data order, rollout seeds and in-flight rollouts\n"
    );
}

#[test]
fn output_of_a_trainer_cannot_break_a_line() {
    let s = launched();
    let sighted = fact(EventKind::Sighted {
        attempt: AttemptNo(2),
        means: supervise_core::event::scan::RuleKind::Failure("x.y".into()),
        sighting: supervise_core::event::Sighting {
            rule: "r".into(),
            worker: WorkerId(0),
            line: 3,
            text: format!("a\n\x1b[2J{}", "b".repeat(1000)),
            number: None,
            count: 1,
        },
    });
    let said = words(&sighted, &s).unwrap();
    assert!(!said.contains(['\n', '\x1b']) && said.chars().count() < 400, "{said}");
}
