//! `supervise config`: every value and where it came from; the form of a settings file.

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::Exit;
use crate::prepare::{self, Request};
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
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the supervisor's settings, and the trainer's where a YAML is named.
    Show(Show),
    /// Print the JSON Schema of the settings file, for editors.
    Schema,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    /// An override, as for `run`
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
        What::Show(args) => show(args)?,
        What::Schema => super::print_json(&json_schema(&FRAMEWORKS))?,
    }
    Ok(Exit::Finished.code())
}

fn show(show: Show) -> Result<(), CliError> {
    let named = show.config.is_some() || !show.command.is_empty();
    let request = Request {
        config: show.config,
        set: show.set,
        settings: show.settings.named(),
        command: show.command,
        ..Request::default()
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
