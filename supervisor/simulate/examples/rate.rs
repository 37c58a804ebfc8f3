//! How fast a run is simulated, and how far the mean of several seeds is from the closed form.
//!
//! `cargo run --release -p supervise-simulate --example rate [SEEDS [DAYS]]`

#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "it takes the time")]

use std::error::Error;
use std::time::Instant;
use supervise_core::id::Ms;
use supervise_core::spec::policy::{BackoffPolicy, FailurePolicy};
use supervise_simulate::band::SeedSummary;
use supervise_simulate::expected::{GoodputModel, best_interval};
use supervise_simulate::plan::{FailureSource, SimulationPlan};
use supervise_simulate::run::simulate;

const DAY: u64 = 86_400;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let seeds = args.next().transpose()?.unwrap_or(1);
    let days = args.next().transpose()?.unwrap_or(54);
    for (gpus, rate, every, stall, back) in [
        (16_384, 3.79, Some(180), 30, 200),
        (16_384, 3.79, None, 30, 200),
        (16_384, 6.5, None, 60, 600),
        (512, 6.5, Some(360), 30, 180),
        (64, 6.5, None, 30, 180),
    ] {
        let mut plan = SimulationPlan {
            steps: days * DAY / 5,
            step: Ms::secs(10),
            every: 1,
            stall: Ms::secs(stall),
            save: Ms::secs(stall),
            launch: Ms::secs(back),
            first_launch: Ms(0),
            detect: Ms(0),
            replace: Ms(0),
            replaced: 0.0,
            damaged: 0.0,
            person: Ms::secs(3600),
            failures: FailureSource::Poisson {
                mean: Ms((DAY as f64 * 1e6 / (f64::from(gpus) / 8.0 * rate)) as u64),
            },
            backoff: BackoffPolicy::default(),
            policy: FailurePolicy::default(),
            limit: Ms::secs(days * DAY),
        };
        plan.every = every.unwrap_or(best_interval(&plan));
        plan.check()?;
        let began = Instant::now();
        let runs: Vec<_> = (0..seeds).map(|seed| simulate(&plan, seed)).collect::<Result<_, _>>()?;
        let took = began.elapsed().as_secs_f64();
        let events: u64 = runs.iter().map(|run| run.events).sum();
        let expected = GoodputModel::of(&plan).goodput(plan.interval().0 as f64 / 1000.0);
        let mean = SeedSummary::of(&runs).goodput.mean;
        println!(
            "{gpus} GPUs, save each {} s: {:.0} ms a run, {:.1} us an event ({} a run); goodput {mean:.4}, expected {expected:.4}",
            plan.interval().0 / 1000,
            took * 1000.0 / seeds as f64,
            took * 1e6 / events as f64,
            events / seeds,
        );
    }
    Ok(())
}
