//! Copies of the only checkpoint that may go.

use crate::world::disk::Disk;
use crate::world::disk::dir;
use crate::world::options;
use crate::world::script::Truth;
use supervise_core::checkpoint::{CkptId, Depth};
use supervise_core::event::{Event, EventKind};
use supervise_core::finiteness::{Finiteness, NewestFinite, OddTensors};
use supervise_core::id::{AttemptNo, Step, Tick, WallMs};
use supervise_core::numbers::{Numbers, Reading, StepNumbers};
use supervise_core::reason::Reason;
use supervise_core::record::{Act, ActKind, Decision, LaunchOrder, Record, StartPoint};
use supervise_core::retention::prune;
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_core::state::State;

/// Copies deleted of these copies, two steps of which are kept.
fn deleted(copies: &[(u64, &str)]) -> Vec<String> {
    let (mut spec, mut habits) = (options::spec(), options::Habits::default());
    options::apply(&mut spec, &mut habits, &["areal".to_owned()]).unwrap();
    let mut disk = Disk::default();
    for (step, save) in copies {
        disk.put(CkptId(format!("step_{step}.{save}").into()), *step, Truth::Whole);
    }
    let state = State {
        scan: Some(disk.scan(Depth::Full, u32::MAX)),
        ..State::default()
    };
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
fn printed(saved: &[u64], lost_from: u64) -> (State, RunSpec) {
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
    let mut s = State::default();
    let why = || vec![Reason::new("test", "test")];
    s.apply(&Record::Decided {
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
    s.apply(&Record::Intended { at, act, reasons });
    let steps = (1..=saved.iter().copied().max().unwrap_or_default()).map(|n| StepNumbers {
        step: Some(Step(n)),
        of: Numbers {
            loss: Some(Reading(if n >= lost_from { f64::NAN } else { 1.0 })),
            ..Numbers::default()
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

fn heard(s: &mut State, kind: EventKind) {
    s.apply(&Record::Fact(Event {
        at: Tick(0),
        wall: WallMs(0),
        entropy: 0,
        kind,
    }));
}

fn looked(s: &mut State, step: u64, odd: &[u32]) {
    let kind = EventKind::Finite {
        attempt: AttemptNo(1),
        ckpt: dir(step),
        odd: Some(u32::from(!odd.is_empty())),
        tensors: Some(OddTensors::new(10, odd.to_vec())),
    };
    heard(s, kind);
}

fn gone(s: &State, spec: &RunSpec) -> Vec<String> {
    prune(s, spec).iter().map(ToString::to_string).collect()
}

#[test]
fn steps_that_may_be_no_numbers_push_out_no_other() {
    let (s, spec) = printed(&[4, 8, 12, 16], u64::MAX);
    assert_eq!(gone(&s, &spec), ["global_step_4", "global_step_8"]);
    let (s, spec) = printed(&[4, 8, 12, 16], 9);
    assert_eq!(gone(&s, &spec), [""; 0]);
    // The loss after step 8 is what its weights gave: only step 4 is known to be sound.
    assert!(s.is_doubtful(&s.scan.as_ref().unwrap().steps[2]));
    assert!(!s.is_doubtful(&s.scan.as_ref().unwrap().steps[3]));
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
