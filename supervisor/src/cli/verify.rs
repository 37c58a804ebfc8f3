//! `supervise verify`: checkpoints and files of anybody, whether or not a run of ours wrote them.

mod look;

use crate::error::CliError;
use crate::exit::Exit;
use crate::printer::{self, Meter};
use crate::render::verify::{PathView, VerifyView};
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_core::checkpoint::{Depth, Verdict};

pub(super) const EXAMPLES: &str = "  supervise verify /ckpt/my-run
  supervise verify /ckpt/my-run/global_step_120 --depth full
  supervise verify /ckpt/my-run/global_step_120/actor
  supervise verify model_world_size_8_rank_3.pt --json
";

pub(super) const EXITS: [Exit; 8] = [
    Exit::Finished,
    Exit::Incomplete,
    Exit::Damaged,
    Exit::Unsafe,
    Exit::Unknown,
    Exit::Unreadable,
    Exit::Usage,
    Exit::Internal,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Checkpoint roots, step directories, role directories or single files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<Utf8PathBuf>,
    /// How deep to look
    #[arg(long, value_enum, default_value = "structure")]
    depth: super::DepthArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    for path in &args.paths {
        if let Err(e) = path.symlink_metadata()
            && matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        {
            return Err(CliError::usage(format!("{path}: there is no such file or directory")));
        }
    }
    let depth = Depth::from(args.depth);
    let mut meter = Meter::new();
    let paths = args.paths.iter().map(|p| one(p, depth, &mut meter)).collect();
    meter.end();
    let view = VerifyView::of(depth, paths);
    if args.json {
        super::print_json(&view)?;
    } else {
        printer::out(&view.text());
    }
    Ok(view.exit_code)
}

/// One path of the command line. A link that the user names is followed; links inside are not.
fn one(path: &Utf8Path, depth: Depth, meter: &mut Meter) -> PathView {
    let real = match path.canonicalize_utf8() {
        Ok(real) => real,
        Err(e) => return unreadable(path, &e),
    };
    match real.metadata() {
        Ok(m) if m.is_dir() => look::directory(path, &real, depth, meter).unwrap_or_else(|e| unreadable(path, &e)),
        Ok(_) => look::file(path, &real, depth, meter),
        Err(e) => unreadable(path, &e),
    }
}

fn unreadable(path: &Utf8Path, e: &io::Error) -> PathView {
    PathView {
        path: path.to_string(),
        what: "unreadable",
        verdict: Verdict::Unreadable,
        steps: Vec::new(),
        files: Vec::new(),
        remarks: vec![format!("it cannot be read: {e}")],
    }
}
