//! The command line: one file per subcommand.

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
use crate::render::terminal;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::io;
use supervise_core::checkpoint::Depth;
use tracing_subscriber::EnvFilter;

/// Supervises training runs of verl, AReaL and Hugging Face's Trainer: never resumes from a checkpoint that is not proven, never
/// loses the last good state, never leaves a trainer behind, and says why it did what it did.
#[derive(Debug, Parser)]
#[command(name = "supervise", version, max_term_width = 110)]
struct Cli {
    /// Colours on a terminal (NO_COLOR turns them off)
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
    /// Start a run, or go on with it, and keep it going until it is finished.
    Run(run::Args),
    /// Show what would be launched, from which step and why; touches nothing.
    Plan(plan::Args),
    /// Show how runs are, from the living supervisor or from the journal.
    Status(status::Args),
    /// Show runs on one screen, and follow them: how they are, their stories, their output.
    Top(top::Args),
    /// Tell what happened in a run: decisions, evidence, why attempts ended.
    Explain(explain::Args),
    /// Say why a run ended, from its logs alone, whether or not it was supervised.
    Diagnose(diagnose::Args),
    /// List a run's attempts, one line each: from where to where, how long, why it ended, time lost.
    History(history::Args),
    /// List every step of a checkpoint root with its verdict.
    Checkpoints(checkpoints::Args),
    /// Check checkpoints or single files; the exit code is the worst verdict.
    Verify(verify::Args),
    /// Convert checkpoints that Megatron's older layout keeps in one archive into the layout of verl 0.9, in place.
    Migrate(migrate::Args),
    /// Put a proven step together into a model that Hugging Face's libraries load.
    Merge(merge::Args),
    /// Write a model in another library's form: for Megatron, to load with any parallel sizes.
    Convert(convert::Args),
    /// Compare two models number by number: steps, merged models, files of weights.
    Compare(compare::Args),
    /// Write a step of verl's FSDP trainers as another number of ranks would have saved it.
    Reshard(reshard::Args),
    /// Stop a run and wait until it has ended.
    Stop(stop::Args),
    /// Leave a run as it is while a person works on it: no hang and no failure ends it, nothing is launched.
    Hold(hold::HoldArgs),
    /// Let a held run go on.
    Unhold(hold::UnholdArgs),
    /// Let a run that ended until somebody looked at it go on, with its next start.
    Resume(resume::Args),
    /// Send a stopped run back to a proven step: its next start resumes there.
    Rollback(rollback::Args),
    /// Show what a run left behind: torn steps, old attempts; delete it when you agree.
    Gc(gc::Args),
    /// Show the workers' output.
    Logs(logs::Args),
    /// Print the records of a run's journal as they were written: facts, decisions with their reasons, intents.
    Journal(journal::Args),
    /// Print a run as trace events, for Perfetto and Chrome: attempts, phases, waits, faults, proven steps.
    Trace(trace::Args),
    /// Print metrics of runs for Prometheus, or write them into a file for the node exporter.
    Metrics(metrics::Args),
    /// Show runs in a browser: how they are, what happened and what it cost; with metrics for Prometheus. Reads only.
    Serve(serve::Args),
    /// Try the ways by which somebody is told of events (`on_event`).
    Notify(notify::Args),
    /// Show how failures are answered.
    Policy(policy::Args),
    /// Show settings and where each came from.
    Config(config::Args),
    /// Look at the machine: what a run here can count on.
    Doctor(doctor::Args),
    /// Write a service for a run: it starts at boot, is started again, and is taken over where its supervisor died.
    Install(install::Args),
    /// Print, write or submit a batch script of Slurm's for a run.
    Sbatch(sbatch::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
    /// Write the man pages: into a directory, or this program's own to standard output.
    Man(man::Args),
}

/// Said in the program's help.
const JSON_ERRORS: &str = "With --json an error is one JSON object on standard error: \
{\"error\": {\"kind\", \"exit_code\", \"message\", \"lines\", \"hints\"}}. Integers beyond 2^53 are strings in JSON.";

/// How deep to look.
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

/// The command line as clap knows it, with exit codes and examples.
pub(crate) fn command() -> clap::Command {
    let with = |examples: &str, exits: &[SuperviseExitCode]| format!("Examples:\n{examples}\n{}", exit::table(exits));
    const LOOK: [SuperviseExitCode; 3] = [
        SuperviseExitCode::Finished,
        SuperviseExitCode::Usage,
        SuperviseExitCode::Environment,
    ];
    const CONFIGURED: [SuperviseExitCode; 4] = [
        SuperviseExitCode::Finished,
        SuperviseExitCode::Usage,
        SuperviseExitCode::Environment,
        SuperviseExitCode::Config,
    ];
    Cli::command()
        .after_help(format!("{}\n{JSON_ERRORS}", exit::table(&exit::ALL)))
        .mut_subcommand("run", |c| c.after_help(with(run::EXAMPLES, &run::EXITS)))
        .mut_subcommand("plan", |c| c.after_help(with(plan::EXAMPLES, &plan::EXITS)))
        .mut_subcommand("status", |c| c.after_help(with(status::EXAMPLES, &LOOK)))
        .mut_subcommand("top", |c| c.after_help(with(top::EXAMPLES, &top::EXITS)))
        .mut_subcommand("explain", |c| c.after_help(with(explain::EXAMPLES, &LOOK)))
        .mut_subcommand("diagnose", |c| c.after_help(with(diagnose::EXAMPLES, &diagnose::EXITS)))
        .mut_subcommand("history", |c| c.after_help(with(history::EXAMPLES, &LOOK)))
        .mut_subcommand("checkpoints", |c| c.after_help(with(checkpoints::EXAMPLES, &LOOK)))
        .mut_subcommand("verify", |c| c.after_help(with(verify::EXAMPLES, &verify::EXITS)))
        .mut_subcommand("migrate", |c| c.after_help(with(migrate::EXAMPLES, &migrate::EXITS)))
        .mut_subcommand("merge", |c| c.after_help(with(merge::EXAMPLES, &merge::EXITS)))
        .mut_subcommand("convert", |c| c.after_help(with(convert::EXAMPLES, &convert::EXITS)))
        .mut_subcommand("compare", |c| c.after_help(with(compare::EXAMPLES, &compare::EXITS)))
        .mut_subcommand("reshard", |c| c.after_help(with(reshard::EXAMPLES, &reshard::EXITS)))
        .mut_subcommand("stop", |c| c.after_help(with(stop::EXAMPLES, &LOOK)))
        .mut_subcommand("hold", |c| c.after_help(with(hold::HOLD_EXAMPLES, &LOOK)))
        .mut_subcommand("unhold", |c| c.after_help(with(hold::UNHOLD_EXAMPLES, &LOOK)))
        .mut_subcommand("resume", |c| c.after_help(with(resume::EXAMPLES, &resume::EXITS)))
        .mut_subcommand("rollback", |c| c.after_help(with(rollback::EXAMPLES, &rollback::EXITS)))
        .mut_subcommand("gc", |c| c.after_help(with(gc::EXAMPLES, &gc::EXITS)))
        .mut_subcommand("logs", |c| c.after_help(with(logs::EXAMPLES, &LOOK)))
        .mut_subcommand("journal", |c| c.after_help(with(journal::EXAMPLES, &LOOK)))
        .mut_subcommand("trace", |c| c.after_help(with(trace::EXAMPLES, &LOOK)))
        .mut_subcommand("metrics", |c| c.after_help(with(metrics::EXAMPLES, &LOOK)))
        .mut_subcommand("serve", |c| c.after_help(with(serve::EXAMPLES, &LOOK)))
        .mut_subcommand("notify", |c| c.after_help(with(notify::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("policy", |c| c.after_help(with(policy::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("config", |c| c.after_help(with(config::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("doctor", |c| c.after_help(with(doctor::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("install", |c| c.after_help(with(install::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("sbatch", |c| c.after_help(with(sbatch::EXAMPLES, &CONFIGURED)))
        .mut_subcommand("man", |c| c.after_help(with(man::EXAMPLES, &LOOK)))
        .mut_subcommand("completions", |c| c.after_help(with(completions::EXAMPLES, &LOOK)))
}

/// Does what the command line says. Returns the exit code.
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

/// Help and version go to standard output, mistakes are errors of usage.
fn told(e: &clap::Error, args: &[OsString]) -> Result<u8, CliError> {
    if e.kind() == ErrorKind::DisplayVersion && args.iter().any(|a| a == "--json") {
        version::print()?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    let mut text = e.render().to_string();
    if !e.use_stderr() {
        print(&text)?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    let odd = args.iter().enumerate().find(|(_, word)| word.to_str().is_none());
    if let (ErrorKind::InvalidUtf8, Some((n, word))) = (e.kind(), odd) {
        let word = word.as_encoded_bytes().escape_ascii();
        return Err(CliError::usage(format!(
            "argument {n}: expected text, found `{word}`, which is no UTF-8: it could not be written into the journal"
        ))
        .hint("a link gives a file another name: `ln -s`, and name the link"));
    }
    // What was typed is quoted in it, and makes no lines of its own: the same is said of arguments that hold none.
    let safe = args.iter().map(|a| terminal::line(&a.to_string_lossy()).into_owned());
    if let Err(e) = command().try_get_matches_from(safe)
        && e.use_stderr()
    {
        text = e.render().to_string();
    }
    let mut lines = text.lines().map(str::to_owned).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    Err(CliError::usage(message).with_lines(lines))
}

/// Statements of the program about itself, for its makers: `SUPERVISE_LOG=debug`.
pub(crate) fn trace() {
    let filter = EnvFilter::try_from_env("SUPERVISE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    // Only the first one of a process counts; tests call this more than once.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| printer::StderrWriter)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .try_init();
}

/// Prints a value as JSON.
fn print_json<T: serde::Serialize>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::internal(format!("no JSON: {e}")))?;
    written(printer::out_json(&text))
}

/// An empty word is most often a variable of the shell that is not set.
fn not_empty(word: &str, what: &str) -> Result<(), CliError> {
    match word {
        "" => Err(CliError::usage(format!("{what}: expected a name, found an empty word"))
            .hint("is a variable of the shell not set? `echo` the command to see it")),
        _ => Ok(()),
    }
}

/// Prints the answer of a command, in words.
fn print(text: &str) -> Result<(), CliError> {
    written(printer::out_text(text))
}

/// An answer that did not arrive is an error, whatever it would have said.
fn written(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        // Who asked has heard enough.
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
    fn every_help_tells_examples_and_exit_codes() {
        for sub in command().get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Exit codes:"), "{}", sub.get_name());
            assert!(help.contains("Examples:"), "{}", sub.get_name());
        }
    }
}
