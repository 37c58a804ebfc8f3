//! `supervise completions`, and the candidates that the printed script asks this program for.

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::path_access;
use crate::prepare::listed_runs;
use crate::printer;
use crate::render::name::run_name;
use camino::Utf8Path;
use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use supervise_config::settings::keys;
use supervise_trainers::registry::adapters;

pub(super) const EXAMPLES: &str = "  supervise completions bash > ~/.local/share/bash-completion/completions/supervise
";

/// Set by the script when it asks for candidates.
const ASKS: &str = "_SUPERVISE_COMPLETE";
const NAME: &str = "supervise";
/// Makes zsh complete at the first attempt too, when it has just loaded the script as a function.
const FIRST_IN_ZSH: &str = "if [ \"$funcstack[1]\" = _supervise ]; then _clap_dynamic_completer_supervise \"$@\"; fi\n";
/// Maximum number of names read in a checkpoint root.
const ENTRIES: usize = 10_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string());
    let shell = shell.ok_or_else(|| CliError::internal(format!("no completions for {}", args.shell)))?;
    let mut text = Vec::new();
    super::written(shell.write_registration(ASKS, NAME, NAME, NAME, &mut text))?;
    if args.shell == Shell::Zsh {
        text.extend(FIRST_IN_ZSH.as_bytes());
    }
    super::written(printer::out_bytes(&text))?;
    Ok(SuperviseExitCode::Finished.code())
}

/// Prints candidates if a shell asks for them. Returns true if it did.
pub(super) fn answered(args: &[OsString]) -> Result<bool, CliError> {
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| completed(visible(&super::command())))
        .var(ASKS)
        .bin(NAME)
        .completer(NAME)
        .try_complete(args, here.as_deref())
        .map_err(|e| CliError::usage(format!("{ASKS}: {e}")))
}

/// The same commands without hidden flags: the engine would complete what is typed of one.
fn visible(c: &Command) -> Command {
    // The process ends with its answer.
    let name: &'static str = c.get_name().to_owned().leak();
    Command::new(name)
        .about(c.get_about().cloned().unwrap_or_default())
        .args(c.get_arguments().filter(|a| !a.is_hide_set()))
        .subcommands(c.get_subcommands().filter(|s| !s.is_hide_set()).map(visible))
}

/// Adds what completes the values of arguments.
fn completed(c: Command) -> Command {
    c.mut_args(|arg| {
        let value = arg
            .get_value_names()
            .and_then(|names| names.first())
            .map(ToString::to_string);
        match (arg.get_long(), value.as_deref()) {
            (Some("set"), _) => arg.add(ArgValueCompleter::new(set)),
            (Some("from" | "to" | "step"), Some("N")) => arg.add(ArgValueCompleter::new(steps)),
            (None, Some("RUN" | "RUN|DIR")) => arg.add(ArgValueCompleter::new(runs)),
            _ => arg,
        }
    })
    .mut_subcommands(completed)
}

/// Candidates that begin with what is typed.
fn beginning(current: &OsStr, words: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let words = words.into_iter().filter(|word| word.starts_with(&*typed));
    words.map(CompletionCandidate::new).collect()
}

/// The listed runs, and files.
fn runs(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut out = beginning(current, []);
    for run in listed_runs() {
        let place = run.config.as_ref().or(run.root.as_ref()).unwrap_or(&run.run_dir);
        let called = run_name(run.name.as_deref(), run.root.as_deref(), &run.command);
        let found = beginning(current, [called, run.run.to_string()]);
        out.extend(found.into_iter().map(|c| c.help(Some(place.to_string().into()))));
    }
    out.extend(PathCompleter::any().complete(current));
    out
}

/// `supervisor.KEY=`
fn set(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, keys().map(|key| format!("supervisor.{key}=")))
}

/// The steps of the run that the command line names, or of the only one.
fn steps(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed: Vec<String> = std::env::args().collect();
    let listed = listed_runs();
    let same = |word: &str, path: &Utf8Path| {
        path_access::canonical(Utf8Path::new(word))
            .is_ok_and(|word| path_access::canonical(path).is_ok_and(|p| p == word))
    };
    let named = listed.iter().find(|run| {
        let mut paths = [run.config.as_ref(), run.root.as_ref(), Some(&run.run_dir)]
            .into_iter()
            .flatten();
        let is_it = |path: &Utf8Path| typed.iter().any(|word| same(word, path));
        typed.contains(&run.run.0) || paths.any(|path| is_it(path))
    });
    let Some(root) = named
        .or(listed.first().filter(|_| listed.len() == 1))
        .and_then(|run| run.root.as_ref())
    else {
        return Vec::new();
    };
    let names = path_access::names(root, "", ENTRIES).unwrap_or_default();
    let number = |name: &String| {
        let mut prefixes = adapters().filter_map(|a| a.step_prefix());
        prefixes.find_map(|prefix| name.strip_prefix(prefix)?.parse::<u64>().ok())
    };
    let steps: BTreeSet<u64> = names.iter().filter_map(number).collect();
    beginning(current, steps.into_iter().rev().map(|step| step.to_string()))
}
