//! `supervise verify`: checks any checkpoints and files, supervised or not.

mod inspect;
mod scrub;

pub(super) use inspect::{declared_at, declared_facts};

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare;
use crate::printer::ByteMeter;
use crate::render::verify::{PathView, VerifyDetail, VerifyView};
use camino::{Utf8Path, Utf8PathBuf};
use inspect::{StepJudge, VerifyOptions};
use std::io;
use supervise_core::checkpoint::{Depth, Verdict};

pub(super) const EXAMPLES: &str = "  supervise verify /ckpt/my-run
  supervise verify /ckpt/my-run/global_step_120 --depth full --files
  supervise verify /ckpt/my-run/global_step_120/actor
  supervise verify model_world_size_8_rank_3.pt --tensors --json
  supervise verify /ckpt/my-run --as skyrl
  supervise verify /ckpt/my-run --scrub
  supervise verify /areal/checkpoints/me/exp/trial --finite
";

pub(super) const EXITS: [SuperviseExitCode; 10] = [
    SuperviseExitCode::Finished,
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
    /// Checkpoint roots, steps, roles, weight directories or files
    ///
    /// Weight directories: DCP, Megatron or exported weights.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<Utf8PathBuf>,
    /// How much to read of each file
    #[arg(long, value_enum, default_value = "structure")]
    depth: super::DepthArg,
    /// Judge the steps as this trainer's
    ///
    /// A trainer of `supervisor.trainer`, a declared trainer (`supervise trainer list`), or the file of one.
    #[arg(long = "as", value_name = "NAME|FILE")]
    trainer: Option<String>,
    /// Reread every proven file and compare it with the proof record
    #[arg(long, conflicts_with_all = ["finite", "tensors", "trainer"])]
    scrub: bool,
    /// Also count infinities and NaN (reads every byte)
    #[arg(long)]
    finite: bool,
    /// Memory to use for reading files [default: proof.memory]
    #[arg(long, value_name = "SIZE", value_parser = supervise_config::settings::parse_bytes)]
    memory: Option<u64>,
    /// List the tensors of each file
    #[arg(long)]
    tensors: bool,
    /// List every file after the steps
    #[arg(long)]
    files: bool,
    /// Show what was checked, and what a resume restores
    #[arg(long, short)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let depth = if args.finite || args.scrub {
        Depth::Full
    } else {
        Depth::from(args.depth)
    };
    let mut meter = ByteMeter::new();
    let paths: Result<Vec<PathView>, CliError> = if args.scrub {
        args.paths
            .iter()
            .map(|p| scrub::one(p, args.memory, &mut meter))
            .collect()
    } else {
        look_at(args, depth, &mut meter)
    };
    meter.end();
    let view = VerifyView::of(depth, paths?);
    if args.json {
        super::print_json(&view)?;
    } else {
        let detail = VerifyDetail {
            files: args.files || args.verbose,
            verbose: args.verbose,
        };
        super::print(&view.text(detail))?;
    }
    Ok(view.exit_code)
}

fn look_at(args: &Args, depth: Depth, meter: &mut ByteMeter) -> Result<Vec<PathView>, CliError> {
    for path in &args.paths {
        if let Err(e) = path.symlink_metadata()
            && matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        {
            return Err(CliError::usage(format!("{path}: there is no such file or directory")));
        }
    }
    let mut look = VerifyOptions {
        depth,
        judge: args.trainer.as_deref().map(StepJudge::named).transpose()?,
        finite: args.finite,
        memory: args.memory.map_or_else(prepare::proof_memory, Ok)?,
        tensors: args.tensors,
        meter,
    };
    Ok(args.paths.iter().map(|p| one(p, &mut look)).collect())
}

/// Checks one path of the command line. A link that the user names is followed; links inside are not.
fn one(path: &Utf8Path, look: &mut VerifyOptions<'_>) -> PathView {
    let real = match path.canonicalize_utf8() {
        Ok(real) => real,
        Err(e) => return unreadable(path, &e),
    };
    match real.metadata() {
        Ok(m) if m.is_dir() => inspect::directory(path, &real, look).unwrap_or_else(|e| unreadable(path, &e)),
        Ok(m) if m.is_file() => inspect::file(path, &real, look),
        Ok(_) => PathView {
            remarks: vec!["it is a FIFO, a socket or a device: neither a file nor a directory".to_owned()],
            ..PathView::new(path, "special", Verdict::Unknown)
        },
        Err(e) => unreadable(path, &e),
    }
}

fn unreadable(path: &Utf8Path, e: &io::Error) -> PathView {
    PathView {
        remarks: vec![format!("it cannot be read: {e}")],
        ..PathView::new(path, "unreadable", Verdict::Unreadable)
    }
}
