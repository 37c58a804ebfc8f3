//! Journals of real runs, and the specifications that were written beside them: what they said then, they say now.
//!
//! How they were made is told in `tests/fixtures/README.md`.

#![expect(clippy::disallowed_methods, reason = "journals are read from the source tree")]

use crate::world::words::intent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use supervise_core::checkpoint::CkptId;
use supervise_core::checkpoint::finiteness::WeightsLook;
use supervise_core::decide::decide;
use supervise_core::event::{Event, EventKind, TrackerState};
use supervise_core::id::{AttemptNo, Step};
use supervise_core::journal::record::{ActKind, JournalRecord, RunOutcome, WorldQuery};
use supervise_core::journal::{self, ParsedJournal};
use supervise_core::resume::retention::{look_before_prune, prune};
use supervise_core::spec::{RunSpec, SavePolicy};
use supervise_core::state::{RunMode, RunState};

/// A run as its files tell it.
struct Recorded {
    journal: ParsedJournal,
    spec: RunSpec,
}

impl Recorded {
    fn of(name: &str) -> Self {
        let file = |end: &str| std::fs::read(folder().join(format!("{name}{end}"))).unwrap();
        let journal = journal::read(&file(".jsonl"));
        let written: Value = serde_json::from_slice(&file(".spec.json")).unwrap();
        let spec: RunSpec = serde_json::from_value(written.clone()).unwrap();
        holds(&serde_json::to_value(&spec).unwrap(), &written);
        assert_eq!((journal.unknown, journal.damaged.len()), (0, 0));
        Self { journal, spec }
    }

    fn records(&self) -> impl Iterator<Item = &JournalRecord> {
        self.journal.lines.iter().flat_map(|(_, records)| records)
    }

    /// The state after the last record.
    fn folded(&self) -> RunState {
        let mut state = RunState::default();
        for record in self.records() {
            state.apply(record);
        }
        state
    }

    /// Acts that were intended, in words.
    fn acts(&self) -> Vec<String> {
        self.records().filter_map(act).map(|kind| intent(&kind)).collect()
    }

    /// Each fact once more, in the state that it met then: what is to be done about it is what was done then.
    fn decides_as_then(&self) {
        let mut state = RunState::default();
        for (_, records) in &self.journal.lines {
            if let Some(JournalRecord::Fact(fact)) = records.first() {
                let met = as_met(&state, fact);
                let mut now = decide(&state, &self.spec, &met);
                // The build of then did not look at the weights of the last step.
                if let Some(ckpt) = looks_at_weights(&now.asks) {
                    let mut seen = state.clone();
                    seen.progress.weights.push(finite(ckpt));
                    now = decide(&seen, &self.spec, &met);
                }
                let now = now.records;
                // Nor did it release the step that the attempt began from.
                let began = state.attempt.as_ref().map(|a| a.order.from.step());
                let acts = |of: &[JournalRecord]| {
                    let mut acts: Vec<ActKind> = of.iter().filter_map(act).collect();
                    for kind in &mut acts {
                        if let ActKind::Prune(steps) = kind {
                            steps.retain(|id| {
                                Some(id.0.as_str()) != began.map(|n| format!("global_step_{n}")).as_deref()
                            });
                        }
                    }
                    acts
                };
                assert_eq!(acts(&now), acts(records), "{fact:?}");
            }
            for record in records {
                state.apply(record);
            }
        }
    }
}

fn finite(ckpt: CkptId) -> WeightsLook {
    WeightsLook {
        ckpt,
        step: Step(u64::MAX),
        files: Some(0),
        tensors: None,
    }
}

fn looks_at_weights(asks: &[WorldQuery]) -> Option<CkptId> {
    asks.iter().find_map(|ask| match ask {
        WorldQuery::Finite { ckpt } => Some(ckpt.clone()),
        _ => None,
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/journals")
}

/// Everything that was written is said still, by the same name: an older program reads it, too.
fn holds(now: &Value, then: &Value) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, then) in then {
                holds(now.get(name).unwrap_or(&Value::Null), then);
            }
        }
        _ => assert_eq!(now, then),
    }
}

/// The fact as it came in: a scan is recorded as the difference to the one before.
fn as_met(state: &RunState, fact: &Event) -> Event {
    let mut fact = fact.clone();
    if let EventKind::CheckpointsChanged(diff) = &fact.kind {
        let report = state.disk.scan.clone().and_then(|scan| scan.apply(diff)).unwrap();
        fact.kind = EventKind::Checkpoints(report);
    }
    fact
}

fn act(record: &JournalRecord) -> Option<ActKind> {
    match record {
        JournalRecord::Intended { act, .. } => Some(act.kind.clone()),
        _ => None,
    }
}

fn steps(state: &RunState) -> Vec<(&str, u64)> {
    let all = state.disk.scan.iter().flat_map(|scan| &scan.steps);
    all.map(|c| (c.id.0.as_str(), c.step.0)).collect()
}

/// Course of both runs: killed in the save of step 6, resumed from step 4, finished with step 8.
fn finished(s: &RunState) {
    assert_eq!(
        (&s.mode, &s.outcome),
        (&RunMode::Finished, &Some(RunOutcome::Finished { step: Some(Step(8)) }))
    );
    assert_eq!(
        (s.progress.mark, s.progress.finished, s.progress.total),
        (Some(Step(8)), Some(Step(8)), Some(Step(8)))
    );
    let a = s.attempt.as_ref().unwrap();
    assert_eq!(
        (s.attempts, s.budget.charged, a.output.resumed, a.end.gone),
        (AttemptNo(2), 0, Some(Step(4)), true)
    );
    let failed: Vec<&str> = s.budget.failures.iter().map(|f| f.diagnosis.class.code()).collect();
    assert_eq!(failed, ["kill.unknown"]);
}

#[test]
fn a_run_with_a_directory_for_each_step_is_folded_and_decided_as_then() {
    let run = Recorded::of("steps");
    let mut s = run.folded();
    finished(&s);
    assert_eq!(
        steps(&s),
        [("global_step_8", 8), ("global_step_6", 6), ("global_step_4", 4)]
    );
    assert_eq!(s.disk.scan.as_ref().unwrap().tracker, TrackerState::Step(Step(8)));
    assert_eq!(
        run.acts(),
        [
            "launch attempt 1 from scratch",
            "kill the tree",
            "arrange (global_step_6 to aside, tracker names 4)",
            "launch attempt 2 from global_step_4",
            "prune global_step_2",
            "exit 0",
        ]
    );
    // Two newer ones are proven: what the attempt began from goes, too, once a newer one is known to be finite.
    let newest = CkptId("global_step_8".into());
    assert_eq!(look_before_prune(&s, &run.spec), Some(newest.clone()));
    s.progress.weights.push(finite(newest));
    assert_eq!(prune(&s, &run.spec), [CkptId("global_step_4".into())]);
    assert_eq!(run.spec.saves, SavePolicy::Steps);
    run.decides_as_then();
}

#[test]
fn a_run_with_one_checkpoint_that_is_overwritten_is_folded_and_decided_as_then() {
    let run = Recorded::of("in_place");
    let s = run.folded();
    finished(&s);
    assert_eq!(
        steps(&s),
        [
            ("live.dbc542ae", 8),
            ("step_8.dbc542ae", 8),
            ("step_6.141fe2da", 6),
            ("step_4.023ee27d", 4),
        ]
    );
    assert_eq!(
        run.acts(),
        [
            "launch attempt 1 from scratch",
            "keep live.89c942f5",
            "keep live.023ee27d",
            "kill the tree",
            "arrange (live to aside, step_4.023ee27d put back, frequencies)",
            "launch attempt 2 from live.023ee27d",
            "keep live.141fe2da",
            "prune step_2.89c942f5",
            "keep live.dbc542ae",
            "exit 0",
        ]
    );
    let place = run.spec.saves.in_place().unwrap();
    assert_eq!(place.store, "/mnt/exp/files/supervise/me/exp/trial0");
    assert_eq!(
        (&place.own["user"], &place.own["data_ranks"]),
        (&json!("me"), &json!(1))
    );
    run.decides_as_then();
}
