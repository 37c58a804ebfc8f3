//! What the simulated world does to a run, and which plans it refuses.

mod plans;

use plans::plan;
use supervise_core::id::Ms;
use supervise_core::ledger::{TimeCategory, WaitFor};
use supervise_core::spec::policy::BackoffPolicy;
use supervise_simulate::band::SeedSummary;
use supervise_simulate::expected::{best_interval, least_interval};
use supervise_simulate::failures::failure_times;
use supervise_simulate::plan::{FailureSource, PlanError, SimulationPlan};
use supervise_simulate::run::{SimulatedRun, simulate};
use supervise_simulate::trace::FailureTrace;

fn seconds(run: &SimulatedRun, part: TimeCategory) -> u64 {
    run.parts.of(part).0 / 1000
}

#[test]
fn a_run_without_failures_trains_and_saves() {
    let run = simulate(&plan(&[]), 1).unwrap();
    assert!(run.finished && run.calls == 0 && run.failures == 0);
    assert_eq!(seconds(&run, TimeCategory::Productive), 10_000);
    // 16 saves at the interval, and one at the end.
    assert_eq!(seconds(&run, TimeCategory::Saving), 17 * 30);
    assert_eq!(run.parts.whole(), Ms::secs(10_510));
    assert_eq!((run.trained.new, run.trained.again), (1000, 0));
}

#[test]
fn a_damaged_newest_checkpoint_costs_one_more_interval() {
    let whole = simulate(&plan(&[2000]), 1).unwrap();
    let damaged = SimulationPlan {
        damaged: 1.0,
        ..plan(&[2000])
    };
    let damaged = simulate(&damaged, 1).unwrap();
    // The third save ended at 1,890.
    assert_eq!(seconds(&whole, TimeCategory::Repeated), 110);
    assert_eq!(seconds(&damaged, TimeCategory::Repeated), 110 + 600);
    assert_eq!(seconds(&damaged, TimeCategory::Saving), 18 * 30);
    assert!(damaged.finished);
}

#[test]
fn detection_and_a_new_node_take_their_time() {
    let slow = SimulationPlan {
        detect: Ms::secs(60),
        replace: Ms::secs(300),
        replaced: 1.0,
        ..plan(&[2000])
    };
    let run = simulate(&slow, 1).unwrap();
    assert_eq!(seconds(&run, TimeCategory::Noticing), 60);
    assert_eq!(seconds(&run, TimeCategory::Launching), 200 + 300);
    assert_eq!(seconds(&run, TimeCategory::Repeated), 110);
}

#[test]
fn a_save_that_is_not_proven_yet_is_lost() {
    let background = |failure| {
        let plan = SimulationPlan {
            save: Ms::secs(120),
            ..plan(&[failure])
        };
        seconds(&simulate(&plan, 1).unwrap(), TimeCategory::Repeated)
    };
    // The first save begins at 600 and can be resumed from at 720.
    assert_eq!(background(700), 670);
    assert_eq!(background(720), 90);
}

#[test]
fn a_person_restarts_a_run_that_gave_up() {
    let failures: Vec<u64> = (1..40).map(|n| n * 300).collect();
    let run = simulate(&plan(&failures), 1).unwrap();
    assert!(run.finished && run.calls > 0, "{run:?}");
    let waited = seconds(&run, TimeCategory::Waiting(WaitFor::Person));
    assert_eq!(waited, run.calls * 3600);
}

#[test]
fn a_run_that_never_gets_on_stops_at_its_limit() {
    let hopeless = SimulationPlan {
        failures: FailureSource::Poisson { mean: Ms::secs(60) },
        limit: Ms::secs(100_000),
        ..plan(&[])
    };
    let run = simulate(&hopeless, 1).unwrap();
    assert!(!run.finished);
    assert_eq!(run.parts.whole(), Ms::secs(100_000));
}

#[test]
fn a_seed_decides_everything() {
    let random = SimulationPlan {
        failures: FailureSource::Poisson { mean: Ms::secs(2000) },
        damaged: 0.3,
        replaced: 0.5,
        replace: Ms::secs(60),
        backoff: BackoffPolicy::default(),
        ..plan(&[])
    };
    let runs: Vec<SimulatedRun> = (0..4).map(|seed| simulate(&random, seed).unwrap()).collect();
    assert_eq!(simulate(&random, 2).unwrap(), runs[2]);
    assert!(runs[0] != runs[1] && runs[1] != runs[2]);
    let all = SeedSummary::of(&runs);
    assert!(all.goodput.low < all.goodput.mean && all.goodput.mean < all.goodput.high);
    assert!((all.parts.values().sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!((all.seeds, all.finished), (4, 4));
}

#[test]
fn a_trace_keeps_its_rate_at_any_size() {
    let trace = FailureTrace::parse("day,faults\n0,3\n1,0\n2,5\n9,2\n").unwrap();
    for (scale, per_day) in [(1.0, 1.0), (2.5, 2.5), (0.1, 0.1)] {
        let source = FailureSource::Trace {
            trace: trace.clone(),
            scale,
        };
        let times = failure_times(&source, 7, Ms::secs(1000 * 86_400));
        let seen = times.len() as f64 / 1000.0;
        assert!((seen - per_day).abs() < 0.2 * per_day, "{scale}: {seen}");
        assert!(times.is_sorted());
    }
}

#[test]
fn the_best_interval_leaves_a_save_its_time() {
    let slow = SimulationPlan {
        save: Ms::secs(4000),
        failures: FailureSource::Poisson { mean: Ms::secs(2000) },
        ..plan(&[])
    };
    assert_eq!(least_interval(&slow), 397);
    assert_eq!(best_interval(&slow), 397);
}

#[test]
fn senseless_plans_are_refused() {
    let wrong = |change: &dyn Fn(&mut SimulationPlan)| {
        let mut plan = plan(&[]);
        plan.failures = FailureSource::Poisson { mean: Ms::secs(2000) };
        plan.check().unwrap();
        change(&mut plan);
        plan.check().unwrap_err().to_string()
    };
    for (said, wanted) in [
        (wrong(&|p| p.steps = 0), "the training must be more than 0"),
        (wrong(&|p| p.step = Ms(0)), "the step time must be more than 0"),
        (wrong(&|p| p.every = 0), "the save interval must be more than 0"),
        (
            wrong(&|p| p.failures = FailureSource::Poisson { mean: Ms(0) }),
            "the mean time between failures must be more than 0",
        ),
        (
            wrong(&|p| p.detect = Ms(u64::MAX)),
            "the detection time must be at most a year",
        ),
        (wrong(&|p| p.steps = u64::MAX), "the training must be at most ten years"),
        (
            wrong(&|p| p.damaged = f64::NAN),
            "the share of damaged checkpoints must be between 0 and 1",
        ),
        (
            wrong(&|p| p.replaced = -0.1),
            "the share of replaced nodes must be between 0 and 1",
        ),
        (
            wrong(&|p| p.every = 1001),
            "the save interval of 1001 steps is longer than the training of 1000 steps",
        ),
        (
            wrong(&|p| p.save = Ms::secs(700)),
            "a save takes 700 s, but the next one begins 630 s after it: save less often",
        ),
    ] {
        assert_eq!(said, wanted);
    }
    let mut long = plan(&[]);
    (long.steps, long.every) = (3_000_000, 1);
    assert!(matches!(long.check(), Err(PlanError::TooMany { .. })));
}
