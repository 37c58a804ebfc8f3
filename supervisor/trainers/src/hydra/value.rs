//! The value of an override: words, quoted strings, lists, mappings, casts.

use supervise_config::literal::{self, TokenKind};
use supervise_config::{ConfigError, ConfigMap, ConfigNode, ConfigValue, MapKey, ValueOrigin};

use super::refuse;

const MAX_NESTING: usize = 64;

/// Parses the value from `start` to the end of the text.
pub(super) fn parse_value(text: &str, start: usize) -> Result<ConfigValue, ConfigError> {
    let mut reader = ValueParser {
        text,
        at: start,
        depth: 0,
    };
    reader.spaces();
    if reader.rest().is_empty() {
        return Ok(ConfigValue::Str(String::new()));
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

struct ValueParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> ValueParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn element(&mut self) -> Result<ConfigValue, ConfigError> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.refuse("the value is nested too deeply"));
        }
        let value = match self.rest().chars().next() {
            Some('[') => self.list(),
            Some('{') => self.mapping(),
            Some(quote @ ('\'' | '"')) => self.quoted(quote).map(ConfigValue::Str),
            _ => match self.function_name() {
                Some(name) => self.function(name),
                None => self.words(false),
            },
        };
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<ConfigValue, ConfigError> {
        let items = self.items(1, ']')?;
        Ok(ConfigValue::List(
            items.into_iter().map(|value| self.node(value)).collect(),
        ))
    }

    /// Elements separated by commas, after an opening of `open` bytes.
    fn items(&mut self, open: usize, close: char) -> Result<Vec<ConfigValue>, ConfigError> {
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

    fn mapping(&mut self) -> Result<ConfigValue, ConfigError> {
        self.at += 1;
        let mut map = ConfigMap::new();
        self.spaces();
        while !self.closed('}') {
            if !map.is_empty() {
                self.expect(',')?;
                self.spaces();
            }
            let key = match self.words(true)? {
                ConfigValue::Str(text) => MapKey::Str(text),
                ConfigValue::Int(number) => MapKey::Int(number),
                ConfigValue::Float(number) => MapKey::Float(number),
                ConfigValue::Bool(value) => MapKey::Bool(value),
                _ => return Err(self.refuse("a key cannot be null")),
            };
            self.spaces();
            self.expect(':')?;
            self.spaces();
            let value = self.element()?;
            map.insert(key, self.node(value));
            self.spaces();
        }
        Ok(ConfigValue::Map(map))
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
            // Backslashes count only before a quote: each pair is one backslash, an odd one escapes the quote.
            out.push_str(&"\\".repeat(slashes / 2));
            if slashes.is_multiple_of(2) {
                self.at = self.text.len() - rest.len();
                return Ok(out);
            }
            out.push(quote);
        }
    }

    /// A run of words, colons and interpolations; a key has neither of the latter two.
    fn words(&mut self, key: bool) -> Result<ConfigValue, ConfigError> {
        let mut words: Vec<(TokenKind, &'a str)> = Vec::new();
        loop {
            let rest = self.rest();
            let ahead = rest.trim_start_matches([' ', '\t']);
            let length = if ahead.starts_with([',', ']', '}', ')']) && !words.is_empty() || ahead.is_empty() {
                break;
            } else if let Some(after) = ahead.strip_prefix(':') {
                if key {
                    break;
                }
                rest.len() - after.trim_start_matches([' ', '\t']).len()
            } else if let Some(length) = interpolation(rest).filter(|_| !key) {
                length
            } else if let Some((kind, length)) = literal::word(rest) {
                words.push((kind, &rest[..length]));
                self.at += length;
                continue;
            } else {
                return Err(self.unexpected());
            };
            words.push((TokenKind::Mark, &rest[..length]));
            self.at += length;
        }
        self.spaces();
        while words.last().is_some_and(|(kind, _)| *kind == TokenKind::Space) {
            words.pop();
        }
        if words.is_empty() {
            return Err(self.unexpected());
        }
        literal::value(&words).map_err(|message| self.refuse(&message))
    }

    fn function_name(&self) -> Option<&'a str> {
        let rest = self.rest();
        let (kind, length) = literal::word(rest)?;
        let calls = rest[length..].trim_start_matches([' ', '\t']).starts_with('(');
        (kind == TokenKind::Id && calls).then(|| &rest[..length])
    }

    fn function(&mut self, name: &str) -> Result<ConfigValue, ConfigError> {
        let cast: fn(&ConfigValue) -> Option<ConfigValue> = match name {
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

    fn node(&self, value: ConfigValue) -> ConfigNode {
        ConfigNode::new(
            value,
            ValueOrigin::Override {
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
                .refuse(&format!("{c:?} is not allowed here"))
                .with_hint("put the whole value in single quotes that reach the trainer: \"key='value'\""),
            None => self.refuse("the value ends too early"),
        }
    }
}

fn interpolation(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("${")?;
    inside.find('}').filter(|end| *end > 0).map(|end| end + 3)
}

/// Casts a single value or each part of a list or mapping.
fn cast_with(value: &ConfigValue, cast: impl Fn(&ConfigValue) -> Option<ConfigValue> + Copy) -> Option<ConfigValue> {
    let inner =
        |node: &ConfigNode| cast_with(&node.value, cast).map(|value| ConfigNode::new(value, node.origin.clone()));
    match value {
        ConfigValue::List(items) => items.iter().map(inner).collect::<Option<_>>().map(ConfigValue::List),
        ConfigValue::Map(map) => map
            .iter()
            .map(|(key, node)| Some((key.clone(), inner(node)?)))
            .collect::<Option<_>>()
            .map(ConfigValue::Map),
        ConfigValue::Null => None,
        plain => cast(plain),
    }
}

fn cast_int(value: &ConfigValue) -> Option<ConfigValue> {
    cast_with(value, |value| match value {
        ConfigValue::Bool(value) => Some(ConfigValue::Int(i128::from(*value))),
        ConfigValue::Float(number) if number.is_finite() && number.abs() < 1e30 => {
            Some(ConfigValue::Int(*number as i128))
        }
        ConfigValue::Str(text) => text.trim().parse().ok().map(ConfigValue::Int),
        ConfigValue::Int(number) => Some(ConfigValue::Int(*number)),
        _ => None,
    })
}

fn cast_float(value: &ConfigValue) -> Option<ConfigValue> {
    cast_with(value, |value| match value {
        ConfigValue::Bool(value) => Some(ConfigValue::Float(f64::from(u8::from(*value)))),
        ConfigValue::Int(number) => Some(ConfigValue::Float(*number as f64)),
        ConfigValue::Float(number) => Some(ConfigValue::Float(*number)),
        ConfigValue::Str(text) => text.trim().parse().ok().map(ConfigValue::Float),
        _ => None,
    })
}

fn cast_bool(value: &ConfigValue) -> Option<ConfigValue> {
    cast_with(value, |value| match value {
        ConfigValue::Bool(value) => Some(ConfigValue::Bool(*value)),
        ConfigValue::Int(number) => Some(ConfigValue::Bool(*number != 0)),
        ConfigValue::Float(number) => Some(ConfigValue::Bool(*number != 0.0)),
        ConfigValue::Str(text) if text.eq_ignore_ascii_case("true") => Some(ConfigValue::Bool(true)),
        ConfigValue::Str(text) if text.eq_ignore_ascii_case("false") => Some(ConfigValue::Bool(false)),
        _ => None,
    })
}

fn cast_str(value: &ConfigValue) -> Option<ConfigValue> {
    cast_with(value, |value| match value {
        ConfigValue::Bool(value) => Some(ConfigValue::Str(value.to_string())),
        other => Some(ConfigValue::Str(supervise_config::python_str(other))),
    })
}
