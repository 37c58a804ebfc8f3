//! Finds the command that is run: the given command or, if that is a script, the trainer's call in it.
//!
//! Nothing is launched before it is known where the trainer saves and with which options. What was found out is only read; values
//! that look like secrets are dropped on arrival.

mod heard;
mod recording;
mod starts;

pub(super) use recording::{shims, submitter};
use starts::root_before;
pub(super) use starts::{longest_step, starts};

use super::command;
use super::request::Learning;
use super::sources::RunSources;
use crate::error::CliError;
use crate::path_access;
use crate::printer::confirm;
use crate::render::{proposed, shown_command};
use camino::Utf8Path;
use std::io::{IsTerminal, Read};
use supervise_config::settings::AUTO;
use supervise_core::spec::script::LearnedCall;
use supervise_trainers::registry::{self, adapters};

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// Programs that run the command after them.
const WRAPPERS: [&str; 7] = ["env", "nohup", "nice", "stdbuf", "timeout", "setsid", "time"];
/// Maximum number of bytes read from standard input.
const GIVEN: u64 = 4 << 20;

/// The sources, and the trainer's call.
#[derive(Debug)]
pub struct DiscoveredCommand {
    /// The sources, read for that call.
    pub sources: RunSources,
    /// The trainer's call, if the command is a script.
    pub learnt: Option<LearnedCall>,
}

impl DiscoveredCommand {
    /// The command that calls the trainer.
    #[must_use]
    pub fn call(&self) -> &[String] {
        self.learnt.as_ref().map_or(&self.sources.command, |l| &l.command)
    }

    /// The directory in which the trainer starts.
    #[must_use]
    pub fn call_cwd(&self) -> &Utf8Path {
        self.learnt.as_ref().map_or(&self.sources.cwd, |l| &l.cwd)
    }

    /// Fails for a script whose call is unknown: it cannot be launched.
    pub(super) fn known(self) -> Result<Self, CliError> {
        match self.learnt.is_none() && is_needed(&self.sources) {
            true => Err(unknown(&self.sources)),
            false => Ok(self),
        }
    }
}

impl RunSources {
    /// Finds the call; runs the script for that if the request allows it.
    pub(super) fn discover(self) -> Result<DiscoveredCommand, CliError> {
        let learnt = match is_needed(&self) {
            true => learnt(&self)?,
            false => None,
        };
        let sources = match &learnt {
            // The call may name another YAML.
            Some(call) => Self::read(self.request, Some(call))?,
            None => self,
        };
        Ok(DiscoveredCommand { sources, learnt })
    }
}

/// Returns true if the command is a script whose text shows nothing.
fn is_needed(c: &RunSources) -> bool {
    let arranged = c.composed.is_some() && (marks(&c.command, "{config}") || marks(&c.command, "{overrides}"));
    let named = c.settings.trainer.as_str();
    let told = c.settings.root.is_some();
    let may_be = named == AUTO
        || adapters().any(|a| a.framework() == named && a.is_learnt() && !(told && a.resumes_by_itself()));
    let meant = c.composed.as_ref().and_then(registry::meant);
    may_be
        && c.declared.is_none()
        && meant.is_none_or(|a| a.is_learnt())
        && !arranged
        && !adapters().any(|a| a.is_learnt() && a.is_called(&c.command))
        && is_script(&c.command, &c.cwd)
}

fn marks(command: &[String], mark: &str) -> bool {
    command.iter().any(|w| w.contains(mark))
}

fn is_script(command: &[String], cwd: &Utf8Path) -> bool {
    let name = |word: &String| Utf8Path::new(word).file_name().unwrap_or_default().to_owned();
    let is_shell = |word: &String| SHELLS.contains(&name(word).as_str()) || has_shell(&cwd.join(word));
    match command.first() {
        Some(first) if WRAPPERS.contains(&name(first).as_str()) => command.iter().skip(1).any(is_shell),
        Some(first) => is_shell(first),
        None => false,
    }
}

/// Returns true if the file begins with `#!` and a shell, or is text with a shell suffix, which `sh` would run.
fn has_shell(file: &Utf8Path) -> bool {
    let head = path_access::is_file(file).then(|| path_access::read(file, 256));
    let Some(Ok((text, _))) = head else { return false };
    let line = text.lines().next().unwrap_or_default();
    if !line.starts_with("#!") {
        return matches!(file.extension(), Some("sh" | "bash")) && !text.contains('\0');
    }
    let mut words = line.strip_prefix("#!").unwrap_or_default().split(['/', ' ', '\t']);
    words.any(|w| SHELLS.contains(&w))
}

/// What is known about the script or can be found out; `None`: nothing, and it may not be run.
fn learnt(c: &RunSources) -> Result<Option<LearnedCall>, CliError> {
    match c.request.learning {
        Learning::Known => Ok(starts(c).iter().find_map(starts::last_learnt)),
        Learning::Given => given().map(Some),
        Learning::Anew => match c.script_left_out() {
            Some(why) => Err(not_run(c, &why)),
            None => {
                command::check_file(&c.command, &c.cwd, &c.settings.env)?;
                agreed(c)?;
                recording::listen(c).map(Some)
            }
        },
        Learning::Start => match starts::living(c)? {
            Some(found) => Ok(Some(found)),
            None => {
                command::check_file(&c.command, &c.cwd, &c.settings.env)?;
                recording::listen(c).map(Some)
            }
        },
    }
}

/// Finding out a call executes everything before it. If `supervise` started the script before, its effects are known and checked.
fn agreed(c: &RunSources) -> Result<(), CliError> {
    if !c.request.asks_first || root_before(c).is_some() {
        return Ok(());
    }
    let script = shown_command(&c.command);
    let what = format!("`{script}` has to be run up to the call of its trainer: what it does before that call is done");
    if !std::io::stdin().is_terminal() {
        let again = c.request.again(&["plan", "--learn", "--yes"], &[]);
        return Err(
            CliError::usage(format!("not run: {what}; cannot ask for confirmation: not a terminal"))
                .hint(format!("to run it: {}", proposed(&again))),
        );
    }
    match confirm(&format!("{what}. Run it? [y/N] "))? {
        true => Ok(()),
        false => Err(CliError::usage(format!("not run: `{script}`"))),
    }
}

fn given() -> Result<LearnedCall, CliError> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(GIVEN).read_to_end(&mut text);
    let parsed = read
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    parsed.map_err(|e| CliError::internal(format!("no launch description received from the script: {e}")))
}

fn not_run(c: &RunSources, why: &str) -> CliError {
    let run = c.request.again(&["run"], &[]);
    CliError::config(format!(
        "`{}` was not run to learn what it starts: {why}",
        shown_command(&c.command)
    ))
    .hint(format!("to run it all the same: {}", proposed(&run)))
}

fn unknown(c: &RunSources) -> CliError {
    CliError::config(format!(
        "which trainer `{}` starts is not known yet: the script has to be run to learn it",
        shown_command(&c.command)
    ))
    .hint("supervise plan --learn --yes runs it up to the call of the trainer and ends it there; `supervise run` does the same first")
    .hint("where it starts no trainer that is known: --set supervisor.trainer=plain")
}
