//! `supervise migrate`: converts Megatron checkpoints from verl's first layout to the second, in place.

mod convert;
mod target;

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::proof_memory;
use crate::printer::ByteMeter;
use crate::render::migrate::{MigrateView, RoleView};
use camino::Utf8PathBuf;
use supervise_trainers::verl::migrate::LinkMode;

pub(super) const EXAMPLES: &str = "  supervise migrate --checkpoint /ckpt/my-run/global_step_120/actor --dry-run
  supervise migrate --checkpoint /ckpt/my-run/global_step_120
  supervise migrate --checkpoint-root /ckpt/my-run --all-steps --link reflink
";

pub(super) const EXITS: [SuperviseExitCode; 11] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::LeaseHeld,
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

/// How the archive's bytes get into the new files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LinkArg {
    /// Hard links: takes no space. The step is marked, and is moved aside before a run that would save it again.
    Hard,
    /// Copies: takes the archive's size once for each part.
    Copy,
    /// Copies that share blocks, if the file system supports it.
    Reflink,
}

impl From<LinkArg> for LinkMode {
    fn from(link: LinkArg) -> Self {
        match link {
            LinkArg::Hard => Self::Hard,
            LinkArg::Copy => Self::Copy,
            LinkArg::Reflink => Self::Reflink,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A role (global_step_N/actor) or a step with its roles
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "checkpoint_root",
        conflicts_with = "checkpoint_root"
    )]
    checkpoint: Option<Utf8PathBuf>,
    /// A checkpoint root (with --all-steps)
    #[arg(long, value_name = "DIR", requires = "all_steps")]
    checkpoint_root: Option<Utf8PathBuf>,
    /// Every step below the root
    #[arg(long, requires = "checkpoint_root")]
    all_steps: bool,
    /// How the archive's bytes get into the new files
    #[arg(long, value_enum, default_value = "hard")]
    link: LinkArg,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (root, targets) = match (&args.checkpoint, &args.checkpoint_root) {
        (Some(dir), _) => target::of_checkpoint(dir)?,
        (None, Some(root)) => target::below(root)?,
        (None, None) => return Err(CliError::usage("name a checkpoint or a checkpoint root")),
    };
    let memory = proof_memory()?;
    let lease = match args.dry_run {
        true => None,
        false => Some(target::MigrateLease::take(&root)?),
    };
    let mut meter = ByteMeter::new();
    let roles: Vec<RoleView> = targets
        .iter()
        .map(|target| convert::role(target, args.link.into(), args.dry_run, memory, &mut meter))
        .collect();
    meter.end();
    drop(lease);
    let view = MigrateView::of(args.dry_run, args.checkpoint_root.is_some(), roles);
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(view.exit_code)
}
