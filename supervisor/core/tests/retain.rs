//! Copies of the only checkpoint that may go.

use crate::world::disk::Disk;
use crate::world::options;
use crate::world::script::Truth;
use supervise_core::checkpoint::{CkptId, Depth};
use supervise_core::retention::prune;
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
