//! What is simulated: from flags, from a run, or assumed.

use super::Args;
use crate::cli::records;
use crate::cli::target::RunInfo;
use crate::error::CliError;
use crate::render::name::run_name;
use crate::render::simulate::{SimulatedInputs, TraceInput};
use std::time::Duration;
use supervise_core::id::Ms;
use supervise_core::ledger::{RecoveryTime, TimeLedger, devices};
use supervise_core::resume::{last_step, save_interval};
use supervise_core::save_interval::{SaveMeasurements, SaveTimes};
use supervise_core::spec::policy::{BackoffPolicy, FailurePolicy};
use supervise_core::state::RunState;
use supervise_host::io_worker::JournalPlace;
use supervise_simulate::plan::{FailureSource, SimulationPlan};
use supervise_simulate::trace::FailureTrace;

const GPUS_PER_NODE: u64 = 8;
const DAYS: f64 = 30.0;
/// Failures per 1,000 node-days. Published clusters report 2.3 to 6.5.
const RATE: f64 = 4.0;
const STEP: Ms = Ms::secs(10);
const STALL: Ms = Ms::secs(30);
const LAUNCH: Ms = Ms::secs(180);
const DETECT: Ms = Ms::secs(30);

const DAY: f64 = 86_400_000.0;

/// What the journal of a run has shown.
pub(super) struct RunTimes {
    pub(super) id: String,
    pub(super) name: String,
    devices: u64,
    nodes: u64,
    measured: Option<SaveMeasurements>,
    launch: Option<Ms>,
    detect: Option<Ms>,
    every: Option<u64>,
    steps_left: Option<u64>,
    backoff: BackoffPolicy,
    failure: FailurePolicy,
}

impl RunTimes {
    pub(super) fn of(seen: &RunInfo) -> Result<Self, CliError> {
        let (mut state, mut ledger, mut times) = (RunState::default(), TimeLedger::default(), SaveTimes::default());
        records::each(seen.run_dir()?, JournalPlace::default(), &mut |_, record| {
            state.apply(record);
            ledger.note(&state, record);
            times.note(&state, record);
        })?;
        let unread = || CliError::environment(format!("run {}: its specification cannot be read", seen.run));
        let spec = seen.spec_as_seen().ok_or_else(unread)?;
        let measured = times.measured(&ledger, spec.gang.nodes);
        let step = measured.map_or(0.0, |m| m.step * 1000.0) as u64;
        let comebacks = || ledger.comebacks().filter(|c| c.complete);
        let launch = |c: &RecoveryTime| {
            let first = c.first_step.0.saturating_sub(step);
            Ms(c.end.0 + c.prove.0 + c.launch.0 + first)
        };
        let mark = state.progress.mark.unwrap_or_default();
        let left = |last: u64| Some(last.saturating_sub(mark.0)).filter(|left| *left > 0);
        Ok(Self {
            id: seen.run.0.clone(),
            name: run_name(spec.name.as_deref(), spec.root.as_deref(), &spec.command),
            devices: devices(&spec).into(),
            nodes: spec.gang.nodes.max(1).into(),
            measured,
            launch: median(comebacks().map(launch)),
            detect: median(comebacks().filter(|c| c.after.is_some()).map(|c| c.notice)),
            every: save_interval(&state, &spec),
            steps_left: last_step(&state, &spec).and_then(|last| left(last.0)),
            backoff: spec.policy.backoff.clone(),
            failure: spec.policy.failure,
        })
    }
}

fn median(values: impl Iterator<Item = Ms>) -> Option<Ms> {
    let mut values: Vec<Ms> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The plan, except for its save interval, and where its numbers come from.
pub(super) struct SimulationInputs {
    pub(super) plan: SimulationPlan,
    /// The interval of the run.
    pub(super) every: Option<u64>,
    pub(super) run: Option<RunTimes>,
    gpus: Option<u64>,
    nodes: Option<u64>,
    pub(super) measured: Vec<&'static str>,
    pub(super) assumed: Vec<&'static str>,
}

/// Notes for each value whether it was measured or assumed.
#[derive(Default)]
struct Origins {
    measured: Vec<&'static str>,
    assumed: Vec<&'static str>,
}

impl Origins {
    fn pick<T>(&mut self, flag: &'static str, given: Option<T>, measured: Option<T>, assumed: T) -> T {
        match (given, measured) {
            (Some(given), _) => given,
            (None, Some(measured)) => {
                self.measured.push(flag);
                measured
            }
            (None, None) => {
                self.assumed.push(flag);
                assumed
            }
        }
    }
}

fn ms(duration: Duration) -> Ms {
    Ms(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn seconds(value: f64) -> Ms {
    Ms((value * 1000.0).round() as u64)
}

impl SimulationInputs {
    pub(super) fn of(args: &Args, run: Option<RunTimes>, trace: Option<FailureTrace>) -> Result<Self, CliError> {
        let mut from = Origins::default();
        let seen = run.as_ref().and_then(|run| run.measured);
        let gpus = args.gpus.or(run.as_ref().map(|run| run.devices).filter(|n| *n > 0));
        let nodes = match (args.gpus, &run) {
            (None, Some(run)) => Some(run.nodes),
            _ => gpus.map(|gpus| gpus.div_ceil(args.gpus_per_node.unwrap_or(GPUS_PER_NODE))),
        };
        let failures = failures(args, run.as_ref(), nodes, trace, &mut from)?;
        // A part of a millisecond is none.
        let whole_step = seen.map(|m| seconds(m.step + m.between).max(Ms(1)));
        let step = from.pick("--step", args.step.map(ms), whole_step, STEP);
        let stall = from.pick(
            "--save-stall",
            args.save_stall.map(ms),
            seen.map(|m| seconds(m.stall)),
            STALL,
        );
        let measured = seen.map(|m| seconds(m.save)).filter(|_| args.save_stall.is_none());
        let save = args.save_time.map(ms).or(measured);
        if let Some(save) = args.save_time.map(ms).filter(|save| *save < stall) {
            let text = format!(
                "--save-time ({} s) is shorter than the time for which the save stops the training ({} s)",
                save.0 as f64 / 1000.0,
                stall.0 as f64 / 1000.0
            );
            return Err(CliError::usage(text).hint("leave --save-time out, or give a shorter --save-stall"));
        }
        let steps_of = |days: f64| ((days * DAY / step.0.max(1) as f64).round() as u64).max(1);
        let left = run.as_ref().and_then(|run| run.steps_left);
        let steps = from.pick("--days", args.days.map(steps_of), left, steps_of(DAYS));
        let shown = |of: fn(&RunTimes) -> Option<Ms>| run.as_ref().and_then(of);
        let launch = from.pick("--launch", args.launch.map(ms), shown(|run| run.launch), LAUNCH);
        let detect = from.pick("--detect", args.detect.map(ms), shown(|run| run.detect), DETECT);
        let person = ms(args.person);
        let plan = SimulationPlan {
            steps,
            step,
            every: 1,
            stall,
            save: save.unwrap_or(stall).max(stall),
            launch,
            first_launch: launch,
            detect,
            replace: args.replace.map(ms).unwrap_or_default(),
            replaced: args.replaced,
            damaged: args.damaged,
            person,
            failures,
            backoff: run.as_ref().map(|run| run.backoff.clone()).unwrap_or_default(),
            policy: run.as_ref().map(|run| run.failure.clone()).unwrap_or_default(),
            limit: SimulationPlan::patience(steps, step, person),
        };
        Ok(Self {
            plan,
            every: run.as_ref().and_then(|run| run.every),
            run,
            gpus,
            nodes,
            measured: from.measured,
            assumed: from.assumed,
        })
    }

    pub(super) fn view(&self, args: &Args) -> SimulatedInputs {
        let plan = &self.plan;
        SimulatedInputs {
            gpus: self.gpus,
            nodes: self.nodes,
            steps: plan.steps,
            step_ms: plan.step,
            stall_ms: plan.stall,
            save_ms: plan.save,
            launch_ms: plan.launch,
            detect_ms: plan.detect,
            replace_ms: plan.replace,
            replaced: plan.replaced,
            damaged: plan.damaged,
            person_ms: plan.person,
            mean_time_between_failures_ms: plan.failures.mean(),
            trace: match &plan.failures {
                FailureSource::Trace { trace, scale } => Some(TraceInput {
                    failures: trace.failures(),
                    days: trace.span_ms() / DAY,
                    scale: *scale,
                }),
                FailureSource::Poisson { .. } | FailureSource::Given(_) => None,
            },
            seeds: args.seeds,
            first_seed: args.seed,
        }
    }
}

fn failures(
    args: &Args,
    run: Option<&RunTimes>,
    nodes: Option<u64>,
    trace: Option<FailureTrace>,
    from: &mut Origins,
) -> Result<FailureSource, CliError> {
    if let Some(trace) = trace {
        let scale = match (args.trace_nodes, nodes) {
            (None, _) => 1.0,
            (Some(of), Some(nodes)) => nodes as f64 / of as f64,
            (Some(_), None) => {
                return Err(CliError::usage("--trace-nodes needs the size of the job").hint("give --gpus"));
            }
        };
        return Ok(FailureSource::Trace { trace, scale });
    }
    if let Some(mean) = args.mtbf.map(ms) {
        return Ok(FailureSource::Poisson { mean });
    }
    let Some(nodes) = nodes else {
        return Err(CliError::usage("nothing says how often the job fails")
            .hint("give --gpus, --mtbf or --trace, or name a run"));
    };
    // On more nodes than the run has, it fails more often.
    let of_run = run.and_then(|run| {
        let mean = run.measured?.mean_time_between_failures() * run.nodes as f64;
        Some(1000.0 * 86_400.0 / mean)
    });
    let rate = from.pick("--rate", args.rate, of_run, RATE);
    let mean = Ms((1000.0 * DAY / (nodes as f64 * rate)).max(1.0) as u64);
    Ok(FailureSource::Poisson { mean })
}
