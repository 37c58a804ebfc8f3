//! Overrides on the command line, as Hydra reads them: `key=value`, `+key=value`,
//! `++key=value`, `~key`. The part of the grammar that launchers use.

use serde_json::{Map, Number, Value};

/// Applies one override to a tree of settings. Errors are Hydra's words.
pub fn apply(tree: &mut Value, text: &str) -> Result<(), String> {
    if let Some(key) = text.strip_prefix('~') {
        let key = key.split('=').next().unwrap_or(key);
        return delete(tree, key).ok_or_else(|| unknown(key, "delete from"));
    }
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("LexerNoViableAltException: {text}\nSee https://hydra.cc for the grammar"))?;
    let (key, adds, may_exist) = match (key.strip_prefix("++"), key.strip_prefix('+')) {
        (Some(key), _) => (key, true, true),
        (None, Some(key)) => (key, true, false),
        (None, None) => (key, false, true),
    };
    let exists = get(tree, key).is_some();
    if exists && !may_exist {
        return Err(format!(
            "Could not append to config. An item is already at '{key}'.\nEither remove + prefix: '{key}={value}'\nOr add a second + to add or override '{key}': '++{key}={value}'"
        ));
    }
    if !exists && !adds {
        return Err(unknown(&format!("{key}={value}"), "override"));
    }
    set(tree, key, parse(value)?)
}

/// The value at a dotted key.
pub fn get<'a>(tree: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(tree, |node, part| node.get(part))
}

fn unknown(key: &str, verb: &str) -> String {
    format!("Could not {verb} '{key}'.\nTo append to your config use +{key}\nKey '{key}' is not in struct")
}

fn delete(tree: &mut Value, key: &str) -> Option<()> {
    let (parent, last) = match key.rsplit_once('.') {
        Some((parent, last)) => (parent.split('.').try_fold(tree, |node, part| node.get_mut(part))?, last),
        None => (tree, key),
    };
    parent.as_object_mut()?.shift_remove(last).map(drop)
}

fn set(tree: &mut Value, key: &str, value: Value) -> Result<(), String> {
    let mut node = tree;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let map = node
            .as_object_mut()
            .ok_or_else(|| format!("'{key}' leads into a value"))?;
        let next = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
        if parts.peek().is_none() {
            *next = value;
            return Ok(());
        }
        node = next;
    }
    Ok(())
}

/// Reads the value of an override.
fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader {
        text: text.trim_end(),
        at: 0,
        depth: 0,
    };
    let value = reader.value()?;
    match reader.rest() {
        "" => Ok(value),
        rest if rest.starts_with(',') => Err(format!("Ambiguous value for argument '{text}'")),
        rest => Err(format!("mismatched input '{rest}' in '{text}'")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn takes(&mut self, token: char) -> bool {
        self.skip_spaces();
        let taken = self.rest().starts_with(token);
        if taken {
            self.at += token.len_utf8();
        }
        taken
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_spaces();
        self.depth += 1;
        if self.depth > 16 {
            return Err("value is nested too deeply".to_owned());
        }
        let value = match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote).map(Value::String),
            Some('[') => self.list(),
            Some('{') => self.map(),
            _ => self.bare().map(scalar),
        };
        self.depth -= 1;
        value
    }

    /// Backslashes count only in a run directly before the quote.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut out = String::new();
        let mut slashes = 0;
        for (offset, c) in self.rest().char_indices().skip(1) {
            match c {
                '\\' => slashes += 1,
                c if c == quote => {
                    out.extend(std::iter::repeat_n('\\', slashes / 2));
                    if slashes % 2 == 0 {
                        self.at += offset + 1;
                        return Ok(out);
                    }
                    slashes = 0;
                    out.push(c);
                }
                c => {
                    out.extend(std::iter::repeat_n('\\', slashes));
                    slashes = 0;
                    out.push(c);
                }
            }
        }
        Err(format!("no closing quote in {}", self.text))
    }

    fn list(&mut self) -> Result<Value, String> {
        self.takes('[');
        let mut items = Vec::new();
        if self.takes(']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.takes(']') {
                return Ok(Value::Array(items));
            }
            if !self.takes(',') {
                return Err(format!("no closing bracket in {}", self.text));
            }
        }
    }

    fn map(&mut self) -> Result<Value, String> {
        self.takes('{');
        let mut items = Map::new();
        if self.takes('}') {
            return Ok(Value::Object(items));
        }
        loop {
            self.skip_spaces();
            let key = self.bare()?.to_owned();
            if !self.takes(':') {
                return Err(format!("no value for '{key}' in {}", self.text));
            }
            items.insert(key, self.value()?);
            if self.takes('}') {
                return Ok(Value::Object(items));
            }
            if !self.takes(',') {
                return Err(format!("no closing brace in {}", self.text));
            }
        }
    }

    fn bare(&mut self) -> Result<&'a str, String> {
        let rest = self.rest();
        let inside = self.depth > 1 || self.text.starts_with('{');
        let ends = |c: char| c == ',' || (inside && (c == ']' || c == '}' || c == ':'));
        let end = rest.find(ends).unwrap_or(rest.len());
        let text = rest[..end].trim_end();
        if let Some(c) = text
            .chars()
            .find(|c| "=()[]{}#~;!&<>^\"'".contains(*c) || !c.is_ascii())
        {
            return Err(format!("LexerNoViableAltException at '{c}' in {}", self.text));
        }
        self.at += end;
        Ok(text)
    }
}

fn scalar(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "null" | "" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(n) = text.parse::<i64>() {
        return n.into();
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
    let float = text.parse::<f64>().ok().filter(|_| number).and_then(Number::from_f64);
    float.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_as_hydra_reads_them() {
        for (text, value) in [
            ("10", json!(10)),
            ("1e-3", json!(0.001)),
            ("null", json!(null)),
            ("True", json!(true)),
            ("resume_path", json!("resume_path")),
            ("/a/b c/global_step_6", json!("/a/b c/global_step_6")),
            ("'/a, b/it\\'s'", json!("/a, b/it's")),
            ("'a\\b\\\\'", json!("a\\b\\")),
            ("\"10\"", json!("10")),
            ("[model,optimizer, 'extra']", json!(["model", "optimizer", "extra"])),
            ("[]", json!([])),
            ("\"['model']\"", json!("['model']")),
            (
                "[{step:4,kind:hang},{step: 5}]",
                json!([{"step":4,"kind":"hang"},{"step":5}]),
            ),
        ] {
            assert_eq!(parse(text).unwrap(), value, "{text}");
        }
        for text in ["model,optimizer", "[a", "'a", "a=b", "ü", "[a]b", "{a:1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_known_keys_are_set_without_a_plus() {
        let mut tree = json!({"trainer": {"save_freq": 1, "x": null}});
        apply(&mut tree, "trainer.save_freq=2").unwrap();
        apply(&mut tree, "+ray.address=local").unwrap();
        apply(&mut tree, "++trainer.x='y'").unwrap();
        assert!(
            apply(&mut tree, "trainer.y=1")
                .unwrap_err()
                .contains("Could not override")
        );
        assert!(
            apply(&mut tree, "+trainer.x=1")
                .unwrap_err()
                .contains("Could not append")
        );
        assert_eq!(
            tree,
            json!({"trainer": {"save_freq": 2, "x": "y"}, "ray": {"address": "local"}})
        );
        apply(&mut tree, "~trainer.x").unwrap();
        assert_eq!(get(&tree, "trainer.x"), None);
    }
}
