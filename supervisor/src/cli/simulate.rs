//! `supervise simulate`: the recovery of a run played in virtual time.

mod inputs;

use super::target;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::path_access;
use crate::render::simulate::{HalvedTime, HalvesGain, SimulateView, SimulatedOption, sweep};
use camino::{Utf8Path, Utf8PathBuf};
use inputs::{RunTimes, SimulationInputs};
use std::thread;
use std::time::Duration;
use supervise_config::settings::parse_duration;
use supervise_core::id::Ms;
use supervise_simulate::band::SeedSummary;
use supervise_simulate::expected::{GoodputModel, best_interval, gain};
use supervise_simulate::plan::SimulationPlan;
use supervise_simulate::run::{SimulatedRun, SimulationError, simulate};
use supervise_simulate::trace::FailureTrace;

pub(super) const EXAMPLES: &str = "  supervise simulate --gpus 16384 --days 54
  supervise simulate --gpus 512 --save-every 1h --save-stall 45s --launch 6m
  supervise simulate --gpus 3200 --trace failures.csv --trace-nodes 400
  supervise simulate grpo --save-every best     from the run's own steps, saves and failures
";

/// Bytes of a trace, at most.
const TRACE_LIMIT: u64 = 8 << 20;
/// Saves and failures of all seeds together, at most: about a minute.
const MOST_EVENTS: f64 = 2e6;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Take times, failures and remaining steps from this run
    ///
    /// Name, identity, YAML, checkpoint root or run directory. Flags take precedence.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// GPUs of the job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    gpus: Option<u64>,
    /// GPUs per node [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    gpus_per_node: Option<u64>,
    /// Days of training without interruption [default: what the run has left, else 30]
    #[arg(long, value_name = "DAYS", value_parser = days, allow_negative_numbers = true)]
    days: Option<f64>,
    /// Failures per 1,000 node-days [default: those of the run, else 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = rate, conflicts_with_all = ["mtbf", "trace"])]
    rate: Option<f64>,
    /// Mean time between failures of the whole job, instead of --rate
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "trace")]
    mtbf: Option<Duration>,
    /// Recorded failures: CSV with the columns `day,faults` or `seconds`
    #[arg(long, value_name = "FILE")]
    trace: Option<Utf8PathBuf>,
    /// Nodes in the trace, to scale it to the nodes of the job
    #[arg(long, value_name = "N", requires = "trace", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    trace_nodes: Option<u64>,
    /// Duration of a step [default: the run's, else 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    step: Option<Duration>,
    /// Save interval in steps, as a duration, or `best` [default: the run's, else best]
    #[arg(long, value_name = "STEPS|DURATION|best", value_parser = save_every)]
    save_every: Option<SaveEvery>,
    /// How long a save stops the training [default: the run's, else 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    save_stall: Option<Duration>,
    /// Time until a save can be resumed from [default: the run's, else the stall]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    save_time: Option<Duration>,
    /// Time from a launch until training continues [default: the run's, else 3m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    launch: Option<Duration>,
    /// Time until a failure is detected [default: the run's, else 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    detect: Option<Duration>,
    /// How much longer a launch takes if a node must be replaced [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    replace: Option<Duration>,
    /// Share of the failures that need another node
    #[arg(long, value_name = "0..1", default_value = "1", value_parser = share, allow_negative_numbers = true)]
    replaced: f64,
    /// Share of the failures that leave the newest checkpoint damaged
    #[arg(long, value_name = "0..1", default_value = "0", value_parser = share, allow_negative_numbers = true)]
    damaged: f64,
    /// Time until a person restarts a run that gave up
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    person: Duration,
    /// Runs to simulate
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Seed of the first one: the same seed gives the same failures
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How often the run saves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SaveEvery {
    Best,
    Steps(u64),
    Time(Duration),
}

fn save_every(text: &str) -> Result<SaveEvery, String> {
    if text == "best" {
        return Ok(SaveEvery::Best);
    }
    if let Ok(steps) = text.parse() {
        return Ok(SaveEvery::Steps(steps));
    }
    let wrong = |_| format!("'{text}' is not a number of steps, a duration (10m) or `best`");
    parse_duration(text).map(SaveEvery::Time).map_err(wrong)
}

fn number(text: &str, is_right: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| is_right(*value));
    value.ok_or_else(|| format!("'{text}' is not a number {range}"))
}

fn days(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 3650.0, "above 0 and up to 3650")
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 1e6, "above 0 and up to 1000000")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |n| (0.0..=1.0).contains(&n), "from 0 to 1")
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let run = match &args.run {
        None => None,
        Some(name) => {
            let seen = target::one(Some(name))?;
            target::tell_gaps(&seen);
            Some(RunTimes::of(&seen)?)
        }
    };
    let trace = args.trace.as_deref().map(read_trace).transpose()?;
    let inputs = SimulationInputs::of(args, run, trace)?;
    let view = view(args, inputs)?;
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

fn read_trace(path: &Utf8Path) -> Result<FailureTrace, CliError> {
    let (text, is_text) = path_access::read_small(path, TRACE_LIMIT + 1).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => CliError::usage(format!("there is no trace {path}")),
        _ => CliError::environment(format!("the trace {path} cannot be read: {e}")),
    })?;
    if !is_text || text.len() as u64 > TRACE_LIMIT {
        let why = if is_text { "has more than 8 MiB" } else { "is not text" };
        return Err(CliError::usage(format!("the trace {path} {why}")));
    }
    FailureTrace::parse(&text).map_err(|e| CliError::usage(format!("trace {path}: {e}")))
}

fn view(args: &Args, inputs: SimulationInputs) -> Result<SimulateView, CliError> {
    let best = best_interval(&inputs.plan);
    let mut plan = inputs.plan.clone();
    let now = match args.save_every {
        Some(SaveEvery::Best) => None,
        Some(SaveEvery::Steps(steps)) => Some(steps),
        Some(SaveEvery::Time(time)) => Some((time.as_secs_f64() * 1000.0 / plan.step.0.max(1) as f64).round() as u64),
        None => inputs.every,
    };
    let is_given = now.is_some();
    plan.every = now.unwrap_or(best);
    let played = play(args, &plan)?;
    let halved =
        |halve: fn(&mut SimulationPlan)| HalvedTime::of(&plan, played.goodput.mean, gain(&plan, is_given, halve));
    let halves = HalvesGain {
        noticing: halved(|plan| plan.detect.0 /= 2),
        restarting: halved(|plan| {
            plan.launch.0 /= 2;
            plan.replace.0 /= 2;
        }),
        stall: halved(|plan| {
            plan.stall.0 /= 2;
            plan.save.0 = plan.save.0.saturating_sub(plan.stall.0);
        }),
    };
    let option = |plan: &SimulationPlan, played: SeedSummary| {
        let expected = GoodputModel::of(plan).goodput(plan.interval().0 as f64 / 1000.0);
        SimulatedOption::of(plan, &played, expected)
    };
    let now = option(&plan, played);
    let best = match best == plan.every {
        true => now.clone(),
        false => {
            let better = SimulationPlan {
                every: best,
                ..plan.clone()
            };
            option(&better, play(args, &better)?)
        }
    };
    Ok(SimulateView {
        version: 1,
        run: inputs.run.as_ref().map(|run| run.id.clone()),
        name: inputs.run.as_ref().map(|run| run.name.clone()),
        inputs: inputs.view(args),
        measured: inputs.measured,
        assumed: inputs.assumed,
        now,
        best,
        halves,
        sweep: sweep(&plan),
    })
}

/// Plays all seeds, on all cores.
fn play(args: &Args, plan: &SimulationPlan) -> Result<SeedSummary, CliError> {
    plan.check().map_err(|e| CliError::usage(e.to_string()))?;
    let failures = plan.trained().unwrap_or(Ms(u64::MAX)).0 as f64 / plan.failures.mean().0 as f64;
    let events = args.seeds as f64 * (plan.steps as f64 / plan.every as f64 + failures);
    if events > MOST_EVENTS {
        let text = format!("{} runs have about {events:.0} saves and failures", args.seeds);
        return Err(CliError::usage(text).hint("simulate fewer --seeds or --days, or save less often"));
    }
    let threads = thread::available_parallelism()
        .map_or(1, |n| n.get() as u64)
        .min(args.seeds);
    let seeds = |of: u64| (0..args.seeds).filter(move |n| n % threads == of);
    let runs: Result<Vec<SimulatedRun>, SimulationError> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|of| {
                scope.spawn(move || -> Result<Vec<(u64, SimulatedRun)>, SimulationError> {
                    seeds(of)
                        .map(|n| Ok((n, simulate(plan, args.seed.wrapping_add(n))?)))
                        .collect()
                })
            })
            .collect();
        let mut runs = Vec::new();
        for worker in workers {
            runs.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        runs.sort_by_key(|(n, _)| *n);
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    });
    let runs = runs.map_err(|e| CliError::internal(e.to_string()))?;
    Ok(SeedSummary::of(&runs))
}
