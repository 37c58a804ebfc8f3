//! A question to the interpreter that would run the trainer, asked while a person waits.

use super::helper::{RehearsalJob, done};
use super::{RehearsalOutput, RehearsalTrial, SAID, call, last_line};
use crate::render::{one_line, proposed, shown_command};
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_config::ConfigTree;
use supervise_trainers::rehearsal::{configuration, refused_key};

/// Prints the file of a module or a script; of modules only those that it lies in are run.
const SOURCE: &str = "\
import sys, importlib.util as util
name = sys.argv[1]
spec = None if name.endswith('.py') else util.find_spec(name)
if spec and spec.submodule_search_locations:
    spec = util.find_spec(name + '.__main__')
print(open(spec.origin if spec else name, errors='replace').read(1 << 20))
";

/// Why a call printed no configuration.
#[derive(Debug)]
pub(crate) struct ProbeFailure {
    /// In words.
    pub(crate) text: String,
    /// The override that it does not take.
    pub(crate) refused: Option<String>,
    /// It is the call's own; otherwise nobody could be asked.
    pub(crate) is_answer: bool,
}

/// A call that is asked for something else than training, by the interpreter that would run it.
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

    /// What the interpreter says that is given these words behind its own.
    fn ask(&self, words: &[String]) -> Result<RehearsalOutput, String> {
        done(&RehearsalJob::Print(self.0.clone(), words.to_vec())).and_then(|said| said)
    }

    /// The configuration that the call composes, given words that make it print one.
    ///
    /// # Errors
    /// It complained, or could not be started.
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
        // One that failed says why among its errors; else either may hold it.
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

    /// The text of the file of a module or a script.
    pub(crate) fn source_of(&self, module: &str) -> Option<String> {
        let said = self.ask(&["-c", SOURCE, module].map(str::to_owned)).ok()?;
        said.status.is_success().then_some(said.output)
    }

    /// The same for a person's own hands.
    pub(crate) fn by_hand(&self, words: &[String]) -> Option<String> {
        let (argv, _) = call(&self.0, &self.0.argv, words).ok()?;
        Some(format!(
            "cd {} && {}",
            shown_command(&[self.0.cwd.to_string()]),
            proposed(&argv)
        ))
    }
}
