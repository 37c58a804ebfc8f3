//! Hydra's override grammar: `key=value`, `+key=value`, `++key=value`, `~key`.
//!
//! [`parse`] reads one command-line element as Hydra 1.3 reads it and refuses what Hydra refuses; sweeps (`a=1,2`), which Hydra accepts
//! only for several runs, are refused with their place. [`apply`] changes a [`ConfigTree`] as Hydra changes the composed configuration.
//! [`encode_str`] and [`encode_list`] write any string so that it arrives unchanged, through Hydra's quoting and OmegaConf's
//! interpolation.

use std::sync::Arc;

use supervise_config::compose::{Choice, GroupOverride};
use supervise_config::interpolation::Resolver;
use supervise_config::literal::{self, Kind};
use supervise_config::{ConfigError, ConfigTree, ErrorKind, Key, Map, Node, Origin, Value, split_path};

/// The deepest nesting of lists and mappings in a value.
const MAX_NESTING: usize = 64;

/// What an override does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `key=value`: the key has to exist.
    Change,
    /// `+key=value`: the key must not have a value yet.
    Add,
    /// `++key=value`: add or change.
    Force,
    /// `~key`: remove.
    Delete,
}

/// One parsed override.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// What it does.
    pub action: Action,
    /// The dotted key, or the group.
    pub key: String,
    /// The package of a group: `group@package=option`.
    pub package: Option<String>,
    /// The value; `None` only for `~key`.
    pub value: Option<Value>,
    /// The element as written.
    pub text: String,
}

impl Override {
    /// The origin of the values it sets.
    pub fn origin(&self) -> Origin {
        Origin::Override {
            text: self.text.clone(),
        }
    }

    /// The choice it makes in the defaults list, where its key is a group and its value is not a mapping.
    pub fn as_group(&self, is_group: impl Fn(&str) -> bool) -> Result<Option<GroupOverride>, ConfigError> {
        if matches!(self.value, Some(Value::Map(_))) || !is_group(&self.key) {
            return Ok(None);
        }
        let name = match &self.package {
            Some(package) => format!("{}@{package}", self.key),
            None => self.key.clone(),
        };
        let choice = |value: &Value| match value {
            Value::Str(option) => Some(Choice::Name(option.clone())),
            Value::List(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .map(Choice::Options),
            _ => None,
        };
        let refused = || {
            Err(refuse(
                &self.text,
                0,
                "a group takes the name of an option or a list of names",
            ))
        };
        match (self.action, &self.value) {
            (Action::Force, _) => {
                Err(refuse(&self.text, 0, "a group cannot be added by force").with_hint("use a single +"))
            }
            (Action::Delete, None) => Ok(Some(GroupOverride::Delete {
                key: name,
                option: None,
            })),
            (Action::Delete, Some(Value::Str(option))) => Ok(Some(GroupOverride::Delete {
                key: name,
                option: Some(option.clone()),
            })),
            (Action::Add, Some(value)) => match choice(value) {
                Some(choice) => Ok(Some(GroupOverride::Append {
                    group: self.key.clone(),
                    package: self.package.clone(),
                    choice,
                })),
                None => refused(),
            },
            (Action::Change, Some(value)) => match choice(value) {
                Some(choice) => Ok(Some(GroupOverride::Choose { key: name, choice })),
                None => refused(),
            },
            _ => refused(),
        }
    }
}

/// Reads one override.
pub fn parse(text: &str) -> Result<Override, ConfigError> {
    let (action, start) = match text.as_bytes() {
        [b'+', b'+', ..] => (Action::Force, 2),
        [b'+', ..] => (Action::Add, 1),
        [b'~', ..] => (Action::Delete, 1),
        _ => (Action::Change, 0),
    };
    let equals = text.find('=');
    let (key, package) = parse_key(text, start, equals.unwrap_or(text.len()))?;
    let value = match equals {
        Some(at) => Some(parse_value(text, at + 1)?),
        None if action == Action::Delete => None,
        None => return Err(refuse(text, text.len(), "an override needs '='").with_hint("write key=value")),
    };
    Ok(Override {
        action,
        key,
        package,
        value,
        text: text.to_owned(),
    })
}

fn parse_key(text: &str, start: usize, end: usize) -> Result<(String, Option<String>), ConfigError> {
    let whole = &text[start..end];
    let (name, package) = match whole.split_once('@') {
        Some((name, package)) => (name, Some(package)),
        None => (whole, None),
    };
    let illegal = |part: &str, offset: usize| {
        let at = part
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_-$./".contains(c)))
            .unwrap_or(0);
        Err(refuse(text, start + offset + at, "this is not a key"))
    };
    if !(is_package(name) || name.contains('/') && name.split('/').all(is_id)) {
        return illegal(name, 0);
    }
    match package {
        Some(package) if !is_package(package) => illegal(package, name.len() + 1),
        package => Ok((name.to_owned(), package.map(str::to_owned))),
    }
}

/// Empty, one name, or names and list indices with dots between them.
fn is_package(text: &str) -> bool {
    let special = |part: &str| is_id(&part.replace('$', "_"));
    let index = |part: &str| matches!(literal::word(part), Some((Kind::Int, length)) if length == part.len() && !part.starts_with(['+', '-']));
    text.is_empty() || special(text) || text.contains('.') && text.split('.').all(|part| special(part) || index(part))
}

fn is_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn parse_value(text: &str, start: usize) -> Result<Value, ConfigError> {
    let mut reader = Reader {
        text,
        at: start,
        depth: 0,
    };
    reader.spaces();
    if reader.rest().is_empty() {
        return Ok(Value::Str(String::new()));
    }
    let value = reader.element()?;
    match reader.rest().trim_start_matches([' ', '\t']).chars().next() {
        None if reader.rest().is_empty() => Ok(value),
        Some(',') => Err(reader
            .refuse("a comma makes this a sweep over several runs")
            .with_hint("write a list as [a,b] and a string with a comma in quotes: key='a,b'")),
        _ => Err(reader.unexpected()),
    }
}

/// Reads a value from left to right.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn element(&mut self) -> Result<Value, ConfigError> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.refuse("the value is nested too deeply"));
        }
        let value = match self.rest().chars().next() {
            Some('[') => self.list(),
            Some('{') => self.mapping(),
            Some(quote @ ('\'' | '"')) => self.quoted(quote).map(Value::Str),
            _ => match self.function_name() {
                Some(name) => self.function(name),
                None => self.words(false),
            },
        };
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value, ConfigError> {
        let items = self.items(1, ']')?;
        Ok(Value::List(items.into_iter().map(|value| self.node(value)).collect()))
    }

    /// Elements with commas between them, after an opening of `open` bytes.
    fn items(&mut self, open: usize, close: char) -> Result<Vec<Value>, ConfigError> {
        self.at += open;
        let mut items = Vec::new();
        loop {
            self.spaces();
            if items.is_empty() && self.closed(close) {
                return Ok(items);
            }
            items.push(self.element()?);
            self.spaces();
            if self.closed(close) {
                return Ok(items);
            }
            self.expect(',')?;
        }
    }

    fn mapping(&mut self) -> Result<Value, ConfigError> {
        self.at += 1;
        let mut map = Map::new();
        self.spaces();
        while !self.closed('}') {
            if !map.is_empty() {
                self.expect(',')?;
                self.spaces();
            }
            let key = match self.words(true)? {
                Value::Str(text) => Key::Str(text),
                Value::Int(number) => Key::Int(number),
                Value::Float(number) => Key::Float(number),
                Value::Bool(value) => Key::Bool(value),
                _ => return Err(self.refuse("a key cannot be null")),
            };
            self.spaces();
            self.expect(':')?;
            self.spaces();
            let value = self.element()?;
            map.insert(key, self.node(value));
            self.spaces();
        }
        Ok(Value::Map(map))
    }

    fn quoted(&mut self, quote: char) -> Result<String, ConfigError> {
        let mut out = String::new();
        let mut rest = &self.rest()[1..];
        loop {
            let slashes = rest.len() - rest.trim_start_matches('\\').len();
            let after = &rest[slashes..];
            let Some(next) = after.chars().next() else {
                return Err(self.refuse("this quote is not closed"));
            };
            rest = &after[next.len_utf8()..];
            if next != quote {
                out.push_str(&"\\".repeat(slashes));
                out.push(next);
                continue;
            }
            // Backslashes count only in front of the quote: pairs stand for one, an odd one escapes the quote.
            out.push_str(&"\\".repeat(slashes / 2));
            if slashes % 2 == 0 {
                self.at = self.text.len() - rest.len();
                return Ok(out);
            }
            out.push(quote);
        }
    }

    /// A run of words, colons and interpolations; a key has neither of the latter.
    fn words(&mut self, key: bool) -> Result<Value, ConfigError> {
        let mut words: Vec<(Kind, &'a str)> = Vec::new();
        loop {
            let rest = self.rest();
            let ahead = rest.trim_start_matches([' ', '\t']);
            let length = if ahead.starts_with([',', ']', '}', ')']) && !words.is_empty() || ahead.is_empty() {
                break;
            } else if ahead.starts_with(':') {
                if key {
                    break;
                }
                rest.len() - ahead[1..].trim_start_matches([' ', '\t']).len()
            } else if let Some(length) = interpolation(rest).filter(|_| !key) {
                length
            } else if let Some((kind, length)) = literal::word(rest) {
                words.push((kind, &rest[..length]));
                self.at += length;
                continue;
            } else {
                return Err(self.unexpected());
            };
            words.push((Kind::Mark, &rest[..length]));
            self.at += length;
        }
        self.spaces();
        while words.last().is_some_and(|(kind, _)| *kind == Kind::Space) {
            words.pop();
        }
        if words.is_empty() {
            return Err(self.unexpected());
        }
        literal::value(&words).map_err(|message| self.refuse(&message))
    }

    /// The name in front of `(`.
    fn function_name(&self) -> Option<&'a str> {
        let rest = self.rest();
        let (kind, length) = literal::word(rest)?;
        let calls = rest[length..].trim_start_matches([' ', '\t']).starts_with('(');
        (kind == Kind::Id && calls).then(|| &rest[..length])
    }

    fn function(&mut self, name: &str) -> Result<Value, ConfigError> {
        let cast: fn(&Value) -> Option<Value> = match name {
            "int" => cast_int,
            "float" => cast_float,
            "str" => cast_str,
            "bool" => cast_bool,
            "choice" | "range" | "interval" | "glob" | "tag" | "sort" | "shuffle" => {
                return Err(self
                    .refuse(&format!("{name}() makes this a sweep over several runs"))
                    .with_hint("give one value"));
            }
            _ => {
                return Err(self
                    .refuse(&format!("there is no function '{name}'"))
                    .with_hint("put the text in quotes"));
            }
        };
        let begin = self.at;
        let open = self.rest().find('(').map_or(0, |at| at + 1);
        match self.items(open, ')')?.as_slice() {
            [value] => cast(value).ok_or_else(|| refuse(self.text, begin, &format!("{name}() cannot take this value"))),
            _ => Err(refuse(self.text, begin, &format!("{name}() takes one value"))),
        }
    }

    fn node(&self, value: Value) -> Node {
        Node::new(
            value,
            Origin::Override {
                text: self.text.to_owned(),
            },
        )
    }

    fn spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    fn closed(&mut self, close: char) -> bool {
        let closed = self.rest().starts_with(close);
        self.at += usize::from(closed);
        closed
    }

    fn expect(&mut self, wanted: char) -> Result<(), ConfigError> {
        if self.closed(wanted) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn refuse(&self, message: &str) -> ConfigError {
        refuse(self.text, self.at, message)
    }

    fn unexpected(&self) -> ConfigError {
        match self.rest().chars().next() {
            Some(c) => self
                .refuse(&format!("{c:?} cannot stand here"))
                .with_hint("put the whole value in single quotes that reach the trainer: \"key='value'\""),
            None => self.refuse("the value ends too early"),
        }
    }
}

fn interpolation(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("${")?;
    inside.find('}').filter(|end| *end > 0).map(|end| end + 3)
}

fn refuse(text: &str, at: usize, message: &str) -> ConfigError {
    let column = u32::try_from(text[..at].chars().count() + 1).unwrap_or(u32::MAX);
    let message = format!("the override `{text}` is wrong at character {column}: {message}");
    let mut error = ConfigError::new(ErrorKind::Override, message);
    error.column = Some(column);
    error
}

/// A cast of the parts of a list or mapping, or of a single value.
fn cast_with(value: &Value, cast: impl Fn(&Value) -> Option<Value> + Copy) -> Option<Value> {
    let inner = |node: &Node| cast_with(&node.value, cast).map(|value| Node::new(value, node.origin.clone()));
    match value {
        Value::List(items) => items.iter().map(inner).collect::<Option<_>>().map(Value::List),
        Value::Map(map) => map
            .iter()
            .map(|(key, node)| Some((key.clone(), inner(node)?)))
            .collect::<Option<_>>()
            .map(Value::Map),
        Value::Null => None,
        plain => cast(plain),
    }
}

fn cast_int(value: &Value) -> Option<Value> {
    cast_with(value, |value| match value {
        Value::Bool(value) => Some(Value::Int(i128::from(*value))),
        Value::Float(number) if number.is_finite() && number.abs() < 1e30 => Some(Value::Int(*number as i128)),
        Value::Str(text) => text.trim().parse().ok().map(Value::Int),
        Value::Int(number) => Some(Value::Int(*number)),
        _ => None,
    })
}

fn cast_float(value: &Value) -> Option<Value> {
    cast_with(value, |value| match value {
        Value::Bool(value) => Some(Value::Float(f64::from(u8::from(*value)))),
        Value::Int(number) => Some(Value::Float(*number as f64)),
        Value::Float(number) => Some(Value::Float(*number)),
        Value::Str(text) => text.trim().parse().ok().map(Value::Float),
        _ => None,
    })
}

fn cast_bool(value: &Value) -> Option<Value> {
    cast_with(value, |value| match value {
        Value::Bool(value) => Some(Value::Bool(*value)),
        Value::Int(number) => Some(Value::Bool(*number != 0)),
        Value::Float(number) => Some(Value::Bool(*number != 0.0)),
        Value::Str(text) if text.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
        Value::Str(text) if text.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
        _ => None,
    })
}

fn cast_str(value: &Value) -> Option<Value> {
    cast_with(value, |value| match value {
        Value::Bool(value) => Some(Value::Str(value.to_string())),
        other => Some(Value::Str(supervise_config::python_str(other))),
    })
}

/// Applies an override to a configuration. In struct mode, which is Hydra's, the plain form refuses keys that do not exist.
pub fn apply(tree: &mut ConfigTree, change: &Override, struct_mode: bool) -> Result<(), ConfigError> {
    if change.package.is_some() {
        return Err(refuse(
            &change.text,
            0,
            &format!("'{}' is not a group, so it has no package", change.key),
        ));
    }
    let value = change.value.clone().unwrap_or(Value::Null);
    match change.action {
        Action::Change => update(tree, change, value, struct_mode),
        Action::Force => update(tree, change, value, false),
        Action::Add => {
            let container = matches!(value, Value::Map(_) | Value::List(_));
            if !container && current(tree, &change.key).is_some() {
                return Err(
                    refuse(&change.text, 0, "the key has a value already").with_hint(format!(
                        "use {} to change it, or +{} to add or change",
                        &change.text[1..],
                        change.text
                    )),
                );
            }
            update(tree, change, value, false)
        }
        Action::Delete => {
            let missing = || refuse(&change.text, 0, "there is nothing to delete");
            let found = current(tree, &change.key).ok_or_else(missing)?;
            if change
                .value
                .as_ref()
                .is_some_and(|wanted| !matches!(wanted, Value::Null) && !equal(wanted, &found))
            {
                return Err(refuse(
                    &change.text,
                    0,
                    "the key has another value, so it is not deleted",
                ));
            }
            tree.delete(&change.key).map(|_| ()).map_err(|_| missing())
        }
    }
}

/// The value a key has now; an interpolation that cannot be followed here counts as one.
fn current(tree: &ConfigTree, key: &str) -> Option<Value> {
    match Resolver::new(tree, &|_| None).get(key) {
        Ok(node) => node
            .map(|node| node.value)
            .filter(|value| !matches!(value, Value::Null)),
        Err(error) if error.kind == ErrorKind::MandatoryMissing => None,
        Err(_) => tree.get(key).map(|node| node.value.clone()),
    }
}

fn update(tree: &mut ConfigTree, change: &Override, value: Value, strict: bool) -> Result<(), ConfigError> {
    let parts = split_path(&change.key);
    let unknown = || {
        refuse(
            &change.text,
            0,
            &format!("Could not override '{}': the configuration has no such key", change.key),
        )
        .with_hint(format!(
            "use +{0} to add it, or ++{0} to add or change it",
            change.text.trim_start_matches('+')
        ))
    };
    let node = Node::new(value, change.origin());
    for length in 1..=parts.len() {
        let path = parts[..length].join(".");
        let known = tree.get(&path).map(|node| &node.value);
        match known {
            None if strict => return Err(unknown()),
            None => break,
            // A plain value on the way gives place to an empty mapping, in which no key is known.
            Some(Value::Map(_) | Value::List(_)) => {}
            Some(_) if length < parts.len() && strict => return Err(unknown()),
            Some(_) => {}
        }
    }
    let existing = tree.get(&change.key);
    match (existing.map(|node| &node.value), &node.value) {
        (Some(Value::Map(below)), Value::Map(over)) => {
            if strict && !known_keys(below, over) {
                return Err(unknown());
            }
            let mut wrapped = node;
            for part in parts.iter().rev() {
                let mut map = Map::new();
                map.insert(Key::Str(part.clone()), wrapped);
                wrapped = Node::new(Value::Map(map), change.origin());
            }
            tree.merge(ConfigTree::new(wrapped))
        }
        (Some(Value::Map(_)), Value::List(_)) | (Some(Value::List(_)), Value::Map(_)) => Err(refuse(
            &change.text,
            0,
            "a list and a mapping cannot replace each other",
        )),
        _ => tree.add(&change.key, node).map_err(|error| {
            let file: Arc<str> = Arc::from("override");
            let mut error = error;
            error.file = Some(file);
            error
        }),
    }
}

/// Whether every key of the upper mapping exists below.
fn known_keys(below: &Map, over: &Map) -> bool {
    over.iter().all(
        |(key, node)| match (below.get(key).map(|node| &node.value), &node.value) {
            (None, _) => false,
            (Some(Value::Map(below)), Value::Map(over)) => known_keys(below, over),
            _ => true,
        },
    )
}

/// Equality as Python sees it: numbers and truth values by their number.
fn equal(left: &Value, right: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    match (left, right) {
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(&left.value, &right.value))
        }
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, node)| right.get(key).is_some_and(|other| equal(&node.value, &other.value)))
        }
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        },
    }
}

/// Writes a string as an override's value: whatever it holds, the trainer sees exactly it. Pass the result as one element of the
/// command, without a shell. (Only `???` keeps its meaning of "to be filled in"; OmegaConf has no way to escape it.)
pub fn encode_str(text: &str) -> String {
    let mut out = String::from("'");
    let mut slashes = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\\' {
            slashes += 1;
            continue;
        }
        let escaped = c == '\'' || c == '$' && rest.peek() == Some(&'{');
        let written = if escaped { 2 * slashes + 1 } else { slashes };
        out.push_str(&"\\".repeat(written));
        out.push(c);
        slashes = 0;
    }
    out.push_str(&"\\".repeat(2 * slashes));
    out.push('\'');
    out
}

/// Writes a list of strings as an override's value.
pub fn encode_list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| encode_str(item)).collect();
    format!("[{}]", items.join(","))
}
