//! The connection: broken, taken by a newer term, or by nobody.

use super::rig::{Rig, eventually, fake, sh};
use std::fs;
use std::io::{Read as _, Write as _};
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::event::{ExitStatus, TrainerPhase};
use supervise_core::id::{Ms, Step, Term, Tick};
use supervise_core::lease::FenceDeadline;
use supervise_host::address::connect;
use supervise_host::guard::protocol::{FromGuard, ToGuard};
use supervise_host::process::{boottime_ms, find_attempt_processes, is_alive};

#[test]
fn a_broken_connection_can_be_taken_by_a_newer_term_only() {
    let mut rig = Rig::start("retake", |order| {
        order.workers = vec![
            sh("echo step:41; echo boom; echo step:42; exec sleep 1000"),
            fake(&["exit", "9"]),
        ];
        order.rules = vec![
            ScanRule::new("step", r"^step:(\d+)", RuleKind::Step),
            ScanRule::new("boom", "^boom", RuleKind::Failure("x.y".into())),
        ];
    });
    let workers = rig.launched();
    rig.sighted("boom");
    rig.find(|m| match m {
        FromGuard::Progress { step, .. } => step.filter(|s| *s == Step(42)),
        _ => None,
    });
    rig.break_connection();
    for term in [1, 2] {
        // The order came from term 2.
        assert!(rig.take(Term(term)).is_none());
    }
    assert!(is_alive(workers[0]));
    let hello = rig.take(Term(3)).unwrap();
    assert_eq!(hello.guard.pid, rig.guard());
    assert_eq!(hello.workers.iter().map(|w| w.proc).collect::<Vec<_>>(), workers);
    assert_eq!(hello.workers[0].exit, None);
    assert_eq!(hello.workers[1].exit, Some(ExitStatus::Code(9)));
    assert_eq!((hello.step, hello.phase), (Some(Step(42)), TrainerPhase::Step));
    assert!(hello.sightings.iter().any(|(_, s)| s.rule == "boom".into()));
    assert!(!hello.gone);
    assert!(rig.take(Term(3)).is_none());
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
}

#[test]
fn a_newer_term_replaces_a_living_one() {
    let mut rig = Rig::start("replace", |order| {
        order.workers = vec![sh("exec sleep 1000")];
    });
    let workers = rig.launched();
    let old = rig.keep_connection();
    assert!(rig.take(Term(5)).is_some());
    let mut rest = String::new();
    let mut old = old.into_inner();
    old.read_to_string(&mut rest).unwrap();
    assert!(is_alive(workers[0]));
}

#[test]
fn nonsense_on_the_socket_changes_nothing() {
    let mut rig = Rig::start("nonsense", |order| {
        order.workers = vec![sh("exec sleep 1000")];
    });
    let workers = rig.launched();
    for nonsense in ["\n", "{}\n", "\"kill_tree\"\n", "\0\0\n", ""] {
        let mut stream = connect(&rig.socket()).unwrap().unwrap();
        stream.write_all(nonsense.as_bytes()).unwrap();
    }
    assert!(rig.take(Term(9)).is_some());
    assert!(is_alive(workers[0]));
}

#[test]
fn nobody_comes_and_the_tree_is_killed() {
    let mut rig = Rig::start("orphan", |order| {
        order.workers = vec![sh("trap '' TERM; sleep 1000 & wait")];
        order.orphan_grace = Ms(50);
    });
    let workers = rig.launched();
    rig.break_connection();
    assert_eq!(rig.end(), Some(0));
    assert!(!is_alive(workers[0]));
    assert!(find_attempt_processes(&rig.run(), &workers).is_empty());
    assert!(connect(&rig.socket()).unwrap().is_none());
}

/// A supervisor that is stopped, or hangs, holds the connection and ends nothing, while another machine may take the lease.
#[test]
fn workers_end_with_the_lease_whatever_their_driver_is_doing() {
    let until = |led, alone| {
        let now = boottime_ms();
        Some(FenceDeadline {
            led: Tick(now + led),
            alone: Tick(now + alone),
        })
    };
    let mut rig = Rig::start("unrenewed", |order| {
        order.workers = vec![sh("exec sleep 1000")];
    });
    let workers = rig.launched();
    let began = std::time::Instant::now();
    // Each renewal is a second more.
    for _ in 0..5 {
        rig.say(ToGuard::Lease(until(1000, 100_000)));
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert!(is_alive(workers[0]) && began.elapsed().as_millis() > 1000);
    assert_eq!(rig.gone(), []);
    assert!(!is_alive(workers[0]));
}

/// The same where the connection is broken: a new driver's lease is told anew, and until it is no end is due.
#[test]
fn orphans_end_with_the_lease_and_a_newer_term_brings_its_own() {
    let start = |name, alone| {
        let mut rig = Rig::start(name, |order| {
            order.workers = vec![sh("exec sleep 1000")];
        });
        let workers = rig.launched();
        let now = boottime_ms();
        rig.say(ToGuard::Lease(Some(FenceDeadline {
            led: Tick(now + 2000),
            alone: Tick(now + alone),
        })));
        rig.break_connection();
        (rig, workers)
    };
    let (mut rig, workers) = start("alone", 1000);
    eventually(|| !is_alive(workers[0]));
    assert!(rig.take(Term(3)).unwrap().gone);
    let (mut rig, workers) = start("again", 100_000);
    rig.settle();
    std::thread::sleep(std::time::Duration::from_millis(2200));
    assert!(rig.take(Term(3)).unwrap().takes_lease);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(is_alive(workers[0]), "what was said to the term before does not count");
    rig.say(ToGuard::Lease(Some(FenceDeadline {
        led: Tick(boottime_ms()),
        alone: Tick(boottime_ms()),
    })));
    assert_eq!(rig.gone(), []);
}

#[test]
fn a_save_may_finish_before_an_orphan_is_killed() {
    let mut rig = Rig::start("saving", |order| {
        order.workers = vec![sh(
            "echo saving; read x < \"$GO\"; echo saved > \"$SAVED\"; echo step:1; exec sleep 1000",
        )];
        order.rules = vec![
            ScanRule::new("save", "^saving", RuleKind::Enters(TrainerPhase::Save)),
            ScanRule::new("step", r"^step:(\d+)", RuleKind::Step),
        ];
        order.orphan_grace = Ms(50);
        order.save_grace = Ms::secs(100);
    });
    let workers = rig.launched();
    rig.find(|m| match m {
        FromGuard::Progress { phase, .. } => (*phase == TrainerPhase::Save).then_some(()),
        _ => None,
    });
    rig.break_connection();
    rig.go();
    assert_eq!(rig.end(), Some(0));
    assert!(!is_alive(workers[0]));
    assert_eq!(fs::read_to_string(rig.path("saved")).unwrap(), "saved\n");
}

#[test]
fn without_a_driver_sigterm_stops_the_tree_and_with_one_it_is_the_drivers() {
    let mut rig = Rig::start("term", |order| {
        order.workers = vec![sh("trap 'echo bye > \"$SAVED\"; exit 4' TERM; echo up; \
            while :; do sleep 0.02; done")];
        order.rules = vec![ScanRule::new("up", "^up", RuleKind::Scratch)];
        order.stop_grace = Ms::secs(100);
    });
    let workers = rig.launched();
    rig.sighted("up");
    rig.signal_guard(libc::SIGTERM);
    rig.signal_guard(libc::SIGHUP);
    rig.signal_guard(libc::SIGINT);
    assert!(rig.take(Term(3)).is_some());
    assert!(is_alive(workers[0]));
    rig.break_connection();
    rig.settle();
    rig.signal_guard(libc::SIGTERM);
    eventually(|| !is_alive(workers[0]));
    let hello = rig.take(Term(4)).unwrap();
    assert_eq!(hello.workers[0].exit, Some(ExitStatus::Code(4)));
    assert_eq!(fs::read_to_string(rig.path("saved")).unwrap(), "bye\n");
}
