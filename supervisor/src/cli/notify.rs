//! `supervise notify`: sends a test notification.

use super::settings_files::SettingsFiles;
use super::target;
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::notify::send::{NotifyJob, send};
use crate::notify::{NotifyResult, NotifyTargets, trial};
use crate::prepare::{self, PrepareRequest};
use camino::Utf8PathBuf;
use serde::Serialize;
use supervise_host::process::host_name;

pub(super) const EXAMPLES: &str = "  supervise notify --test ppo.yaml
  supervise notify --test --set supervisor.on_event.command='notify-send supervise'
  supervise notify --test ppo.yaml --json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The trainer's YAML [default: the user's and machine's settings]
    #[arg(value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    /// Send a test event
    #[arg(long, required = true)]
    test: bool,
    /// Override a setting, as for `run`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct View {
    version: u32,
    ways: Vec<NotifyResult>,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let name = args.config.as_ref().map(ToString::to_string);
    let request = PrepareRequest {
        config: args.config,
        set: args.set,
        settings: args.settings.named(),
        ..PrepareRequest::default()
    };
    let discovered = prepare::discover(request)?;
    let ways = NotifyTargets::of(&discovered.sources.settings.on_event);
    if ways.is_none() {
        return Err(
            CliError::config("nobody is to be told: on_event.command and on_event.webhook are null")
                .hint("set one of them; `supervise config show` prints where each setting came from"),
        );
    }
    let known = name.as_deref().and_then(|name| target::one(Some(name)).ok());
    let run = known.map_or_else(|| "none".to_owned(), |seen| seen.run.0);
    let ways = send(&NotifyJob {
        ways,
        notice: trial(&run, &host_name(), wall()),
    });
    let failed = ways.iter().any(|way| !way.arrived);
    let view = View { version: 1, ways };
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.ways.iter().map(line).collect::<String>())?;
    }
    Ok(if failed {
        SuperviseExitCode::Environment
    } else {
        SuperviseExitCode::Finished
    }
    .code())
}

fn line(way: &NotifyResult) -> String {
    let note = match way.note.as_str() {
        "" => String::new(),
        note => format!(": {note}"),
    };
    match way.arrived {
        true => format!("on_event.{}: it was told{note}\n", way.to),
        false => format!("on_event.{}: it could not be told{note}\n", way.to),
    }
}
