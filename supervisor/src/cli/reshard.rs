//! `supervise reshard`: rewrites a step of W ranks for N ranks.

use super::{model, new_dir};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer::{self, ByteMeter};
use crate::render::reshard::ReshardView;
use camino::{Utf8Path, Utf8PathBuf};
use std::ops::ControlFlow;
use supervise_core::id::Step;
use supervise_host::io_worker::reshard::{self, NotCut, ReshardStats};

pub(super) const EXAMPLES: &str =
    "  supervise reshard /ckpt/my-run/global_step_120 --world-size 4 --target /ckpt/smaller/global_step_120
  supervise reshard ppo.yaml --world-size 16 --target /ckpt/larger/global_step_120
";

pub(super) const EXITS: [SuperviseExitCode; 11] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::Incomplete,
    SuperviseExitCode::Damaged,
    SuperviseExitCode::Unsafe,
    SuperviseExitCode::Unknown,
    SuperviseExitCode::Unreadable,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
    SuperviseExitCode::Config,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A step, or a run or checkpoint root
    #[arg(value_name = "RUN|DIR")]
    source: String,
    /// Number of ranks that will read it
    ///
    /// For verl: trainer.nnodes times trainer.n_gpus_per_node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    world_size: u64,
    /// Directory to create; a resume finds only global_step_N
    #[arg(long, value_name = "DIR")]
    target: Utf8PathBuf,
    /// Step of the run or root [default: the newest proven]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    supervise_host::system::raise_open_files();
    new_dir::may_be_made(&args.target)?;
    let mut meter = ByteMeter::new();
    let (dir, step) = model::step_dir(&args.source, args.step, &mut meter)?;
    meter.end();
    new_dir::is_outside(&args.target, &dir)?;
    is_named_as(&args.target, step)?;
    let content = reshard::content(&dir).map_err(|e| refused(e, &args.target))?;
    let mut notes = content.notes(args.world_size);
    if args.target.file_name() != Some(format!("global_step_{}", step.0).as_str()) {
        notes.push(format!(
            "a resume finds it under the name global_step_{} only: rename it before",
            step.0
        ));
    }
    let written = write(&dir, &args.target, &content, args.world_size)?;
    for note in &notes {
        printer::last_note(note);
    }
    let view = ReshardView {
        source: dir,
        step: step.0,
        target: args.target.clone(),
        world_size_before: content.world,
        world_size: args.world_size,
        files: written.files,
        bytes_written: written.bytes,
        bytes_checked: written.checked,
        milliseconds: written.took.as_millis() as u64,
        notes,
    };
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// Refuses another step's name: a resume would take it for that step.
fn is_named_as(target: &Utf8Path, step: Step) -> Result<(), CliError> {
    let number = target.file_name().and_then(|name| name.strip_prefix("global_step_"));
    match number.and_then(|n| n.parse().ok()) {
        Some(other) if Step(other) != step => Err(CliError::usage(format!(
            "{target} has the name of step {other}, and step {step} would be written: a run would go on from it as from step {other}"
        ))
        .hint(format!("--step {other} for that step, or a target named global_step_{step}"))),
        _ => Ok(()),
    }
}

fn write(
    dir: &Utf8Path,
    target: &Utf8Path,
    content: &reshard::StepContent,
    world: u64,
) -> Result<ReshardStats, CliError> {
    // `.` and `empty/.` have no name of their own.
    let target = &target.canonicalize_utf8().unwrap_or_else(|_| target.to_owned());
    let mut meter = ByteMeter::of_writing();
    let written = reshard::write(dir, target, content, world, &model::limits()?, &mut |done, of| {
        meter.tell(done, Some(of));
        ControlFlow::Continue(())
    });
    meter.end();
    written.map_err(|e| refused(e, target))
}

fn refused(why: NotCut, target: &Utf8Path) -> CliError {
    let (error, hint) = match why {
        NotCut::Step { verdict, text, hint } => (CliError::checkpoint(verdict, text), hint),
        NotCut::Machine { text, hint } => (CliError::environment(text), hint),
        NotCut::NoRoom { want, free, .. } => return new_dir::no_room(target, want, free),
        NotCut::Exists(_) => return new_dir::exists(target),
        NotCut::NoParent(dir) => return new_dir::no_parent(target, &dir),
        NotCut::Interrupted => (CliError::internal("the writing was interrupted"), None),
        NotCut::Internal(text) => (CliError::internal(text), None),
    };
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
