//! Copies of the only checkpoint that may go.

use crate::world::disk::Disk;
use crate::world::disk::dir;
use crate::world::options;
use crate::world::script::Truth;
use supervise_core::checkpoint::finiteness::{Finiteness, NewestFinite, OddTensors};
use supervise_core::checkpoint::{CkptId, Depth, TrainerNote};
use supervise_core::event::{Event, EventKind};
use supervise_core::id::{AttemptNo, Step, Tick, WallMs};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{Act, ActKind, Decision, JournalRecord, LaunchOrder, StartPoint};
use supervise_core::observe::numbers::{MetricValue, StepMetrics, StepNumbers};
use supervise_core::resume::retention::{look_before_prune, prune};
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_core::state::RunState;

/// Copies deleted of these copies, two steps of which are kept.
fn deleted(copies: &[(u64, &str)]) -> Vec<String> {
    let (mut spec, mut habits) = (options::spec(), options::Habits::default());
    options::apply(&mut spec, &mut habits, &["areal".to_owned()]).unwrap();
    let mut disk = Disk::default();
    for (step, save) in copies {
        disk.put(CkptId(format!("step_{step}.{save}").into()), *step, Truth::Whole);
    }
    let mut state = RunState::default();
    state.disk.scan = Some(disk.scan(Depth::Full, u32::MAX));
    prune(&state, &spec).iter().map(ToString::to_string).collect()
}

#[test]
fn two_copies_of_one_step_push_out_no_other() {
    assert_eq!(deleted(&[(8, "a"), (8, "b"), (6, "c")]), [""; 0]);
    assert_eq!(deleted(&[(8, "a"), (8, "b"), (6, "c"), (4, "d")]), ["step_4.d"]);
}

#[test]
fn two_steps_stay_and_the_oldest_goes_first() {
    assert_eq!(deleted(&[(8, "a")]), [""; 0]);
    assert_eq!(
        deleted(&[(8, "a"), (6, "b"), (4, "c"), (2, "d")]),
        ["step_2.d", "step_4.c"]
    );
}

/// A run that keeps two steps, with an attempt that saved these and printed this loss from this step on.
fn printed(saved: &[u64], lost_from: u64) -> (RunState, RunSpec) {
    let (mut spec, mut habits) = (options::spec(), options::Habits::default());
    options::apply(&mut spec, &mut habits, &["keep=2".to_owned()]).unwrap();
    let mut disk = Disk::default();
    for step in saved {
        disk.put(dir(*step), *step, Truth::Whole);
    }
    let order = LaunchOrder {
        attempt: AttemptNo(1),
        from: StartPoint::Fresh,
        lost: Vec::new(),
        nodes: 1,
    };
    let mut s = RunState::default();
    let why = || vec![Reason::new("test", "test")];
    s.apply(&JournalRecord::Decided {
        at: Tick(0),
        what: Decision::StartFrom {
            order: order.clone(),
            edits: Vec::new(),
            care: true,
            intent: ResumeIntent::Auto,
        },
        reasons: why(),
    });
    let act = Act {
        id: s.next_act,
        term: s.term,
        attempt: Some(AttemptNo(1)),
        kind: ActKind::Launch(Box::new(order)),
    };
    let (at, reasons) = (Tick(0), why());
    s.apply(&JournalRecord::Intended { at, act, reasons });
    let steps = (1..=saved.iter().copied().max().unwrap_or_default()).map(|n| StepNumbers {
        step: Some(Step(n)),
        of: StepMetrics {
            loss: Some(MetricValue(if n >= lost_from { f64::NAN } else { 1.0 })),
            ..StepMetrics::default()
        },
    });
    heard(
        &mut s,
        EventKind::Numbers {
            attempt: AttemptNo(1),
            steps: steps.collect(),
        },
    );
    heard(&mut s, EventKind::Checkpoints(disk.scan(Depth::Full, u32::MAX)));
    (s, spec)
}

fn heard(s: &mut RunState, kind: EventKind) {
    s.apply(&JournalRecord::Fact(Event {
        at: Tick(0),
        wall: WallMs(0),
        entropy: 0,
        kind,
    }));
}

fn looked(s: &mut RunState, step: u64, odd: &[u32]) {
    let kind = EventKind::Finite {
        attempt: AttemptNo(1),
        ckpt: dir(step),
        odd: Some(u32::from(!odd.is_empty())),
        tensors: Some(OddTensors::new(10, odd.to_vec())),
    };
    heard(s, kind);
}

fn gone(s: &RunState, spec: &RunSpec) -> Vec<String> {
    prune(s, spec).iter().map(ToString::to_string).collect()
}

#[test]
fn steps_that_may_be_no_numbers_push_out_no_other() {
    let (mut s, spec) = printed(&[4, 8, 12, 16], u64::MAX);
    looked(&mut s, 16, &[]);
    assert_eq!(gone(&s, &spec), ["global_step_4", "global_step_8"]);
    let (s, spec) = printed(&[4, 8, 12, 16], 9);
    assert_eq!(gone(&s, &spec), [""; 0]);
    // The loss after step 8 is what its weights gave: only step 4 is known to be sound.
    assert!(s.is_doubtful(&s.disk.scan.as_ref().unwrap().steps[2]));
    assert!(!s.is_doubtful(&s.disk.scan.as_ref().unwrap().steps[3]));
}

#[test]
fn the_best_step_stays_as_long_as_the_newest_names_it() {
    let (mut s, spec) = printed(&[2, 4, 6, 8, 10], u64::MAX);
    looked(&mut s, 10, &[]);
    let steps = &mut s.disk.scan.as_mut().unwrap().steps;
    let note = |best| {
        Some(TrainerNote {
            best: Some(Step(best)),
            ends: false,
            save_every: None,
            planned: None,
        })
    };
    (steps[0].trainer_note, steps[1].trainer_note) = (note(4), note(2));
    assert_eq!(gone(&s, &spec), ["global_step_2", "global_step_6"]);
}

/// Nothing in the loss shows it.
#[test]
fn a_step_goes_only_below_one_that_is_known_to_be_finite() {
    let (mut s, mut spec) = printed(&[2, 4, 8, 12, 16], u64::MAX);
    spec.policy.retention.keep_raise = 4;
    assert_eq!(gone(&s, &spec), [""; 0]);
    assert_eq!(look_before_prune(&s, &spec), Some(dir(16)));
    looked(&mut s, 16, &[3]);
    looked(&mut s, 12, &[3]);
    looked(&mut s, 8, &[]);
    assert_eq!(gone(&s, &spec), ["global_step_2"]);
    assert_eq!(s.odd_steps(), [dir(16), dir(12)]);
}

#[test]
fn one_look_serves_for_several_saves() {
    let (mut s, mut spec) = printed(&[4, 8, 12, 16], u64::MAX);
    spec.keep = Some(3);
    looked(&mut s, 16, &[]);
    let mut asked = Vec::new();
    for newest in (16..=40).step_by(4) {
        let mut disk = Disk::default();
        for step in (4..=newest).rev().step_by(4).take(4) {
            disk.put(dir(step), step, Truth::Whole);
        }
        heard(&mut s, EventKind::Checkpoints(disk.scan(Depth::Full, u32::MAX)));
        if let Some(ckpt) = look_before_prune(&s, &spec) {
            assert_eq!(ckpt, dir(newest));
            asked.push(newest);
            looked(&mut s, newest, &[]);
        }
        assert_eq!(gone(&s, &spec), [format!("global_step_{}", newest - 12)]);
    }
    assert_eq!(asked, [28, 40]);
}

/// Its files tell nothing, or nobody can read them.
#[test]
fn steps_whose_weights_cannot_be_read_go_as_the_user_says() {
    let (mut s, spec) = printed(&[4, 8, 12], u64::MAX);
    for step in [12, 8, 4] {
        let ckpt = look_before_prune(&s, &spec).unwrap();
        assert_eq!(ckpt, dir(step));
        let (attempt, odd, tensors) = (AttemptNo(1), None, None);
        heard(
            &mut s,
            EventKind::Finite {
                attempt,
                ckpt,
                odd,
                tensors,
            },
        );
    }
    assert_eq!(gone(&s, &spec), ["global_step_4"]);
}

#[test]
fn a_look_tells_what_a_loss_only_hints_at() {
    let (mut s, spec) = printed(&[2, 4, 6, 8, 10], 9);
    for step in [8, 10] {
        looked(&mut s, step, &[1, 2]);
    }
    assert_eq!(s.newest_finite(), NewestFinite::After(dir(6)));
    looked(&mut s, 6, &[1]);
    // Infinities of a mask, or numbers that were lost: the older ones tell.
    assert_eq!(s.finiteness(&dir(6)), Finiteness::Unknown);
    looked(&mut s, 4, &[1]);
    looked(&mut s, 2, &[1]);
    assert_eq!(s.newest_finite(), NewestFinite::Found(Step(6), dir(6)));
    assert_eq!(s.finiteness(&dir(8)), Finiteness::Odd);
    assert_eq!(gone(&s, &spec), ["global_step_2"]);
}

#[test]
fn too_many_that_wait_for_a_look_leave_the_newest_two_and_all_that_are_sound() {
    let (s, spec) = printed(&[2, 4, 6, 8, 10, 12, 14, 16], 5);
    assert_eq!(
        gone(&s, &spec),
        [
            "global_step_4",
            "global_step_6",
            "global_step_8",
            "global_step_10",
            "global_step_12"
        ]
    );
    let (s, spec) = printed(&[2, 4, 6, 8, 10], 5);
    assert_eq!(gone(&s, &spec), [""; 0]);
}

/// Two roles, kept in these numbers, of steps that hold these.
fn roles_gone(keep: [Option<u32>; 2], steps: &[(u64, &[&str])]) -> Vec<String> {
    let saved: Vec<u64> = steps.iter().map(|(step, _)| *step).collect();
    let (mut s, mut spec) = printed(&saved, u64::MAX);
    spec.keep = None;
    spec.roles.push(spec.roles[0].clone());
    spec.roles[1].name = "critic".to_owned();
    for (role, keep) in spec.roles.iter_mut().zip(keep) {
        role.keep = keep;
    }
    for c in &mut s.disk.scan.as_mut().unwrap().steps {
        let (_, roles) = steps.iter().find(|(step, _)| *step == c.step.0).unwrap();
        c.roles = ["actor", "critic"].map(str::to_owned).to_vec();
        let gone: Vec<CkptId> = ["actor", "critic"]
            .iter()
            .filter(|role| !roles.contains(role))
            .map(|role| CkptId(c.id.0.join(role)))
            .collect();
        c.lose_roles(&gone);
    }
    let newest = saved.last().copied().unwrap();
    looked(&mut s, newest, &[]);
    gone(&s, &spec)
}

const BOTH: &[&str] = &["actor", "critic"];

#[test]
fn each_role_is_kept_at_its_own_number_and_two_whole_steps_stay() {
    let all: Vec<(u64, &[&str])> = [2, 4, 6, 8, 10].map(|step| (step, BOTH)).into();
    // One alone is kept in two steps; the other in all.
    assert_eq!(
        roles_gone([Some(1), None], &all),
        ["global_step_2/actor", "global_step_4/actor", "global_step_6/actor"]
    );
    assert_eq!(roles_gone([None, Some(4)], &all), ["global_step_2/critic"]);
    assert_eq!(
        roles_gone([Some(2), Some(4)], &all),
        ["global_step_2", "global_step_4/actor", "global_step_6/actor"]
    );
    assert_eq!(roles_gone([Some(2), None], &all[3..]), [""; 0]);
}

#[test]
fn roles_that_are_left_of_a_step_go_at_their_own_number() {
    let left: &[(u64, &[&str])] = &[
        (2, &["critic"]),
        (4, &["critic"]),
        (6, &["critic"]),
        (8, BOTH),
        (10, BOTH),
    ];
    assert_eq!(roles_gone([Some(2), None], left), [""; 0]);
    assert_eq!(roles_gone([Some(2), Some(3)], left), ["global_step_2", "global_step_4"]);
    let bare: &[(u64, &[&str])] = &[(2, &[]), (4, BOTH), (6, BOTH)];
    assert_eq!(roles_gone([Some(2), None], bare), ["global_step_2"]);
}
