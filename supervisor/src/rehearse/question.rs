//! Asks the interpreter that would run the trainer, while the user waits.

use super::helper::{RehearsalJob, done};
use super::{RehearsalOutput, RehearsalTrial, SAID, call, last_line};
use crate::render::{one_line, proposed, shown_command};
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_config::ConfigTree;
use supervise_trainers::rehearsal::{configuration, refused_key};

/// Prints the file of a module or a script; of modules, runs only the parent packages.
const SOURCE: &str = "\
import sys, importlib.util as util
name = sys.argv[1]
spec = None if name.endswith('.py') else util.find_spec(name)
if spec and spec.submodule_search_locations:
    spec = util.find_spec(name + '.__main__')
print(open(spec.origin if spec else name, errors='replace').read(1 << 20))
";

/// Why a command printed no configuration.
#[derive(Debug)]
pub(crate) struct ProbeFailure {
    pub(crate) text: String,
    /// The override that it rejects.
    pub(crate) refused: Option<String>,
    /// The command itself rejected it; otherwise it could not be asked.
    pub(crate) is_answer: bool,
}

/// A question to the command's interpreter that does not start training.
pub(crate) struct InterpreterProbe(RehearsalTrial);

impl InterpreterProbe {
    pub(crate) fn new(command: &[String], env: BTreeMap<String, String>, cwd: &Utf8Path) -> Self {
        Self(RehearsalTrial {
            argv: command.to_vec(),
            plain: Vec::new(),
            overrides: Vec::new(),
            env: env.into_iter().collect(),
            cwd: cwd.to_owned(),
        })
    }

    /// The output of the interpreter for these arguments after its own.
    fn ask(&self, words: &[String]) -> Result<RehearsalOutput, String> {
        done(&RehearsalJob::Print(self.0.clone(), words.to_vec())).and_then(|said| said)
    }

    /// The configuration that the command composes, given arguments that make it print one.
    ///
    /// # Errors
    /// It rejected them, or could not be started.
    pub(crate) fn compose(&self, words: &[String]) -> Result<ConfigTree, ProbeFailure> {
        let said = self.ask(words).map_err(|text| ProbeFailure {
            text,
            refused: None,
            is_answer: false,
        })?;
        let how = match said.status.is_success() {
            true => match configuration(&said.output) {
                Some(tree) => return Ok(tree),
                None => "what it printed is no configuration".to_owned(),
            },
            false => said.status.to_string(),
        };
        let last = [&said.errors, &said.output].map(|text| last_line(&self.0, text));
        // After a failure the reason is in the error output; otherwise the configuration may be in either.
        let most = if said.status.is_success() { 2 } else { 1 };
        let last: Vec<String> = last.into_iter().filter(|line| !line.is_empty()).take(most).collect();
        let text = match last.is_empty() {
            true => format!("{how}, and it says nothing"),
            false => format!("{how}: {}", last.join("; ")),
        };
        Err(ProbeFailure {
            text,
            refused: refused_key(&said.errors).map(|key| one_line(key, SAID)),
            is_answer: true,
        })
    }

    /// The source text of a module or a script.
    pub(crate) fn source_of(&self, module: &str) -> Option<String> {
        let said = self.ask(&["-c", SOURCE, module].map(str::to_owned)).ok()?;
        said.status.is_success().then_some(said.output)
    }

    /// The same as a command line for the user.
    pub(crate) fn by_hand(&self, words: &[String]) -> Option<String> {
        let (argv, _) = call(&self.0, &self.0.argv, words).ok()?;
        Some(format!(
            "cd {} && {}",
            shown_command(&[self.0.cwd.to_string()]),
            proposed(&argv)
        ))
    }
}
