//! `supervise config`: every value and where it came from; the form of a settings file.

use crate::error::CliError;
use crate::exit::Exit;
use crate::prepare::{self, Request};
use crate::render::table;
use camino::Utf8PathBuf;
use clap::Subcommand;
use serde::Serialize;
use supervise_config::settings::json_schema;
use supervise_config::{ConfigTree, python_str, redact};
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
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command that starts the trainer
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    key: String,
    value: String,
    origin: String,
}

#[derive(Debug, Serialize)]
struct View {
    version: u32,
    settings: Vec<Line>,
    trainer: Vec<Line>,
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
        command: show.command,
        ..Request::default()
    };
    let discovered = prepare::discover(request)?;
    let settings = discovered.sources.settings.explained().iter().map(|e| Line {
        key: e.key.clone(),
        value: e.value.clone(),
        origin: e.origin.clone(),
    });
    let view = View {
        version: 1,
        settings: settings.collect(),
        trainer: if named {
            lines(&discovered.effective()?)
        } else {
            Vec::new()
        },
    };
    if show.json {
        super::print_json(&view)
    } else {
        super::print(&text(&view))
    }
}

fn lines(tree: &ConfigTree) -> Vec<Line> {
    let shown = |(path, node): (String, &supervise_config::Node)| Line {
        value: redact(&path, &python_str(&node.value)),
        origin: node.origin.to_string(),
        key: path,
    };
    tree.leaves()
        .into_iter()
        .filter(|(path, _)| !path.is_empty())
        .map(shown)
        .collect()
}

fn text(view: &View) -> String {
    let rows = |lines: &[Line]| -> Vec<Vec<String>> {
        lines
            .iter()
            .map(|l| vec![l.key.clone(), l.value.clone(), l.origin.clone()])
            .collect()
    };
    let mut out = table(&["SETTING", "VALUE", "FROM"], &rows(&view.settings));
    if !view.trainer.is_empty() {
        out.push('\n');
        out.push_str(&table(&["TRAINER'S KEY", "VALUE", "FROM"], &rows(&view.trainer)));
    }
    out
}
