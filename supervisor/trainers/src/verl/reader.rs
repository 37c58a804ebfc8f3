//! Typed access to a composed configuration: values, interpolations followed, and everything wrong gathered.
//!
//! Reading goes on after a problem, so that a person sees all of them at once. Some problems matter only where the supervisor is to resume
//! the run; without recovery they become warnings.

use super::basis::Basis;
use supervise_config::interpolation::{Env, Resolver};
use supervise_config::{ConfigError, ConfigTree, ErrorKind, Node, Origin};
use supervise_core::checkpoint::Finding;

/// Reads one configuration.
pub(crate) struct Reader<'a> {
    tree: &'a ConfigTree,
    /// What it lies on.
    pub(crate) basis: &'a Basis,
    env: Env<'a>,
    recovery: bool,
    /// What is wrong.
    pub(crate) problems: Vec<ConfigError>,
    /// What is worth knowing.
    pub(crate) findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    /// A reader; `recovery`: the supervisor is to resume the run.
    pub(crate) fn new(tree: &'a ConfigTree, basis: &'a Basis, env: Env<'a>, recovery: bool) -> Self {
        Self {
            tree,
            basis,
            env,
            recovery,
            problems: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Whether the supervisor is to resume the run.
    pub(crate) fn resumes(&self) -> bool {
        self.recovery
    }

    /// The value of a key, evaluated; `None` where it is missing or null.
    pub(crate) fn value(&mut self, key: &str) -> Option<Node> {
        match Resolver::new(self.tree, self.env).get(key) {
            Ok(node) => node.filter(|n| !n.is_null()),
            Err(error) => {
                self.problems.push(error);
                None
            }
        }
    }

    /// Where a key's value stands.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.tree
            .get(key)
            .map_or_else(|| self.tree.root.origin.clone(), |n| n.origin.clone())
    }

    /// Whether the key is there, be it null: said, or a default.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.tree.get(key).is_some()
    }

    /// Whether somebody said it: it is no default.
    pub(crate) fn is_said(&self, key: &str) -> bool {
        self.tree
            .get(key)
            .is_some_and(|n| !matches!(n.origin, Origin::Default { .. }))
    }

    /// A whole number.
    pub(crate) fn int(&mut self, key: &str) -> Option<i64> {
        let node = self.value(key)?;
        let number = node.as_i64();
        if number.is_none() {
            self.wrong_type(key, &node, "a whole number");
        }
        number
    }

    /// A whole number above zero.
    pub(crate) fn positive(&mut self, key: &str) -> Option<u32> {
        let number = self.int(key)?;
        let positive = u32::try_from(number).ok().filter(|n| *n > 0);
        if positive.is_none() {
            self.problem(key, format!("{number} has no meaning here"), "give a number above 0");
        }
        positive
    }

    /// A string.
    pub(crate) fn string(&mut self, key: &str) -> Option<String> {
        let node = self.value(key)?;
        let text = node.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(key, &node, "a string");
        }
        text
    }

    /// A truth value; missing and null are `false`.
    pub(crate) fn flag(&mut self, key: &str) -> bool {
        let Some(node) = self.value(key) else {
            return false;
        };
        node.as_bool().unwrap_or_else(|| {
            self.wrong_type(key, &node, "true or false");
            false
        })
    }

    /// A list of strings.
    pub(crate) fn strings(&mut self, key: &str) -> Option<Vec<String>> {
        let node = self.value(key)?;
        let items = node.as_list().and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        if items.is_none() {
            self.wrong_type(key, &node, "a list of names");
        }
        items
    }

    fn wrong_type(&mut self, key: &str, node: &Node, wanted: &str) {
        let message = format!("{wanted} is needed, this is {}", node.value.type_name());
        self.problems.push(
            ConfigError::new(ErrorKind::WrongType, message)
                .from_origin(&self.origin(key))
                .with_key(key),
        );
    }

    /// Something was found already that makes the configuration unusable.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Something that makes the configuration unusable.
    pub(crate) fn problem(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        // What follows from a value that is wrong already is no mistake of its own.
        if self.problems.iter().any(|p| p.key.as_deref() == Some(key)) {
            return;
        }
        let error = ConfigError::new(ErrorKind::BadValue, message)
            .from_origin(&self.origin(key))
            .with_key(key)
            .with_hint(hint);
        self.problems.push(error);
    }

    /// Something that only makes a resume impossible.
    pub(crate) fn no_recovery(&mut self, code: &'static str, key: &str, message: impl Into<String>, hint: &str) {
        if self.recovery {
            self.problem(
                key,
                message,
                &format!("{hint}, or run with --no-recovery to supervise without resuming"),
            );
        } else {
            let detail = format!("{key}: {}", message.into());
            self.findings.push(Finding::warning(code, detail));
        }
    }

    /// Something doubtful.
    pub(crate) fn warn(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = format!("{key} ({}): {}", self.origin(key), message.into());
        self.findings.push(Finding::warning(code, detail));
    }

    /// Something worth knowing.
    pub(crate) fn note(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = format!("{key} ({}): {}", self.origin(key), message.into());
        self.findings.push(Finding::note(code, detail));
    }
}
