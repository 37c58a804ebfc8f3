//! The lease in test directories: won, lost, waited for, and with unexpected contents.

use super::*;
use crate::io_worker::temp_dir;
use std::fs;
use supervise_core::id::ProcRef;

pub(super) fn claim(ttl: u64) -> LeaseClaim {
    own_claim(Ms(ttl), Ms(0), Term(0))
}

fn parents(ttl: u64) -> LeaseClaim {
    let pid = nix::unistd::getppid().as_raw();
    let start = crate::process::proc_stat(pid).unwrap().start;
    LeaseClaim {
        proc: ProcRef { pid, start },
        ..claim(ttl)
    }
}

/// A process of another PID namespace on the same kernel, under the same host name.
fn elsewhere(ttl: u64) -> LeaseClaim {
    let mut claim = claim(ttl);
    claim.seat.pid_ns += 1;
    claim
}

pub(super) fn take(dir: &Utf8Path, claim: &LeaseClaim) -> Result<HeldLease, String> {
    match HeldLease::take(dir, claim, false, &|| false).unwrap() {
        LeaseAttempt::Won(lease) => Ok(*lease),
        LeaseAttempt::Held(who) => Err(who),
        LeaseAttempt::Nobody => Err("nobody asked".into()),
    }
}

#[test]
fn a_term_is_won_once_and_a_dead_holder_is_succeeded() {
    let (_keep, dir) = temp_dir();
    let mut first = take(&dir, &claim(100)).unwrap();
    assert_eq!(first.term(), Term(1));
    assert!(take(&dir, &parents(100)).is_err());
    assert_eq!(first.bump().unwrap(), None);
    // An I/O worker of this very process may have won it and died.
    assert_eq!(take(&dir, &claim(100)).unwrap().term(), Term(2));
    let mut dead = HeldLease::adopt(&dir, Term(2)).unwrap();
    dead.holder.proc.start += 1;
    dead.write().unwrap();
    assert_eq!(take(&dir, &parents(100)).unwrap().term(), Term(3));
    assert!(
        first.bump().unwrap().is_some(),
        "the first holder must learn that it lost"
    );
    let mut adopted = HeldLease::adopt(&dir, Term(1)).unwrap();
    assert!(adopted.bump().unwrap().is_some());
}

#[test]
fn a_silent_holder_elsewhere_is_waited_for_whatever_its_host_is_called() {
    let (_keep, dir) = temp_dir();
    let mut other_boot = claim(100);
    other_boot.seat.boot = "another".into();
    for (n, other) in [elsewhere(100), other_boot].iter().enumerate() {
        let dir = dir.join(n.to_string());
        let first = take(&dir, other).unwrap();
        assert_eq!(first.holder.host, claim(150).host);
        let before = crate::process::boottime_ms();
        assert_eq!(take(&dir, &claim(150)).unwrap().term(), Term(2));
        assert!(crate::process::boottime_ms() - before >= 150);
    }
}

#[test]
fn a_holder_elsewhere_that_bumps_is_alive() {
    let (_keep, dir) = temp_dir();
    let mut first = take(&dir, &elsewhere(60_000)).unwrap();
    let beating = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        first.bump().unwrap();
    });
    assert!(take(&dir, &claim(60_000)).is_err());
    beating.join().unwrap();
}

#[test]
fn nobody_who_waits_any_more_takes_nothing() {
    let (_keep, dir) = temp_dir();
    let _first = take(&dir, &elsewhere(100)).unwrap();
    let took = HeldLease::take(&dir, &claim(60_000), false, &|| true).unwrap();
    assert!(matches!(took, LeaseAttempt::Nobody));
    assert_eq!(terms(&dir).unwrap(), [Term(1)]);
}

#[test]
fn absurd_entries_are_refused_or_passed_over() {
    for name in ["4294967295", "4294967294", "99999999"] {
        let (_keep, dir) = temp_dir();
        fs::create_dir(dir.join(name)).unwrap();
        let error = HeldLease::take(&dir, &claim(10), false, &|| false).unwrap_err();
        assert!(error.what.contains(name) && !error.retryable, "{error:?}");
    }
    let (_keep, dir) = temp_dir();
    for name in ["007", "+7", "4294967296", "-1", "x"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    assert_eq!(take(&dir, &claim(10)).unwrap().term(), Term(1));
    fs::write(dir.join("9"), "").unwrap();
    let error = HeldLease::take(&dir, &claim(10), false, &|| false).unwrap_err();
    assert!(error.what.contains("9 is no directory"), "{error:?}");
}

#[test]
fn a_file_in_the_place_of_the_lease_is_named() {
    let (_keep, dir) = temp_dir();
    fs::write(dir.join("lease"), "").unwrap();
    let error = HeldLease::take(&dir.join("lease"), &claim(10), false, &|| false).unwrap_err();
    assert!(error.what.contains("lease is in the way"), "{error:?}");
}

#[test]
fn a_lease_that_is_deleted_while_it_is_waited_for_is_an_error() {
    let (_keep, dir) = temp_dir();
    let dir = dir.join("lease");
    let _first = take(&dir, &elsewhere(60_000)).unwrap();
    let gone = dir.clone();
    let deleting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        fs::remove_dir_all(gone).unwrap();
    });
    let error = HeldLease::take(&dir, &claim(60_000), false, &|| false).unwrap_err();
    assert!(error.what.contains("was deleted meanwhile"), "{error:?}");
    deleting.join().unwrap();
}

#[test]
fn a_copy_of_a_living_holders_lease_is_told_by_its_counter() {
    let (_keep, dir) = temp_dir();
    let (original, copy) = (dir.join("a"), dir.join("b"));
    let _held = take(&original, &parents(100)).unwrap();
    fs::create_dir_all(copy.join("1")).unwrap();
    for name in [HOLDER, BEAT] {
        fs::copy(original.join("1").join(name), copy.join("1").join(name)).unwrap();
    }
    assert!(take(&copy, &claim(100)).is_err());
    let took = HeldLease::take(&copy, &claim(100), true, &|| false).unwrap();
    assert!(matches!(took, LeaseAttempt::Won(lease) if lease.term() == Term(2)));
}
