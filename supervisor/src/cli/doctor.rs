//! `supervise doctor`: checks this machine for everything a run needs.

mod machine;
mod trainer;

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, PrepareRequest};
use crate::render::table;
use camino::Utf8PathBuf;
use serde::Serialize;

pub(super) const EXAMPLES: &str = "  supervise doctor
  supervise doctor ppo.yaml
  supervise doctor --json -- python3 -m verl.trainer.main_ppo
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command that starts the trainer
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Ok,
    /// Worth knowing.
    Note,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    health: Health,
    text: String,
}

impl Check {
    fn new(name: &'static str, health: Health, text: impl Into<String>) -> Self {
        Self {
            name,
            health,
            text: text.into(),
        }
    }
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let mut checks = machine::checks();
    if args.config.is_some() || !args.command.is_empty() {
        let request = PrepareRequest {
            config: args.config,
            command: args.command,
            no_recovery: true,
            settings: args.settings.named(),
            ..PrepareRequest::default()
        };
        if let Some(file) = &request.config {
            checks.extend(trainer::scalars(file));
        }
        let discovered = prepare::discover(request)?;
        let interpreter = trainer::interpreter(&discovered);
        let id = discovered.identify()?;
        checks.push(machine::file_system(id.root.as_deref().unwrap_or(&id.run_dir)));
        checks.extend(interpreter);
    }
    if args.json {
        super::print_json(&checks)?;
    } else {
        let word = |h: Health| match h {
            Health::Ok => "ok",
            Health::Note => "note",
            Health::Warning => "WARNING",
        };
        let rows: Vec<Vec<String>> = checks
            .iter()
            .map(|c| vec![c.name.to_owned(), word(c.health).to_owned(), c.text.clone()])
            .collect();
        super::print(&table(&["WHAT", "HEALTH", "FOUND"], &rows))?;
    }
    Ok(SuperviseExitCode::Finished.code())
}
