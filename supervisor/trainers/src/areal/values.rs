//! Values as AReaL's own classes take them: OmegaConf converts what a file says into the type that a field has.

use supervise_config::interpolation::{Env, Resolver};
use supervise_config::{ConfigError, ConfigTree, ErrorKind, Node, Origin, Value, python_str};
use supervise_core::checkpoint::Finding;

/// Reads one configuration; what is wrong is gathered.
pub(super) struct Values<'a> {
    tree: &'a ConfigTree,
    env: Env<'a>,
    recovery: bool,
    pub(super) problems: Vec<ConfigError>,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Values<'a> {
    pub(super) fn new(tree: &'a ConfigTree, env: Env<'a>, recovery: bool) -> Self {
        Self {
            tree,
            env,
            recovery,
            problems: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Whether the supervisor is to resume the run.
    pub(super) fn resumes(&self) -> bool {
        self.recovery
    }

    /// Whether a part of the configuration is there and is no null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.tree.get(key).is_some_and(|n| !n.is_null())
    }

    /// Where a key's value stands.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.tree
            .get(key)
            .map_or_else(|| self.tree.root.origin.clone(), |n| n.origin.clone())
    }

    fn value(&mut self, key: &str) -> Option<Node> {
        match Resolver::new(self.tree, self.env).get(key) {
            Ok(node) => node,
            Err(error) => {
                if !self.problems.contains(&error) {
                    self.problems.push(error);
                }
                None
            }
        }
    }

    /// A value of a type; `null` only where the field may be empty.
    fn typed<T>(
        &mut self,
        key: &str,
        wanted: &str,
        optional: bool,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let node = self.value(key)?;
        if node.is_null() && optional {
            return None;
        }
        let found = convert(&node.value);
        if found.is_none() {
            let message = format!("{wanted} is needed, this is {}", node.value.type_name());
            let error = ConfigError::new(ErrorKind::WrongType, message)
                .from_origin(&self.origin(key))
                .with_key(key);
            // A value that is asked for twice is wrong once.
            if !self.problems.contains(&error) {
                self.problems.push(error);
            }
        }
        found
    }

    /// A text. Numbers and truth values become what Python prints: `on` is `True`, `010` is `8`.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.typed(key, "a text", false, as_text)
    }

    /// A text that may be missing.
    pub(super) fn some_text(&mut self, key: &str) -> Option<String> {
        self.typed(key, "a text", true, as_text)
    }

    /// A whole number.
    pub(super) fn number(&mut self, key: &str) -> Option<i64> {
        self.typed(key, "a whole number", false, as_number)
    }

    /// A whole number that may be missing.
    pub(super) fn some_number(&mut self, key: &str) -> Option<i64> {
        self.typed(key, "a whole number", true, as_number)
    }

    /// A number.
    pub(super) fn real(&mut self, key: &str) -> Option<f64> {
        self.typed(key, "a number", false, as_real)
    }

    /// A truth value; missing ones are false.
    pub(super) fn truth(&mut self, key: &str) -> bool {
        self.tree.get(key).is_some() && self.typed(key, "true or false", false, as_truth).unwrap_or(false)
    }

    /// Something that makes the configuration unusable.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        let error = ConfigError::new(ErrorKind::BadValue, message)
            .from_origin(&self.origin(key))
            .with_key(key)
            .with_hint(hint);
        self.problems.push(error);
    }

    /// Something that only makes a resume impossible.
    pub(super) fn no_recovery(&mut self, code: &'static str, key: &str, message: impl Into<String>, hint: &str) {
        if self.recovery {
            let hint = format!("{hint}, or run with --no-recovery to supervise without resuming");
            self.problem(key, message, &hint);
        } else {
            self.warn(code, key, message);
        }
    }

    /// Something doubtful.
    pub(super) fn warn(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = match key {
            "" => message.into(),
            key => format!("{key} ({}): {}", self.origin(key), message.into()),
        };
        self.findings.push(Finding::warning(code, detail));
    }

    /// Something worth knowing.
    pub(super) fn note(&mut self, code: &'static str, key: &str, message: impl Into<String>) {
        let detail = format!("{key} ({}): {}", self.origin(key), message.into());
        self.findings.push(Finding::note(code, detail));
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::List(_) | Value::Map(_) => None,
        other => Some(python_str(other)),
    }
}

/// Python's `int()` of a number or a text.
fn as_number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) => i64::try_from(*n).ok(),
        Value::Str(text) => {
            let text = text.trim();
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let well = digits
                .split('_')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
            text.replace('_', "").parse().ok().filter(|_| well)
        }
        _ => None,
    }
}

fn as_real(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn as_truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Int(number) => Some(*number != 0),
        Value::Str(text) => match text.to_lowercase().as_str() {
            "yes" | "y" | "on" | "true" | "1" => Some(true),
            "no" | "n" | "off" | "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
