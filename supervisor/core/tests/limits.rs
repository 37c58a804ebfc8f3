//! A limit of the user that keeps the checkpoints from being read: named at once, and not waited for long.

use crate::world::World;
use crate::world::script::parse;
use supervise_core::event::{EventKind, ScanReport};
use supervise_core::journal::record::RunOutcome;
use supervise_core::state::RunMode;

/// A run whose choice meets this error, and nothing else.
fn met(error: &str) -> World {
    let mut w = World::new(parse("spec last=8\nat 0s io hang").unwrap());
    w.run_until(1_000);
    assert_eq!(w.s.mode, RunMode::Choosing);
    w.feed(EventKind::Checkpoints(ScanReport {
        unreadable: Some(error.to_owned()),
        ..ScanReport::default()
    }));
    w
}

#[test]
fn a_limit_ends_a_choice_within_a_minute_and_is_named_first() {
    let limits = [
        ("helper: Resource temporarily unavailable (os error 11)", "ulimit -u"),
        ("opening data.pt: Too many open files (os error 24)", "ulimit -n"),
        ("Cannot allocate memory (os error 12)", "ulimit -v"),
    ];
    for (error, name) in limits {
        let mut w = met(error);
        assert!(w.s.why[0].text.contains(name), "{:?}", w.s.why);
        assert!(w.s.why[1].text.contains(error), "{:?}", w.s.why);
        w.run_until(58_000);
        assert!(matches!(w.s.mode, RunMode::Waiting { .. }), "{:?}", w.s.mode);
        w.run_until(70_000);
        let Some(RunOutcome::Environment { why }) = &w.s.outcome else {
            panic!("{:?}", w.s.mode)
        };
        assert!(why.contains(name) && w.is_over(), "{why}");
        assert_eq!(w.s.budget.charged, 0);
    }
}

#[test]
fn another_error_is_waited_for_as_ever() {
    let mut w = met("Input/output error (os error 5)");
    w.run_until(1_700_000);
    assert!(matches!(w.s.mode, RunMode::Waiting { .. }), "{:?}", w.s.mode);
    w.run_until(1_900_000);
    assert!(matches!(w.s.outcome, Some(RunOutcome::Environment { .. })));
}
