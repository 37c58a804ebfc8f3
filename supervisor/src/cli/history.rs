//! `supervise history`: one line an attempt.

use super::{explain, target};
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::history::HistoryView;

pub(super) const EXAMPLES: &str = "  supervise history ppo.yaml
  supervise history /ckpt/my-run --json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let view = HistoryView::of(&explain::whole(&seen)?);
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(Exit::Finished.code())
}
