//! `supervise policy`: the recovery policy for each failure class, with the user's changes.

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, PrepareRequest, answers, failure_lines};
use crate::render::policy::{PolicyView, text};
use camino::Utf8PathBuf;
use clap::Subcommand;

pub(super) const EXAMPLES: &str = "  supervise policy show
  supervise policy show ppo.yaml --set supervisor.policy.mem.cuda_oom=stop
  supervise policy show ppo.yaml --json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Show the policy for each failure class, and what the settings changed
    Show(PolicyShowArgs),
}

#[derive(Debug, clap::Args)]
struct PolicyShowArgs {
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    /// Override a setting, as for `run`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let PolicyCommand::Show(show) = args.what;
    let request = PrepareRequest {
        config: show.config,
        set: show.set,
        settings: show.settings.named(),
        ..PrepareRequest::default()
    };
    let settings = prepare::discover(request)?.sources.settings;
    let view = PolicyView::of(
        &answers(&settings),
        &failure_lines(&settings),
        settings.retries,
        settings.step_backs,
    );
    match show.json {
        true => super::print_json(&view)?,
        false => super::print(&text(&view))?,
    }
    Ok(SuperviseExitCode::Finished.code())
}
