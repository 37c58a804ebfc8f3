//! `supervise advise`: how often the run should save, from what it has shown.

use super::target::RunInfo;
use super::{records, target};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::path_access;
use crate::render::name::run_name;
use crate::render::save_advice::{SaveAdvice, SaveSettings};
use std::time::Duration;
use supervise_core::ledger::{TimeLedger, devices};
use supervise_core::resume::{last_step, save_interval};
use supervise_core::save_interval::{SaveCapacity, SaveLimits, SaveTimes};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::io_worker::JournalPlace;
use supervise_trainers::registry::adapter;

pub(super) const EXAMPLES: &str = "  supervise advise grpo
  supervise advise grpo --max-loss 10m      lose at most ten minutes of training
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Training that you accept to lose by a failure
    ///
    /// Without it, the run's own `max_loss`.
    #[arg(long, value_name = "DURATION", value_parser = supervise_config::settings::parse_max_loss)]
    max_loss: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    target::tell_gaps(&seen);
    let (mut state, mut ledger, mut times) = (RunState::default(), TimeLedger::default(), SaveTimes::default());
    records::each(seen.run_dir()?, JournalPlace::default(), &mut |_, record| {
        state.apply(record);
        ledger.note(&state, record);
        times.note(&state, record);
    })?;
    let view = advice(&seen, &state, &ledger, &times, args.max_loss)
        .ok_or_else(|| CliError::environment(format!("run {}: its specification cannot be read", seen.run)))?;
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The advice for a run whose records were read; `None` if its specification cannot be read.
pub(super) fn advice(
    seen: &RunInfo,
    state: &RunState,
    ledger: &TimeLedger,
    times: &SaveTimes,
    max_loss: Option<Duration>,
) -> Option<SaveAdvice> {
    let spec = seen.spec_as_seen()?;
    let words = adapter(spec.trainer).words();
    let settings = SaveSettings {
        name: words.every,
        trainer: words.name,
        kept_at_resume: words.keeps_every,
        devices: devices(&spec),
    };
    let own = spec.policy.max_loss.map(|ms| Duration::from_millis(ms.0));
    let limits = SaveLimits {
        max_loss: max_loss.or(own).map(|d| d.as_secs_f64()),
        room: room(state, &spec),
        multiple_of: 1,
        last: last_step(state, &spec).map(|step| step.0),
        now: save_interval(state, &spec),
    };
    let name = run_name(spec.name.as_deref(), spec.root.as_deref(), &spec.command);
    let measured = times.measured(ledger, spec.gang.nodes);
    Some(SaveAdvice::of(&seen.run.0, &name, measured, &limits, &settings, ledger))
}

/// Disk space, if nothing deletes older steps.
fn room(state: &RunState, spec: &RunSpec) -> Option<SaveCapacity> {
    if spec.keep.is_some() || !spec.saves.is_steps() {
        return None;
    }
    let steps_left = last_step(state, spec)?
        .0
        .saturating_sub(state.progress.mark.unwrap_or_default().0);
    let room = path_access::room(spec.root.as_deref()?, adapter(spec.trainer).step_prefix())?;
    let saves = room.free.checked_div(room.step)?;
    Some(SaveCapacity { saves, steps_left })
}
