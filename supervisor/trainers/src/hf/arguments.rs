//! The settings of a run, by name.

use super::call;
use crate::read::ReadInput;
use std::collections::BTreeMap;
use supervise_config::ConfigValue;

/// From the YAML, overridden by the command, overridden by `--set`.
pub(super) struct TrainingArguments(pub(super) BTreeMap<String, String>);

impl TrainingArguments {
    pub(super) fn of(input: &ReadInput<'_>) -> Self {
        let mut all = BTreeMap::new();
        let leaves = input.composed.map(|c| c.tree.leaves()).unwrap_or_default();
        for (key, node) in leaves {
            let text = match &node.value {
                ConfigValue::Str(text) => text.clone(),
                ConfigValue::Bool(is) => is.to_string(),
                ConfigValue::Int(n) => n.to_string(),
                ConfigValue::Float(n) => n.to_string(),
                _ => continue,
            };
            all.insert(key, text);
        }
        all.extend(call::settings(input.command));
        let set = input.set.iter().filter_map(|text| text.split_once('='));
        all.extend(set.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Self(all)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.as_str();
        (!matches!(text, "" | "None" | "none" | "null")).then_some(text)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok().filter(|n| *n > 0)
    }

    pub(super) fn is(&self, key: &str) -> bool {
        self.text(key).is_some_and(call::is_on)
    }
}
