//! Typed access to a composed configuration: resolves interpolations and collects every error.
//!
//! Reading continues after an error, so that the user sees all of them at once. Some errors matter only if the
//! supervisor is to resume the run; without recovery they become warnings.

use supervise_config::interpolation::{Env, InterpolationResolver};
use supervise_config::{ConfigError, ConfigNode, ConfigTree, ConfigValue, ErrorKind, ValueOrigin};
use supervise_core::checkpoint::Finding;

/// A type's name for errors, and the conversion to it.
pub(crate) type ScalarType<T> = (&'static str, fn(&ConfigValue) -> Option<T>);

/// Types as YAML has them.
const INT: ScalarType<i64> = ("an integer", |value| match value {
    ConfigValue::Int(number) => i64::try_from(*number).ok(),
    _ => None,
});
const TEXT: ScalarType<String> = ("a string", |value| match value {
    ConfigValue::Str(text) => Some(text.clone()),
    _ => None,
});
const FLAG: ScalarType<bool> = ("true or false", |value| match value {
    ConfigValue::Bool(is) => Some(*is),
    _ => None,
});
const TEXTS: ScalarType<Vec<String>> = ("a list of names", |value| match value {
    ConfigValue::List(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
    _ => None,
});

/// Reads one configuration. `B`: what the adapter knows of the base config.
pub(crate) struct ConfigReader<'a, B = ()> {
    tree: &'a ConfigTree,
    pub(crate) basis: B,
    env: Env<'a>,
    recovery: bool,
    pub(crate) problems: Vec<ConfigError>,
    pub(crate) findings: Vec<Finding>,
}

impl<'a, B> ConfigReader<'a, B> {
    /// `recovery`: the supervisor is to resume the run.
    pub(crate) fn new(tree: &'a ConfigTree, basis: B, env: Env<'a>, recovery: bool) -> Self {
        Self {
            tree,
            basis,
            env,
            recovery,
            problems: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(crate) fn resumes(&self) -> bool {
        self.recovery
    }

    pub(crate) fn origin(&self, key: &str) -> ValueOrigin {
        let node = self.tree.get(key).unwrap_or(&self.tree.root);
        node.origin.clone()
    }

    /// Returns true if the trainer itself composed the configuration.
    pub(crate) fn is_composed(&self) -> bool {
        matches!(self.tree.root.origin, ValueOrigin::Composed { .. })
    }

    /// Returns true if the key exists, even as null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.tree.get(key).is_some()
    }

    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.tree.get(key).is_some_and(|n| !n.is_null())
    }

    /// Returns true if the key was set, not only a default.
    pub(crate) fn is_said(&self, key: &str) -> bool {
        let node = self.tree.get(key);
        node.is_some_and(|n| !matches!(n.origin, ValueOrigin::Default { .. }))
    }

    /// The value of a key, resolved; `None` if missing or null.
    pub(crate) fn value(&mut self, key: &str) -> Option<ConfigNode> {
        self.evaluated(key).filter(|node| !node.is_null())
    }

    fn evaluated(&mut self, key: &str) -> Option<ConfigNode> {
        let found = InterpolationResolver::new(self.tree, self.env).get(key);
        found.unwrap_or_else(|error| {
            self.refuse(error);
            None
        })
    }

    /// A value of a type; `None` if missing or null.
    pub(crate) fn get<T>(&mut self, key: &str, kind: ScalarType<T>) -> Option<T> {
        let node = self.value(key)?;
        self.typed(key, &node, kind)
    }

    /// A name that was set; one that cannot be read is no problem.
    pub(crate) fn name(&self, key: &str) -> Option<String> {
        if !self.is_said(key) {
            return None;
        }
        let node = InterpolationResolver::new(self.tree, self.env).get(key).ok()??;
        (TEXT.1)(&node.value).filter(|name| !name.is_empty())
    }

    /// A value of a type that must not be null; `None` if missing.
    pub(crate) fn needed<T>(&mut self, key: &str, kind: ScalarType<T>) -> Option<T> {
        let node = self.evaluated(key)?;
        self.typed(key, &node, kind)
    }

    fn typed<T>(&mut self, key: &str, node: &ConfigNode, (wanted, convert): ScalarType<T>) -> Option<T> {
        let found = convert(&node.value);
        if found.is_none() {
            let message = match node.value {
                ConfigValue::Int(number) if wanted == INT.0 => format!("{number} is out of range"),
                _ => format!("expected {wanted}, found {}", node.value.type_name()),
            };
            let error = ConfigError::new(ErrorKind::WrongType, message);
            self.refuse(error.from_origin(&self.origin(key)).with_key(key));
        }
        found
    }

    pub(crate) fn int(&mut self, key: &str) -> Option<i64> {
        self.get(key, INT)
    }

    pub(crate) fn positive(&mut self, key: &str) -> Option<u32> {
        let number = self.int(key)?;
        let positive = u32::try_from(number).ok().filter(|n| *n > 0);
        if positive.is_none() {
            self.problem(
                key,
                format!("must be greater than 0 (found {number})"),
                "set it to 1 or more",
            );
        }
        positive
    }

    pub(crate) fn string(&mut self, key: &str) -> Option<String> {
        self.get(key, TEXT)
    }

    /// A boolean; missing and null are `false`.
    pub(crate) fn flag(&mut self, key: &str) -> bool {
        self.get(key, FLAG).unwrap_or(false)
    }

    pub(crate) fn strings(&mut self, key: &str) -> Option<Vec<String>> {
        self.get(key, TEXTS)
    }

    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Drops errors that only follow from another, and repeated ones.
    fn refuse(&mut self, error: ConfigError) {
        let is_known = |p: &ConfigError| *p == error || p.key.is_some() && p.key == error.key;
        if !self.problems.iter().any(is_known) {
            self.problems.push(error);
        }
    }

    /// Adds an error that makes the configuration unusable.
    pub(crate) fn problem(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        let error = ConfigError::new(ErrorKind::BadValue, message).from_origin(&self.origin(key));
        self.refuse(error.with_key(key).with_hint(hint));
    }

    /// Adds an error that only makes a resume impossible.
    pub(crate) fn no_recovery(&mut self, code: &'static str, key: &str, message: impl Into<String>, hint: &str) {
        if self.recovery {
            let hint = format!("{hint}, or run with --no-recovery to supervise without resuming");
            return self.problem(key, message, &hint);
        }
        let detail = match self.has(key) {
            true => self.told(key, message),
            false => format!("{key}: {}", message.into()),
        };
        self.findings.push(Finding::warning(code, detail));
    }

    pub(crate) fn warn(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = self.told(key, message);
        self.findings.push(Finding::warning(code, detail));
    }

    pub(crate) fn note(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = self.told(key, message);
        self.findings.push(Finding::note(code, detail));
    }

    fn told(&self, key: &str, message: impl Into<String>) -> String {
        match key {
            "" => message.into(),
            key => format!("{key} ({}): {}", self.origin(key), message.into()),
        }
    }
}
