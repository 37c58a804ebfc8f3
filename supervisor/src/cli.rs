//! The command line: one file per command.

mod advise;
mod checkpoints;
mod compare;
mod completions;
mod config;
mod convert;
mod demo;
mod diagnose;
mod doctor;
mod explain;
mod exports;
mod forget;
mod gc;
mod groups;
mod history;
mod hold;
mod install;
mod journal;
mod logs;
mod man;
mod merge;
mod metrics;
mod migrate;
mod mistakes;
mod model;
mod new_dir;
mod notify;
mod plan;
mod policy;
mod prompt;
mod records;
mod remote_request;
mod reshard;
mod resume;
mod rollback;
mod run;
mod save;
mod sbatch;
mod serve;
mod settings_files;
mod simulate;
mod status;
mod stop;
mod stopped_run;
mod target;
mod top;
mod trace;
mod trainer;
mod verify;
mod version;

use crate::error::CliError;
use crate::exit::{self, SuperviseExitCode};
use crate::printer::{self, ColourChoice};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use groups::GROUPS;
use std::ffi::OsString;
use std::io;
use supervise_core::checkpoint::Depth;
use tracing_subscriber::EnvFilter;

/// Supervises training runs of verl, AReaL and Hugging Face's Trainer
///
/// It resumes only from proven checkpoints, keeps the last proven state, leaves no trainer process behind, and explains every
/// decision.
#[derive(Debug, Parser)]
#[command(name = "supervise", version, max_term_width = 110)]
struct Cli {
    /// Use colors (`auto`: on a terminal, unless NO_COLOR is set)
    #[arg(
        long,
        global = true,
        value_name = "auto|always|never",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 900
    )]
    color: ColourChoice,
}

/// What is printed if no command is given.
const OVERVIEW: &str = "\
supervise restarts training runs after failures, only from proven checkpoints.

  supervise plan ppo.yaml            show what would be launched, from which step, and why
  supervise run ppo.yaml             start or resume a run
  supervise run -- bash run_grpo.sh  the same for a launch script
  supervise status                   show the state of your runs
  supervise explain ppo.yaml         explain what happened, and why attempts ended
  supervise stop ppo.yaml            stop a run

`supervise --help` lists all commands, `supervise help COMMAND` explains one.
";

/// The end of the program's help.
const JSON_ERRORS: &str = "With --json an error is one JSON object on standard error: \
{\"error\": {\"kind\", \"exit_code\", \"message\", \"lines\", \"hints\"}}. Integers beyond 2^53 are strings in JSON.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DepthArg {
    /// Names, sizes, indices and headers: reads kilobytes.
    Structure,
    /// Every byte, compared with its checksum.
    Full,
}

impl From<DepthArg> for Depth {
    fn from(d: DepthArg) -> Self {
        match d {
            DepthArg::Structure => Self::Structure,
            DepthArg::Full => Self::Full,
        }
    }
}

/// Width of the column of names in `supervise --help`.
const NAME_WIDTH: usize = 13;

/// The command line with groups, examples and exit codes.
pub(crate) fn command() -> clap::Command {
    let mut cli = Cli::command().subcommand_required(true).arg_required_else_help(true);
    let mut list = String::new();
    for group in GROUPS {
        cli = (group.add)(cli);
        list.push_str(&format!("{}:\n", group.heading));
        for command in (group.add)(clap::Command::new("")).get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            list.push_str(&format!("  {:NAME_WIDTH$}{about}\n", command.get_name()));
        }
        list.push('\n');
    }
    cli.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
    .after_help("`supervise help COMMAND` shows the help of a command.")
    .after_long_help(format!("{}\n{JSON_ERRORS}", exit::table("", &exit::ALL)))
}

/// Runs the command line. Returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    trace();
    let args: Vec<OsString> = args.into_iter().collect();
    match completions::answered(&args) {
        Ok(false) => {}
        Ok(true) => return SuperviseExitCode::Finished.code(),
        Err(e) => {
            printer::fail(&e);
            return e.exit_code();
        }
    }
    let ours = args.iter().take_while(|a| *a != "--");
    printer::errors_as_json(ours.clone().any(|a| a == "--json"));
    let result = match args.len() {
        0 | 1 => print(OVERVIEW).map(|()| SuperviseExitCode::Finished.code()),
        _ => mistakes::check_empty(&args).and_then(|()| {
            match command().try_get_matches_from(&args).and_then(|m| run_parsed(&m)) {
                Ok(result) => result,
                Err(e) => told(&e, &args),
            }
        }),
    };
    result.unwrap_or_else(|e| {
        printer::fail(&e);
        e.exit_code()
    })
}

fn run_parsed(matches: &ArgMatches) -> Result<Result<u8, CliError>, clap::Error> {
    printer::choose_colour(Cli::from_arg_matches(matches)?.color);
    let name = matches.subcommand_name().unwrap_or_default();
    match GROUPS.iter().find(|group| (group.has)(name)) {
        Some(group) => (group.run)(matches),
        None => Err(command().error(ErrorKind::MissingSubcommand, "a command is missing")),
    }
}

/// Prints help and version to standard output; everything else is a usage error.
fn told(e: &clap::Error, args: &[OsString]) -> Result<u8, CliError> {
    if e.kind() == ErrorKind::DisplayVersion && args.iter().any(|a| a == "--json") {
        version::print()?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    if e.use_stderr() {
        return Err(mistakes::explained(e, args));
    }
    print(&e.render().to_string())?;
    Ok(SuperviseExitCode::Finished.code())
}

/// Enables the program's own logging: `SUPERVISE_LOG=debug`.
pub(crate) fn trace() {
    let filter = EnvFilter::try_from_env("SUPERVISE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    // Only the first call in a process counts; tests call this more than once.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| printer::StderrWriter)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .try_init();
}

fn print_json<T: serde::Serialize>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::internal(format!("no JSON: {e}")))?;
    written(printer::out_json(&text))
}

/// Prints the answer of a command as text.
fn print(text: &str) -> Result<(), CliError> {
    written(printer::out_text(text))
}

/// An answer that could not be written is an error.
fn written(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        // The reader closed the pipe because it has enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(CliError::environment(format!(
            "the answer cannot be written to standard output: {e}"
        ))),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_overview_names_commands_that_exist() {
        let shown = OVERVIEW.lines().filter_map(|line| line.strip_prefix("  supervise "));
        let names: Vec<&str> = shown.filter_map(|rest| rest.split(' ').next()).collect();
        assert!(names.len() > 4 && OVERVIEW.lines().all(|line| line.len() <= 100));
        assert!(
            names.iter().all(|name| command().find_subcommand(name).is_some()),
            "{names:?}"
        );
    }

    #[test]
    fn every_help_shows_examples_and_exit_codes() {
        for sub in command().get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Exit codes:"), "{}", sub.get_name());
            assert!(help.contains("Examples:"), "{}", sub.get_name());
        }
    }

    #[test]
    fn the_short_help_has_one_line_for_each_command() {
        let help = command().render_help().to_string();
        for sub in command().get_subcommands() {
            let line = help.lines().find(|l| l.starts_with(&format!("  {} ", sub.get_name())));
            assert!(
                line.is_some_and(|l| l.len() > NAME_WIDTH + 10 && l.len() <= 80),
                "{}: {line:?}",
                sub.get_name()
            );
        }
        assert!(!help.contains("Exit codes:"), "{help}");
    }
}
