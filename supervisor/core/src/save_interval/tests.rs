use super::*;

fn seen() -> SaveMeasurements {
    SaveMeasurements {
        step: 4.0,
        slow_step: 5.0,
        stall: 12.0,
        save: 20.0,
        nodes: 1,
        ..SaveMeasurements::default()
    }
}

fn at_most(max_loss: f64) -> SaveLimits {
    SaveLimits {
        max_loss: Some(max_loss),
        ..SaveLimits::default()
    }
}

fn cluster(stall: f64) -> SaveMeasurements {
    SaveMeasurements {
        step: 10.0,
        slow_step: 11.0,
        stall,
        save: 60.0,
        failures: 419,
        trained: 1296.0 * 3600.0,
        nodes: 2048,
        ..SaveMeasurements::default()
    }
}

fn rl(step: f64, slow_step: f64) -> SaveMeasurements {
    SaveMeasurements {
        step,
        slow_step,
        stall: 40.0,
        save: 60.0,
        ..seen()
    }
}

#[test]
fn known_cases_give_known_intervals() {
    use IntervalReason::{Cost, Disk, MaxLoss, SaveLength, Stall, StepTooLong, Unchanged};
    let room = SaveCapacity {
        saves: 20,
        steps_left: 10_000,
    };
    let long = SaveMeasurements {
        stall: 600.0,
        save: 650.0,
        ..cluster(0.0)
    };
    let alone = |m: SaveMeasurements| SaveMeasurements {
        failures: 0,
        trained: 0.0,
        nodes: 1,
        ..m
    };
    let background = SaveMeasurements {
        step: 2.0,
        slow_step: 2.2,
        stall: 2.0,
        save: 300.0,
        ..seen()
    };
    let unlucky = SaveMeasurements {
        failures: 5,
        trained: 36_000.0,
        ..seen()
    };
    let now = |now| SaveLimits {
        now: Some(now),
        ..at_most(600.0)
    };
    let cases = [
        (seen(), at_most(600.0), 116, MaxLoss, true),
        (seen(), at_most(7200.0), 712, Cost, true),
        (cluster(30.0), at_most(3600.0), 80, Cost, true),
        (cluster(1.0), at_most(3600.0), 15, Cost, true),
        (rl(300.0, 380.0), at_most(600.0), 1, MaxLoss, true),
        (rl(900.0, 1000.0), at_most(600.0), 1, StepTooLong, false),
        (alone(long), at_most(600.0), 180, Stall, false),
        (background, at_most(600.0), 187, SaveLength, false),
        (
            seen(),
            SaveLimits {
                room: Some(room),
                ..at_most(600.0)
            },
            500,
            Disk,
            false,
        ),
        (
            seen(),
            SaveLimits {
                multiple_of: 25,
                ..at_most(600.0)
            },
            100,
            MaxLoss,
            true,
        ),
        (unlucky, at_most(7200.0), 235, Cost, true),
        (seen(), now(110), 110, Unchanged, true),
        (seen(), now(118), 116, MaxLoss, true),
        (seen(), SaveLimits::default(), 712, Cost, true),
    ];
    for (n, (seen, limits, every, reason, kept)) in cases.iter().enumerate() {
        let got = choose(seen, limits);
        assert_eq!((got.every, got.reason, got.kept), (*every, *reason, *kept), "case {n}");
    }
}

/// Expected time per second of training with exponential failures: the exact model.
fn exact(every: f64, seen: &SaveMeasurements) -> f64 {
    let (m, train) = (seen.mean_time_between_failures(), every * seen.step);
    m * (200.0 / m).exp() * ((train + seen.stall) / m).exp_m1() / train
}

#[test]
fn the_chosen_interval_costs_no_more_than_the_exact_best() {
    let mut seed = 7_u64;
    let mut next = |low: f64, high: f64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        low * (high / low).powf((seed >> 11) as f64 / (1_u64 << 53) as f64)
    };
    for _ in 0..300 {
        let seen = SaveMeasurements {
            step: next(0.5, 120.0),
            stall: next(0.5, 120.0),
            nodes: next(1.0, 2000.0) as u32,
            failures: next(1.0, 40.0) as u64,
            trained: next(3.6e4, 3.6e7),
            ..SaveMeasurements::default()
        };
        let got = choose(&seen, &SaveLimits::default());
        if got.reason != IntervalReason::Cost {
            continue;
        }
        let best = (0..4000)
            .map(|n| 1.005_f64.powi(n).floor())
            .map(|n| exact(n, &seen))
            .fold(f64::MAX, f64::min);
        let cost = exact(got.every as f64, &seen);
        assert!(
            cost <= best * 1.003,
            "{seen:?}: {got:?} costs {cost}, and the best {best}"
        );
    }
}

#[test]
fn announced_and_repeating_failures_do_not_count() {
    assert!(is_sudden("kill.unknown") && is_sudden("stalled") && is_sudden("unseen"));
    for class in ["op.signal", "sched.timelimit", "code.shape", crate::ledger::HAND_BACK] {
        assert!(!is_sudden(class), "{class}");
    }
}

#[test]
fn odd_measurements_give_an_interval() {
    let values = [0.0, f64::MIN_POSITIVE, 1e-3, 1e12, f64::MAX];
    for step in values {
        for stall in values {
            for max_loss in values {
                let odd = SaveMeasurements {
                    step,
                    stall,
                    ..SaveMeasurements::default()
                };
                assert!(choose(&odd, &at_most(max_loss)).every >= 1);
            }
        }
    }
}
