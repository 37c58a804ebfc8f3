//! What a launch needs of a script: the recorded call, and the shims.

use crate::error::CliError;
use crate::prepare::discovery::{DiscoveredCommand, shims};
use crate::render::{one_line, shown_command};
use std::collections::BTreeMap;
use supervise_core::spec::script::LearnedCall;
use supervise_host::script::Shims;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::script_call;

/// Variables by which an interpreter and its imports are found.
const KEPT: [&str; 8] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",
    "LD_LIBRARY_PATH",
];

/// The call as stored in a specification, and the shims.
pub(super) fn parts(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    notes: &mut Vec<String>,
) -> Result<(Option<LearnedCall>, Option<Shims>), CliError> {
    let Some(mut learnt) = d.learnt.clone() else {
        return Ok((None, None));
    };
    learnt.ahead = script_call::added(&learnt.command, &out.command);
    let leaves = out.tree.leaves();
    let values: Vec<String> = leaves
        .iter()
        .map(|(_, n)| supervise_config::python_str(&n.value))
        .collect();
    let texts = learnt.command.iter().chain(&values).map(String::as_str);
    learnt.env = mentioned(&learnt.env, texts);
    notes.push(format!(
        "the script starts: {}",
        one_line(&shown_command(&learnt.command), 400)
    ));
    notes.push(
        "what the script does before that call it does again at each launch; our overrides are put into the call itself"
            .to_owned(),
    );
    Ok((Some(learnt), Some(shims(&d.sources)?)))
}

/// The variables that a specification stores: those that the configuration mentions, and those that locate programs.
fn mentioned<'a>(env: &BTreeMap<String, String>, texts: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut names: Vec<&str> = KEPT.to_vec();
    names.extend(texts.flat_map(script_call::variables_in));
    env.iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
