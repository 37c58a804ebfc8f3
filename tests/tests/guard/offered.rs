//! A guard that waits is given its order before it may begin.

use crate::rig::{Rig, sh};
use supervise_core::event::ExitStatus;
use supervise_core::id::{ActId, WorkerId};
use supervise_host::guard::protocol::ToGuard;
use supervise_host::guard::standby;

const ACT: ActId = ActId(4);

#[test]
fn a_guard_that_has_its_order_begins_at_the_word() {
    let mut rig = Rig::begun_by(
        "offered",
        |order, _| order.workers = vec![sh("exit 3")],
        |order| {
            let mut waiting = standby(&order.exe, &[], None).unwrap();
            assert_eq!(waiting.offered(), None);
            waiting.offer(ACT, order).unwrap();
            assert_eq!(waiting.offered(), Some(ACT));
            waiting.go().unwrap()
        },
    );
    rig.launched();
    assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Code(3), true));
    assert_eq!(rig.gone(), []);
    rig.say(ToGuard::Bye);
    assert_eq!(rig.end(), Some(0));
}

/// As where the supervisor dies before the intent of the launch is on the disk.
#[test]
fn an_order_without_the_word_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let mut status = None;
    let mut rig = Rig::begun_by(
        "unsaid",
        |order, _| order.workers = vec![sh(&format!("touch {}", started.display()))],
        |order| {
            let mut waiting = standby(&order.exe, &[], None).unwrap();
            waiting.offer(ACT, order).unwrap();
            status = Some(waiting.dismiss().wait().unwrap());
            assert!(!started.exists());
            // The same order where it may be begun.
            supervise_host::guard::spawn(&order.exe, order).unwrap()
        },
    );
    assert!(!status.unwrap().success());
    // Nothing of the first is in the way, and the file is the second's.
    rig.launched();
    assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Code(0), true));
    assert_eq!(rig.gone(), []);
    assert!(started.exists());
    rig.say(ToGuard::Bye);
    assert_eq!(rig.end(), Some(0));
}
