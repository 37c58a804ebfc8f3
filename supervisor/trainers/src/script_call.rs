//! The call by which a script starts a trainer: recognizing it, comparing it with the learned one, and adding our
//! overrides.

use crate::adapter::TrainerAdapter;
use crate::command;
use crate::registry::adapters;
use std::collections::BTreeMap;
use supervise_core::spec::script::CallOrder;

/// Returns true if these words start a known trainer.
#[must_use]
pub fn is_call(words: &[String]) -> bool {
    adapters().any(|a| a.starts(words))
}

/// The frameworks' own programs, by whose names scripts start them.
pub fn programs() -> impl Iterator<Item = &'static str> {
    adapters().flat_map(TrainerAdapter::programs).copied()
}

/// Returns true if these words may be the trainer process itself: an interpreter that calls an entry point.
#[must_use]
pub fn is_trainer(words: &[String]) -> bool {
    let program = words.first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or(program);
    (name.starts_with("python") || name.starts_with("pypy")) && is_call(words)
}

/// Returns true if a running trainer got all our overrides.
#[must_use]
pub fn is_marked(words: &[String], ours: &[String]) -> bool {
    words.ends_with(ours) || ours.iter().all(|o| words.contains(o))
}

/// The words that the user's file added right after the entry point of a call.
#[must_use]
pub fn added(call: &[String], with_file: &[String]) -> Vec<String> {
    let at = command::entry(call).map_or(call.len(), |(_, at)| at);
    let count = with_file.len().saturating_sub(call.len());
    with_file.iter().skip(at).take(count).cloned().collect()
}

/// A call with our overrides in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewrittenCall {
    pub words: Vec<String>,
    pub notes: Vec<String>,
}

/// Appends our overrides to a call exactly once, even if the script already passed them on.
///
/// # Errors
/// Why this is not the call that was learned.
pub fn fill(words: &[String], order: &CallOrder, restarts_by_environment: bool) -> Result<RewrittenCall, String> {
    let trainer = adapters().find(|a| a.starts(words));
    let trainer = trainer.ok_or_else(|| "the call starts no trainer that is known".to_owned())?;
    trainer.fill(words, order, restarts_by_environment)
}

/// The settings in a call that identify the training, as the script wrote them.
#[must_use]
pub fn root(words: &[String]) -> String {
    let trainer = adapters().find(|a| a.starts(words));
    trainer.map_or_else(String::new, |a| a.call_root(words))
}

pub(crate) fn difference(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    let said = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), |v| format!("`{v}`"));
    before
        .keys()
        .chain(now.keys())
        .find(|key| before.get(*key) != now.get(*key))
        .map(|key| format!("{key} was {}, it is {} now", said(before.get(key)), said(now.get(key))))
        .unwrap_or_default()
}

/// Names of the variables that a configuration reads: `${oc.env:NAME}`.
#[must_use]
pub fn variables_in(text: &str) -> Vec<&str> {
    text.split("oc.env:")
        .skip(1)
        .map(|rest| {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            &rest[..end.unwrap_or(rest.len())]
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn calls_of_every_trainer_are_seen() {
        for (text, is) in [
            ("python3 -m verl.trainer.main_ppo a=1", true),
            ("python3 -m verl.trainer.main_generation", false),
            ("python3 -m areal.launcher.local x.py --config x.yaml", true),
            ("trl sft --config x.yaml", true),
            (
                "accelerate launch t.py --output_dir o --save_steps 5 --logging_steps 1",
                true,
            ),
            ("python3 prepare.py --output_dir data", false),
            ("ray start --head", false),
        ] {
            assert_eq!(is_call(&words(text)), is, "{text}");
        }
        assert!(is_trainer(&words("/v/bin/python3.11 -m verl.trainer.main_ppo")));
        assert!(is_trainer(&words("/v/bin/python3.11 /v/bin/trl sft --config x.yaml")));
        assert!(!is_trainer(&words("srun python3 -m verl.trainer.main_ppo")));
        assert!(is_marked(&words("python3 -m m a=1 b=2"), &words("a=1 b=2")));
        assert!(!is_marked(&words("python3 -m m a=1"), &words("a=1 b=2")));
    }

    #[test]
    fn a_call_says_which_training_it_is() {
        let of = |text: &str| root(&words(text));
        let verl = "python3 -m verl.trainer.main_ppo trainer.default_local_dir=";
        assert_eq!(
            of(&format!("{verl}a x=1")),
            of(&format!("{verl}b x=2 trainer.default_local_dir=a"))
        );
        assert_ne!(of(&format!("{verl}a")), of(&format!("{verl}b")));
        let trl = "trl sft --save_steps 2 --output_dir";
        assert_eq!(of(&format!("{trl} a")), of(&format!("{trl}=a --x 2")));
        assert_ne!(of(&format!("{trl} a")), of(&format!("{trl} b")));
    }

    #[test]
    fn variables_are_found_in_a_text() {
        assert_eq!(
            variables_in("a=${oc.env:HOME}/x b=${oc.env:RUN,none} oc.env:"),
            ["HOME", "RUN"]
        );
        assert_eq!(variables_in("nothing"), [""; 0]);
    }
}
