//! Real logs of verl's SFT trainer, line by line through the scanner, to a diagnosis.
//!
//! The logs and what happened in each are described beside them in `tests/fixtures/logs/README.md`.

#![expect(clippy::disallowed_methods, reason = "logs are read from the source tree")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use supervise_core::checkpoint::{CkptId, PinsHash};
use supervise_core::diagnosis::{diagnose, failure_rules, user_rules};
use supervise_core::event::scan::{RuleKind, ScanMatch, ScanRule, Scanner};
use supervise_core::event::{ActOutput, Activity, Event, EventKind, ExitStatus, TrainerPhase};
use supervise_core::id::{ActId, AttemptNo, ProcRef, Step, Term, Tick, WallMs, WorkerId};
use supervise_core::journal::record::{Act, ActKind, Diagnosis, FailureAction, JournalRecord, LaunchOrder, StartPoint};
use supervise_core::rulebook::failure_line::FailureLine;
use supervise_core::rulebook::taxonomy::{Class, FailureClass};
use supervise_core::state::{Attempt, RunState};

/// Failing logs: (name, resumed at, rank that failed first, how, class, action).
const FAILING: &[(&str, u64, u32, ExitStatus, &str, FailureAction)] = {
    use ExitStatus::{Code, Signal};
    use FailureAction::{FallBack, Relaunch, RelaunchLater, RelaunchOnce, Stop, Wait};
    &[
        ("sft_killed_rank", 0, 1, Signal(9), "kill.unknown", RelaunchLater),
        ("sft_terminated_rank", 0, 1, Signal(15), "op.signal", RelaunchLater),
        ("sft_segfault", 0, 1, Signal(11), "native.crash", RelaunchOnce),
        ("sft_exception", 0, 1, Code(1), "code.exception", RelaunchOnce),
        ("sft_cuda_oom", 0, 0, Code(1), "mem.cuda_oom", RelaunchOnce),
        ("sft_killed_in_save", 0, 1, Signal(9), "kill.unknown", RelaunchLater),
        ("sft_disk_full", 0, 0, Code(1), "disk.full", Wait),
        ("sft_missing_shard", 2, 1, Code(1), "ckpt.corrupt", FallBack),
        ("sft_torn_shard", 2, 0, Code(1), "ckpt.corrupt", FallBack),
        ("sft_tracker_empty", 0, 0, Code(1), "ckpt.tracker_torn", Relaunch),
        // One line cannot tell another world size from a shard that is gone: the choice of the resume point does.
        ("sft_other_world", 2, 0, Code(1), "ckpt.corrupt", FallBack),
        ("sft_bad_override", 0, 0, Code(1), "cfg.args", Stop),
        ("sft_bad_path", 0, 0, Code(1), "code.type_key", Stop),
        ("sft_port_taken", 0, 0, Code(1), "comm.port_in_use", Relaunch),
    ]
};

/// Logs in which nothing failed, whatever else may be wrong with them.
const HEALTHY: &[&str] = &[
    "sft_healthy",
    "sft_resumed",
    "sft_resumed_info",
    "sft_retention",
    "sft_weights_nan",
    "sft_tracker_astray",
    "sft_tracker_missing",
    "sft_no_data_state",
    "sft_finished_again",
    "sft_epoch_end",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/logs")
}

/// A state in which attempt 1 runs.
struct Seen(RunState, u64);

impl Seen {
    fn new(resumed: u64) -> Self {
        let mut seen = Self(RunState::default(), 0);
        let from = match resumed {
            0 => StartPoint::Fresh,
            n => StartPoint::Step {
                ckpt: CkptId(format!("global_step_{n}").into()),
                step: Step(n),
                pins: PinsHash(1),
                load: Vec::new(),
                roles: Default::default(),
            },
        };
        let order = LaunchOrder {
            attempt: AttemptNo(1),
            from,
            lost: Vec::new(),
            nodes: 1,
        };
        seen.0.apply(&JournalRecord::Intended {
            at: Tick(0),
            act: Act {
                id: ActId(0),
                term: Term(0),
                attempt: Some(AttemptNo(1)),
                kind: ActKind::Launch(Box::new(order)),
            },
            reasons: Vec::new(),
        });
        let proc = |pid| ProcRef { pid, start: 1 };
        seen.fact(EventKind::ActDone {
            act: ActId(0),
            result: Ok(ActOutput::Launched {
                guard: proc(1),
                workers: vec![proc(2), proc(3)],
                argv: Vec::new(),
                ahead: None,
            }),
        });
        seen
    }

    fn fact(&mut self, kind: EventKind) {
        self.1 += 1;
        self.0.apply(&JournalRecord::Fact(Event {
            at: Tick(self.1),
            wall: WallMs(0),
            entropy: 0,
            kind,
        }));
    }

    /// Sighting in one rank's whole output.
    fn hear(&mut self, hits: &[ScanMatch]) {
        for hit in hits.iter().cloned() {
            if let (RuleKind::Step, Some(step)) = (&hit.kind, hit.sighting.number) {
                self.fact(EventKind::Progress {
                    attempt: AttemptNo(1),
                    phase: TrainerPhase::Step,
                    step: Some(Step(step)),
                    beats: 0,
                    risen: 0,
                    activity: Activity::default(),
                });
            } else {
                self.fact(EventKind::Sighted {
                    attempt: AttemptNo(1),
                    means: hit.kind,
                    sighting: hit.sighting,
                });
            }
        }
    }
}

/// Scans both ranks' output, each once.
fn scan(name: &str) -> [Vec<ScanMatch>; 2] {
    let mut rules = failure_rules();
    rules.push(ScanRule::new("step", r"(?:^|[^\w/.:-])step:(\d+) - ", RuleKind::Step));
    let mut scanner = Scanner::new(rules).unwrap();
    let mut found = false;
    let hits = [0u32, 1].map(|rank| {
        let bytes = std::fs::read(folder().join(format!("{name}.rank{rank}.log"))).unwrap_or_default();
        found |= !bytes.is_empty();
        let lines = bytes.split(|b| *b == b'\n').enumerate();
        lines
            .filter_map(|(n, line)| scanner.line(WorkerId(rank), n as u64 + 1, line))
            .collect()
    });
    assert!(found, "{name} is not there");
    hits
}

/// Tells of a log's ranks in this order, and of the attempt's end.
fn attempt(hits: &[Vec<ScanMatch>; 2], resumed: u64, ranks: [usize; 2], end: Option<(u32, ExitStatus)>) -> Attempt {
    let mut seen = Seen::new(resumed);
    for rank in ranks {
        seen.hear(&hits[rank]);
    }
    if let Some((rank, status)) = end {
        seen.fact(EventKind::WorkerExited {
            attempt: AttemptNo(1),
            worker: WorkerId(rank),
            status,
            first: true,
            lines: Vec::new(),
        });
    }
    seen.0.attempt.unwrap()
}

#[test]
fn each_failing_log_gets_its_class_whichever_rank_is_heard_first() {
    for (name, resumed, rank, status, class, action) in FAILING {
        let hits = scan(name);
        let told = |ranks| -> Diagnosis { diagnose(&attempt(&hits, *resumed, ranks, Some((*rank, *status)))) };
        for ranks in [[0, 1], [1, 0]] {
            let d = told(ranks);
            assert_eq!(
                (d.class.code(), d.action),
                (*class, *action),
                "{name} {ranks:?}: {}",
                d.text
            );
        }
        assert_eq!(told([0, 1]).fingerprint, told([1, 0]).fingerprint, "{name}");
    }
}

#[test]
fn the_users_lines_count_before_the_tables_and_in_a_traceback() {
    let line = |pattern: &str, class: &str| FailureLine {
        pattern: pattern.to_owned(),
        class: class.into(),
        advice: None,
        costs_retry: None,
        blames_checkpoint: None,
    };
    let mut rules = user_rules(&[line("no licence", "user.licence"), line("my heap", "mem.host_oom")]);
    rules.extend(failure_rules());
    let mut scanner = Scanner::new(rules).unwrap();
    let mut told = |log: &[&str]| {
        scanner.clear();
        let lines = log.iter().enumerate();
        let hits: Vec<ScanMatch> = lines
            .filter_map(|(n, line)| scanner.line(WorkerId(0), n as u64 + 1, line.as_bytes()))
            .collect();
        let mut seen = Seen::new(0);
        seen.hear(&hits);
        seen.fact(EventKind::WorkerExited {
            attempt: AttemptNo(1),
            worker: WorkerId(0),
            status: ExitStatus::Code(1),
            first: true,
            lines: Vec::new(),
        });
        diagnose(&seen.0.attempt.unwrap()).class
    };
    let raised = ["Traceback (most recent call last):", "  File \"a.py\", line 1, in f"];
    assert_eq!(
        told(&[raised[0], raised[1], "RuntimeError: no licence"]),
        FailureClass::from("user.licence")
    );
    assert_eq!(
        told(&["my heap is full", "OSError: [Errno 28] No space left on device"]),
        Class::MemHostOom
    );
    assert_eq!(
        told(&["OSError: [Errno 28] No space left on device", "WARNING no licence"]),
        FailureClass::from("user.licence")
    );
    // Text of a model is none of the program's lines.
    let quoted = [
        "[response] no licence",
        "no licence",
        "[score] 0.0",
        "OSError: [Errno 28] No space left on device",
    ];
    assert_eq!(told(&quoted), Class::DiskFull);
}

#[test]
fn what_the_training_went_on_after_is_no_cause() {
    let mut seen = Seen::new(0);
    let mut hear = |at: u64, kind: &EventKind| {
        seen.1 = at;
        seen.fact(kind.clone());
    };
    let failure = |class: &str, line: u64| EventKind::Sighted {
        attempt: AttemptNo(1),
        means: RuleKind::Failure(class.into()),
        sighting: supervise_core::event::Sighting {
            rule: class.into(),
            worker: WorkerId(0),
            line,
            text: class.to_owned(),
            number: None,
            count: 1,
        },
    };
    let step = |n: u64| EventKind::Progress {
        attempt: AttemptNo(1),
        phase: TrainerPhase::Step,
        step: Some(Step(n)),
        beats: 0,
        risen: 0,
        activity: Activity::default(),
    };
    hear(1_000, &failure("reward.server", 1));
    for n in 1..4 {
        hear(20_000 * n, &step(n));
    }
    hear(70_000, &failure("disk.full", 9));
    // What was held back comes at once.
    for n in 4..9 {
        hear(70_000 + n, &step(n));
    }
    hear(
        70_100,
        &EventKind::WorkerExited {
            attempt: AttemptNo(1),
            worker: WorkerId(0),
            status: ExitStatus::Code(1),
            first: true,
            lines: Vec::new(),
        },
    );
    assert_eq!(diagnose(&seen.0.attempt.unwrap()).class, Class::DiskFull);
}

#[test]
fn a_healthy_log_holds_no_failure() {
    for name in HEALTHY {
        let a = attempt(&scan(name), 0, [0, 1], None);
        assert!(a.output.sightings.is_empty(), "{name}: {:?}", a.output.sightings);
        if *name != "sft_epoch_end" {
            assert!(a.training.step.is_some(), "{name}: no step was seen");
        }
    }
}

#[test]
fn no_log_is_forgotten() {
    let told: BTreeSet<&str> = FAILING.iter().map(|f| f.0).chain(HEALTHY.iter().copied()).collect();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some((name, _)) = name.split_once(".rank") {
            assert!(told.contains(name), "{name} is in no table");
        }
    }
}
