//! The command line: one file per command.

mod checkpoints;
mod compare;
mod completions;
mod config;
mod convert;
mod diagnose;
mod doctor;
mod explain;
mod exports;
mod gc;
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
mod sbatch;
mod serve;
mod settings_files;
mod status;
mod stop;
mod stopped_run;
mod target;
mod top;
mod trace;
mod verify;
mod version;

use crate::error::CliError;
use crate::exit::{self, SuperviseExitCode};
use crate::printer::{self, ColourChoice};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start or resume a run and keep it running until it finishes
    Run(run::Args),
    /// Show what `run` would launch, from which step, and why
    ///
    /// Changes nothing.
    Plan(plan::Args),
    /// Show the state of runs
    Status(status::Args),
    /// Watch runs live: state, timeline, output
    Top(top::Args),
    /// Explain what happened in a run and why attempts ended
    Explain(explain::Args),
    /// Find out why a run failed from its logs
    ///
    /// Works for unsupervised runs too.
    Diagnose(diagnose::Args),
    /// List a run's attempts: steps, duration, cause, time lost
    History(history::Args),
    /// List every step of a checkpoint root with its verdict
    Checkpoints(checkpoints::Args),
    /// Check checkpoints or single files
    ///
    /// The exit code is the worst verdict.
    Verify(verify::Args),
    /// Convert verl Megatron checkpoints to the layout of verl 0.9
    ///
    /// Converts checkpoints of verl 0.4.1 to 0.8, which keep a role in one archive, in place.
    Migrate(migrate::Args),
    /// Merge a proven step into a Hugging Face model
    Merge(merge::Args),
    /// Convert a Hugging Face model to a Megatron checkpoint
    ///
    /// Megatron can load the checkpoint with any parallel sizes.
    Convert(convert::Args),
    /// Compare two models number by number
    ///
    /// Each model can be a step, a merged model or a file of weights.
    Compare(compare::Args),
    /// Reshard a verl FSDP step for a different number of ranks
    Reshard(reshard::Args),
    /// Stop a run and wait until it has ended
    Stop(stop::Args),
    /// Pause recovery while you debug a run
    ///
    /// While a run is held, nothing is launched and no hang or failed worker ends it, so that an attached debugger is not
    /// disturbed. A trainer that starts at step 0, goes back or has non-finite weights is still ended, so that no good step is lost.
    /// `stop` and the scheduler's deadline also still end the run. The hold lasts until `unhold`, even if the supervisor restarts.
    Hold(hold::HoldArgs),
    /// Release a held run
    Unhold(hold::UnholdArgs),
    /// Clear a final failure so that the next start resumes the run
    ///
    /// For a run that ended with 3, 4 or 6, once the cause is fixed: its next start, by systemd, by Slurm or with `supervise run`,
    /// resumes it. The same as `run --again` without the start: all retries are available again, and steps that failed to load are
    /// tried again. A hold that was not released ends too.
    Resume(resume::Args),
    /// Make a stopped run resume from an earlier proven step
    ///
    /// The request is written into the run's journal, and the next start obeys it once: it resumes from exactly that step, and
    /// newer steps are moved to `aside/` first. Until then nothing is moved, and nothing is deleted. Another `rollback` replaces the
    /// request; `run --from` and `run --fresh` take precedence.
    Rollback(rollback::Args),
    /// List and delete leftovers of a run: torn steps, old attempts
    ///
    /// Asks for confirmation before anything is deleted.
    Gc(gc::Args),
    /// Show the workers' output
    Logs(logs::Args),
    /// Print a run's journal: facts, decisions and their reasons
    Journal(journal::Args),
    /// Print a run as trace events for Perfetto and Chrome
    ///
    /// The trace shows attempts, phases, waits, faults and proven steps.
    Trace(trace::Args),
    /// Print metrics of runs for Prometheus
    ///
    /// Can also write them into a file for the node exporter.
    Metrics(metrics::Args),
    /// Serve a dashboard of runs, and metrics for Prometheus
    ///
    /// The pages show the state, history and cost of each run. They are read-only unless --allow-actions is given.
    Serve(serve::Args),
    /// Send a test notification (`on_event`)
    Notify(notify::Args),
    /// Show the recovery policy for each failure class
    Policy(policy::Args),
    /// Show settings and where each comes from
    Config(config::Args),
    /// Check this machine for everything a run needs
    Doctor(doctor::Args),
    /// Write a systemd unit for a run
    ///
    /// The service starts the run at boot, restarts it, and takes over its workers if the supervisor died.
    Install(install::Args),
    /// Print, write or submit a Slurm batch script for a run
    Sbatch(sbatch::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// Print the man page, or write all man pages into a directory
    Man(man::Args),
}

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

/// A command: its name, examples and exit codes.
type CommandHelp = (&'static str, &'static str, &'static [SuperviseExitCode]);

const READS: [SuperviseExitCode; 3] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
];
const READS_SETTINGS: [SuperviseExitCode; 4] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Config,
];

/// The commands as `supervise --help` lists them, under their headings.
const GROUPS: [(&str, &[CommandHelp]); 5] = [
    (
        "Runs",
        &[
            ("run", run::EXAMPLES, &run::EXITS),
            ("plan", plan::EXAMPLES, &plan::EXITS),
            ("status", status::EXAMPLES, &READS),
            ("top", top::EXAMPLES, &top::EXITS),
            ("stop", stop::EXAMPLES, &READS),
            ("hold", hold::HOLD_EXAMPLES, &READS),
            ("unhold", hold::UNHOLD_EXAMPLES, &READS),
            ("resume", resume::EXAMPLES, &resume::EXITS),
            ("rollback", rollback::EXAMPLES, &rollback::EXITS),
            ("gc", gc::EXAMPLES, &gc::EXITS),
        ],
    ),
    (
        "Diagnosis",
        &[
            ("explain", explain::EXAMPLES, &READS),
            ("diagnose", diagnose::EXAMPLES, &diagnose::EXITS),
            ("history", history::EXAMPLES, &READS),
            ("logs", logs::EXAMPLES, &READS),
            ("journal", journal::EXAMPLES, &READS),
            ("trace", trace::EXAMPLES, &READS),
        ],
    ),
    (
        "Checkpoints and models",
        &[
            ("checkpoints", checkpoints::EXAMPLES, &READS),
            ("verify", verify::EXAMPLES, &verify::EXITS),
            ("reshard", reshard::EXAMPLES, &reshard::EXITS),
            ("migrate", migrate::EXAMPLES, &migrate::EXITS),
            ("merge", merge::EXAMPLES, &merge::EXITS),
            ("convert", convert::EXAMPLES, &convert::EXITS),
            ("compare", compare::EXAMPLES, &compare::EXITS),
        ],
    ),
    (
        "Monitoring",
        &[
            ("serve", serve::EXAMPLES, &READS),
            ("metrics", metrics::EXAMPLES, &READS),
            ("notify", notify::EXAMPLES, &READS_SETTINGS),
        ],
    ),
    (
        "Setup",
        &[
            ("doctor", doctor::EXAMPLES, &READS_SETTINGS),
            ("config", config::EXAMPLES, &READS_SETTINGS),
            ("policy", policy::EXAMPLES, &READS_SETTINGS),
            ("install", install::EXAMPLES, &READS_SETTINGS),
            ("sbatch", sbatch::EXAMPLES, &READS_SETTINGS),
            ("completions", completions::EXAMPLES, &READS),
            ("man", man::EXAMPLES, &READS),
        ],
    ),
];

/// Width of the column of names in `supervise --help`.
const NAME_WIDTH: usize = 13;

/// The command line with groups, examples and exit codes.
pub(crate) fn command() -> clap::Command {
    let mut cli = Cli::command();
    let mut list = String::new();
    for (heading, commands) in GROUPS {
        list.push_str(&format!("{heading}:\n"));
        for (name, examples, exits) in commands {
            let after = format!("Examples:\n{examples}\n{}", exit::table(name, exits));
            cli = cli.mut_subcommand(name, |c| c.after_long_help(after));
            let about = cli.find_subcommand(name).and_then(|c| c.get_about());
            list.push_str(&format!(
                "  {name:NAME_WIDTH$}{}\n",
                about.map(ToString::to_string).unwrap_or_default()
            ));
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
    let ours = args.iter().take_while(|a| *a != "--");
    printer::errors_as_json(ours.clone().any(|a| a == "--json"));
    let parsed = command()
        .try_get_matches_from(&args)
        .and_then(|m| Cli::from_arg_matches(&m));
    let result = match parsed {
        Ok(cli) => {
            printer::choose_colour(cli.color);
            dispatch(cli.command)
        }
        Err(e) => told(&e, &args),
    };
    result.unwrap_or_else(|e| {
        printer::fail(&e);
        e.exit_code()
    })
}

fn dispatch(command: Command) -> Result<u8, CliError> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::History(args) => history::run(&args),
        Command::Checkpoints(args) => checkpoints::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Reshard(args) => reshard::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Hold(args) => hold::hold(&args),
        Command::Unhold(args) => hold::unhold(&args),
        Command::Resume(args) => resume::run(&args),
        Command::Rollback(args) => rollback::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Journal(args) => journal::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Notify(args) => notify::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Install(args) => install::run(args),
        Command::Sbatch(args) => sbatch::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
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

/// Refuses an empty name, usually an unset shell variable.
fn not_empty(word: &str, what: &str) -> Result<(), CliError> {
    match word {
        "" => Err(CliError::usage(format!("{what}: expected a name, found an empty word"))
            .hint("is a variable of the shell not set? `echo` the command to see it")),
        _ => Ok(()),
    }
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
