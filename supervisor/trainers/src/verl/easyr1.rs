//! `EasyR1`: a fork under verl's package name, with its own entry point, keys, tracker and state files. Treated as
//! verl, it would get overrides that it does not know, and its steps would be judged by the wrong rules.

use crate::command;
use crate::read::ReadInput;
use crate::shell;
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ErrorKind};

const MODULE: &str = "verl.trainer.main";
/// Keys that no release of verl has.
const KEYS: [&str; 5] = [
    "worker.actor",
    "trainer.save_limit",
    "trainer.save_checkpoint_path",
    "trainer.load_checkpoint_path",
    "trainer.find_last_checkpoint",
];

pub(super) fn is_called(command: &[String]) -> bool {
    let found = command::entry(command).and_then(|(_, at)| command.get(at.checked_sub(1)?));
    found.is_some_and(|word| word == MODULE || word.ends_with("verl/trainer/main.py"))
}

pub(super) fn is_meant(composed: &ComposedConfig) -> bool {
    key(composed).is_some()
}

fn key(composed: &ComposedConfig) -> Option<&'static str> {
    let is_verls = composed.tree.get("actor_rollout_ref").is_some();
    KEYS.into_iter()
        .find(|key| !is_verls && composed.tree.get(key).is_some())
}

/// Refuses it before anything is launched, and says how it can be run.
pub(super) fn refused(input: &ReadInput<'_>) -> Option<ConfigError> {
    let from_file = input.composed.filter(|_| command::entry(input.command).is_none());
    let key = from_file.and_then(key);
    let what = match key {
        _ if is_called(input.command) => format!("`{MODULE}` is the entry point"),
        Some(key) => format!("{key} is a key"),
        None => return None,
    };
    let message = format!(
        "{what} of EasyR1, a fork of verl with its own keys and checkpoints: it is not supervised as verl, and no step of its is proven"
    );
    let mut error = ConfigError::new(ErrorKind::BadValue, message);
    if let Some(node) = from_file.zip(key).and_then(|(c, key)| c.tree.get(key)) {
        error = error.from_origin(&node.origin);
    }
    let call = match (input.command, input.config_file) {
        ([], Some(file)) => format!("python3 -m {MODULE} config={file}"),
        (words, _) => words
            .iter()
            .map(|word| shell::quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    };
    Some(error.with_hint(format!(
        "to have it restarted and resumed by its own trainer.find_last_checkpoint, with nothing proven: \
         supervise run --set supervisor.trainer=plain -- {call}"
    )))
}
