//! Windows of healthy ranks, and of ranks that hang.

use super::*;

const HEALTHY: RankSample = RankSample {
    worker: WorkerId(0),
    pid: 100,
    state: b'R',
    cpu_ms: 9000,
    wait_ms: 0,
    switches: 900,
    faults: 5000,
    bytes: 400_000,
};

fn window(pulses: &[RankSample], network: u64) -> ActivityWindow {
    let pulses = pulses.iter().zip(0..).map(|(p, n)| RankSample {
        worker: WorkerId(n),
        pid: 100 + n as i32,
        ..*p
    });
    ActivityWindow {
        over_ms: 10_000,
        network: Some(network),
        output: 0,
        pulses: pulses.collect(),
        devices: Vec::new(),
    }
}

/// Simulates a minute of two healthy ranks, then `windows` windows of others.
fn after(pulses: &[RankSample], network: u64, windows: u32) -> ActivitySample {
    let mut w = Watcher::default();
    for _ in 0..6 {
        w.window(window(&[HEALTHY, HEALTHY], 8_000_000), DurationKind::Step);
        w.progress();
    }
    let mut look = ActivitySample::default();
    for _ in 0..windows {
        look = w.window(window(pulses, network), DurationKind::Step);
    }
    look
}

const SPINS: RankSample = RankSample {
    cpu_ms: 10_000,
    switches: 2,
    faults: 0,
    bytes: 0,
    ..HEALTHY
};
const WAITS: RankSample = RankSample {
    state: b'S',
    cpu_ms: 40,
    switches: 20,
    faults: 1,
    bytes: 100,
    ..HEALTHY
};

#[test]
fn a_rank_that_spins_while_the_other_waits_is_stuck_after_half_a_minute() {
    for spin in [
        SPINS,
        RankSample {
            cpu_ms: 500,
            switches: 100,
            ..SPINS
        },
    ] {
        assert!(!after(&[spin, WAITS], 3000, 2).is_stuck());
        let look = after(&[spin, WAITS], 3000, 3);
        assert!(look.is_stuck(), "{look:?}");
        assert!(
            look.words().starts_with("worker 0 (pid 100) spins: "),
            "{}",
            look.words()
        );
        assert!(look.words().ends_with("worker 1 (pid 101) waits"), "{}", look.words());
    }
    assert!(after(&[SPINS, SPINS], 3000, 3).is_stuck());
}

#[test]
fn one_rank_that_works_is_enough_to_be_left_alone() {
    assert!(!after(&[HEALTHY, WAITS], 3000, 9).is_stuck());
    assert!(!after(&[HEALTHY, SPINS], 3000, 9).is_stuck());
    // It is as busy as ever but sends nothing: it computes on its own.
    assert!(!after(&[HEALTHY, HEALTHY], 0, 9).is_stuck());
    // It spins while the network is as before: some rank communicates.
    assert!(
        !after(
            &[
                RankSample {
                    bytes: 400_000,
                    ..SPINS
                },
                WAITS
            ],
            8_000_000,
            9
        )
        .is_stuck()
    );
}

#[test]
fn a_stopped_rank_is_stuck_whatever_the_others_do_and_one_that_waits_for_a_disk_is_not() {
    let stopped = RankSample { state: b'T', ..WAITS };
    let look = after(&[HEALTHY, stopped], 8_000_000, 3);
    assert!(look.is_stuck());
    assert_eq!(
        look.words(),
        "worker 1 (pid 101) is stopped (T); worker 0 (pid 100) works"
    );
    let disk = RankSample {
        state: b'D',
        cpu_ms: 0,
        ..WAITS
    };
    assert!(!after(&[disk, disk], 0, 9).is_stuck());
}

/// A rollout that takes longer than any before, after a training that was longer than the profile remembers.
#[test]
fn a_rank_that_works_now_is_enough_though_it_had_nothing_to_do_while_the_run_got_on() {
    let mut w = Watcher::default();
    for _ in 0..KEPT {
        w.window(window(&[HEALTHY, WAITS], 8_000_000), DurationKind::Step);
        w.progress();
    }
    let mut looks = |second| {
        (0..9)
            .map(|_| w.window(window(&[WAITS, second], 0), DurationKind::Step))
            .last()
    };
    assert!(!looks(HEALTHY).unwrap().is_stuck());
    assert!(looks(WAITS).unwrap().is_stuck());
}

#[test]
fn a_rank_that_had_nothing_to_do_and_spins_is_named_and_decides_nothing() {
    let idles = RankSample { switches: 300, ..WAITS };
    let look = |first| {
        let mut w = Watcher::default();
        for _ in 0..6 {
            w.window(window(&[HEALTHY, idles], 8_000_000), DurationKind::Step);
            w.progress();
        }
        (0..3)
            .map(|_| w.window(window(&[first, SPINS], 3000), DurationKind::Step))
            .last()
            .unwrap()
    };
    let stuck = look(WAITS);
    assert!(
        stuck.is_stuck() && stuck.words().starts_with("worker 1 (pid 101) spins: 100 %"),
        "{stuck:?}"
    );
    assert!(!look(HEALTHY).is_stuck());
}

#[test]
fn a_machine_that_is_too_busy_is_no_stall() {
    let starving = RankSample {
        cpu_ms: 900,
        wait_ms: 8100,
        switches: 90,
        faults: 500,
        bytes: 40_000,
        ..HEALTHY
    };
    assert!(!after(&[starving, starving], 800_000, 9).is_stuck());
    assert!(after(&[RankSample { wait_ms: 8000, ..SPINS }, WAITS], 3000, 3).is_stuck());
}

/// If ten others want the cores, a healthy rank may go through a window with hardly a fault or a switch, and each
/// thread that the spinning one lets in for a moment counts five times.
#[test]
fn a_rank_that_spins_is_found_where_healthy_windows_hold_few_faults_and_switches() {
    let starving = RankSample {
        cpu_ms: 1500,
        wait_ms: 8000,
        switches: 12,
        faults: 2,
        ..HEALTHY
    };
    let spins = RankSample {
        cpu_ms: 2000,
        wait_ms: 8000,
        switches: 4,
        ..SPINS
    };
    let look = |spins: RankSample, network| {
        let mut w = Watcher::default();
        for _ in 0..6 {
            w.window(window(&[starving, starving], 8_000_000), DurationKind::Step);
            w.progress();
        }
        (0..3)
            .map(|_| w.window(window(&[spins, WAITS], network), DurationKind::Step))
            .last()
            .unwrap()
    };
    let found = look(spins, 3000);
    assert!(
        found.is_stuck() && found.words().starts_with("worker 0 (pid 100) spins: 20 %"),
        "{found:?}"
    );
    // There are still signs of work: memory is touched, a file is read, a rank communicates.
    for (alive, network) in [
        (RankSample { faults: 5, ..spins }, 3000),
        (RankSample { bytes: 50_000, ..spins }, 3000),
        (spins, 1_000_000),
    ] {
        assert!(!look(alive, network).is_stuck(), "{alive:?}, {network}");
    }
}

#[test]
fn processes_that_come_and_go_leave_room_for_those_that_stay() {
    let mut w = Watcher::default();
    let mut at = 200;
    let mut healthy = |w: &mut Watcher, clock| {
        let mut seen = window(&[HEALTHY; RANKS_LIMIT], 8_000_000);
        for pulse in seen.pulses.iter_mut().skip(2) {
            pulse.pid += at;
        }
        at += 1000;
        w.window(seen, clock);
        w.progress();
    };
    (0..40).for_each(|_| healthy(&mut w, DurationKind::Step));
    (0..4).for_each(|_| healthy(&mut w, DurationKind::Validate));
    assert!(w.profiles.len() <= PROFILES);
    let hang = window(&[SPINS, WAITS], 3000);
    let look = (0..3)
        .map(|_| w.window(hang.clone(), DurationKind::Validate))
        .last()
        .unwrap();
    assert!(look.is_stuck(), "{look:?}");
}

/// A sample is limited to some number of ranks: what it omits must not change the verdict.
#[test]
fn one_that_works_among_many_that_wait_is_told() {
    let ranks = |last| {
        let mut ranks = vec![WAITS; RANKS_LIMIT + 10];
        ranks.push(last);
        ranks
    };
    let mut w = Watcher::default();
    for _ in 0..4 {
        w.window(window(&[HEALTHY; RANKS_LIMIT + 11], 8_000_000), DurationKind::Step);
        w.progress();
    }
    let mut look = |last, network| {
        (0..3)
            .map(|_| w.window(window(&ranks(last), network), DurationKind::Step))
            .last()
            .unwrap()
    };
    assert!(!look(HEALTHY, 3000).is_stuck());
    let stuck = look(WAITS, 3000);
    assert!(stuck.is_stuck() && stuck.ranks.len() == RANKS_LIMIT);
}

/// If network cards do not answer, the rest decides; if nothing is left, nothing is decided.
#[test]
fn a_network_that_could_not_be_counted_is_no_sign() {
    let stuck = |healthy: RankSample, counted: bool, hung: Option<u64>| {
        let mut w = Watcher::default();
        let healthy = [healthy, healthy];
        for told in [Some(8_000_000), None, Some(9_000_000)].repeat(2) {
            let network = counted.then_some(told).flatten();
            let window = ActivityWindow {
                network,
                ..window(&healthy, 0)
            };
            w.window(window, DurationKind::Step);
            w.progress();
        }
        let hung = ActivityWindow {
            network: hung,
            ..window(&[SPINS, WAITS], 0)
        };
        let looks: Vec<ActivitySample> = (0..3).map(|_| w.window(hung.clone(), DurationKind::Step)).collect();
        looks[2].is_stuck()
    };
    let silent = RankSample { bytes: 0, ..HEALTHY };
    assert!(stuck(HEALTHY, true, None), "the bytes of files and pipes tell it");
    assert!(!stuck(silent, true, None), "there are none");
    assert!(stuck(silent, true, Some(3000)));
    assert!(!stuck(silent, true, Some(8_000_000)));
    assert!(!stuck(silent, false, Some(0)), "it was never counted");
}

#[test]
fn without_a_profile_only_stillness_is_told() {
    let mut w = Watcher::default();
    let look = |w: &mut Watcher, p| {
        (0..3)
            .map(|_| w.window(window(&[p, p], 0), DurationKind::Startup))
            .last()
    };
    assert!(look(&mut w, RankSample { cpu_ms: 50, ..WAITS }).unwrap().is_stuck());
    assert!(!look(&mut w, SPINS).unwrap().is_stuck());
    assert!(!ActivitySample::default().is_stuck());
}

/// Another job sends as much on an otherwise quiet machine: the CPU shows nothing, and the network traffic continues.
#[test]
fn a_spin_beside_the_traffic_of_others_is_told_by_its_gpu_and_what_it_moves_itself() {
    let gpu = |busy, memory, milliwatts| DevicePulse {
        index: 0,
        milliwatts,
        busy,
        memory,
        own: true,
    };
    let with = |pulse: RankSample, devices: Option<DevicePulse>| ActivityWindow {
        devices: devices.into_iter().collect(),
        ..window(&[pulse, pulse], 8_000_000)
    };
    let (works, spins) = (gpu(600, 400, 390_000), gpu(1000, 0, 125_000));
    let quiet = RankSample {
        switches: 2,
        faults: 2,
        ..HEALTHY
    };
    let silent = RankSample { bytes: 0, ..quiet };
    let cases = [
        (Some(works), Some(spins), silent, true),
        // It keeps writing, its device works, or devices are not reported.
        (Some(works), Some(spins), quiet, false),
        (Some(works), Some(works), silent, false),
        (None, None, silent, false),
    ];
    for (before, now, pulse, stuck) in cases {
        let mut w = Watcher::default();
        for _ in 0..6 {
            w.window(with(quiet, before), DurationKind::Step);
            w.progress();
        }
        let looks = (0..IN_A_ROW).map(|_| w.window(with(pulse, now), DurationKind::Step));
        let look = looks.last().unwrap_or_default();
        assert_eq!(look.is_stuck(), stuck, "{look:?}");
    }
}
