//! `supervise config`: every setting and where it comes from; the schema of a settings file.

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, PrepareRequest};
use crate::render::config::ConfigView;
use camino::Utf8PathBuf;
use clap::Subcommand;
use supervise_config::settings::json_schema;
use supervise_trainers::registry::FRAMEWORKS;

pub(super) const EXAMPLES: &str = "  supervise config show
  supervise config show ppo.yaml --set supervisor.retries=3
  supervise config show ppo.yaml --json
  supervise config schema > supervise.schema.json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show the supervisor's settings, and the trainer's if a YAML is given
    Show(ConfigShowArgs),
    /// Print the JSON Schema of the settings file, for editors
    Schema,
}

#[derive(Debug, clap::Args)]
struct ConfigShowArgs {
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
    /// The command that starts the trainer
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    match args.what {
        ConfigCommand::Show(args) => show(args)?,
        ConfigCommand::Schema => super::print_json(&json_schema(&FRAMEWORKS))?,
    }
    Ok(SuperviseExitCode::Finished.code())
}

fn show(show: ConfigShowArgs) -> Result<(), CliError> {
    let named = show.config.is_some() || !show.command.is_empty();
    let request = PrepareRequest {
        config: show.config,
        set: show.set,
        settings: show.settings.named(),
        command: show.command,
        ..PrepareRequest::default()
    };
    let discovered = prepare::discover(request)?;
    let tree = named.then(|| discovered.effective()).transpose()?;
    let view = ConfigView::of(&discovered.sources.settings, tree.as_ref());
    if show.json {
        super::print_json(&view)
    } else {
        super::print(&view.text())
    }
}
