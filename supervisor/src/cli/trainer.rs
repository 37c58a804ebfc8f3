//! `supervise trainer`: the trainers that a TOML file declares.

mod check;

use crate::declared_files;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::render::trainer::{TrainerList, TrainerRow};
use camino::Utf8PathBuf;
use clap::Subcommand;
use supervise_trainers::declared::presets;

pub(super) const EXAMPLES: &str = "  supervise trainer list
  mkdir -p supervise.trainers && supervise trainer show skyrl > supervise.trainers/mine.toml
  supervise trainer check supervise.trainers/mine.toml /ckpt/my-run
  supervise trainer check skyrl /ckpt/my-run --log train.log --json
";

pub(super) const EXITS: [SuperviseExitCode; 10] = super::verify::EXITS;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: TrainerCommand,
}

#[derive(Debug, Subcommand)]
enum TrainerCommand {
    /// List the declared trainers
    List(TrainerListArgs),
    /// Print the declaration of a trainer, to copy and change it
    Show(TrainerShowArgs),
    /// Check a declaration against a checkpoint directory
    ///
    /// Shows what it understands, then what it would notice if files were missing or cut. Changes nothing. The exit code is the
    /// worst verdict of the steps.
    Check(check::TrainerCheckArgs),
}

#[derive(Debug, clap::Args)]
struct TrainerListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct TrainerShowArgs {
    /// A declared trainer
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    match &args.what {
        TrainerCommand::List(list) => print_list(list.json),
        TrainerCommand::Show(show) => {
            super::print(find(&show.name)?.text())?;
            Ok(SuperviseExitCode::Finished.code())
        }
        TrainerCommand::Check(check) => check::run(check),
    }
}

fn print_list(json: bool) -> Result<u8, CliError> {
    let user = declared_files::of_user();
    let own = user
        .read
        .iter()
        .map(|(path, d)| TrainerRow::of(d, Some(path.to_string())));
    let broken = user.broken.iter().map(|broken| TrainerRow {
        problem: Some(broken.error.message.clone()),
        ..TrainerRow::unread(broken.path.to_string())
    });
    let presets = presets().iter().map(|d| TrainerRow::of(d, None));
    let list = TrainerList {
        version: 1,
        trainers: own.chain(broken).chain(presets).collect(),
    };
    match json {
        true => super::print_json(&list)?,
        false => super::print(&list.text())?,
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The declaration of this name or in this file.
fn find(name: &str) -> Result<std::sync::Arc<supervise_trainers::declared::Declaration>, CliError> {
    declared_files::named(name)?.ok_or_else(|| {
        CliError::usage(format!("no declared trainer is called `{name}`")).hint(format!(
            "known are {}; a file is named by its path",
            declared_files::names().join(", ")
        ))
    })
}

/// A path that has to be a directory.
fn directory(path: &Utf8PathBuf) -> Result<Utf8PathBuf, CliError> {
    let real = path.canonicalize_utf8();
    match real {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(CliError::usage(format!("{path}: not a directory")).hint("name the checkpoint root")),
        Err(e) => Err(CliError::usage(format!("{path}: {e}")).hint("name the checkpoint root")),
    }
}
