//! Settings that are regular expressions over lines of output.

use figment::value::{Dict, Value as Fig};

use super::schema::ChoiceWord;
use super::wrong::{SettingError, wrong, wrong_type};
use crate::tree::{ConfigNode, ConfigValue};

/// Memory limit of a compiled pattern, in bytes.
const PATTERN: usize = 1 << 20;

/// The same for each pattern of a list.
const OF_MANY: usize = 1 << 18;

const MANY: usize = 32;

/// Checks a pattern with one group, the step.
pub(super) fn pattern(value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write a regular expression with one group around the step, in single quotes: 'iter (\\d+)'";
    let ConfigValue::Str(text) = value else {
        return Err(wrong_type(value, "a regular expression in quotes", hint));
    };
    match compile(text, PATTERN) {
        Ok(found) if found.captures_len() == 2 => Ok(Fig::from(text.clone())),
        Ok(found) => {
            let groups = found.captures_len() - 1;
            Err(wrong(
                format!("it has {groups} groups, it has to have one: the step"),
                "mark groups that only hold together as (?:…)",
            ))
        }
        Err(why) => Err(wrong(format!("it is no regular expression: {why}"), hint)),
    }
}

/// Checks a list of rules: `{pattern, class, …}`.
pub(super) fn failure_lines(words: &[ChoiceWord], value: &ConfigValue) -> Result<Fig, SettingError> {
    let hint = "write lines such as `- {pattern: 'no licence', class: user.licence, action: wait}` below `rules:`";
    let items = match value {
        ConfigValue::List(items) => items,
        ConfigValue::Null => return Ok(Fig::from(Vec::<Fig>::new())),
        other => return Err(wrong_type(other, "a list of patterns with their classes", hint)),
    };
    if items.len() > MANY {
        let message = format!("it has {} entries, {MANY} are allowed", items.len());
        return Err(wrong(message, "join patterns of one class with `|`"));
    }
    let all = items.iter().enumerate();
    let read = all.map(|(at, node)| failure_line(at + 1, node, words, hint));
    read.collect::<Result<Vec<Fig>, SettingError>>().map(Fig::from)
}

fn failure_line(number: usize, node: &ConfigNode, words: &[ChoiceWord], hint: &str) -> Result<Fig, SettingError> {
    let ConfigValue::Map(map) = &node.value else {
        return Err(wrong(format!("entry {number} is no mapping"), hint));
    };
    let mut dict = Dict::new();
    for (key, node) in map.iter() {
        let key = key.to_string();
        let read = match key.as_str() {
            "pattern" => {
                let text = text_of(&key, number, node)?;
                one_of_many(text, number, hint)?;
                Fig::from(text.clone())
            }
            "class" | "advice" => Fig::from(text_of(&key, number, node)?.clone()),
            "action" => {
                let text = text_of(&key, number, node)?;
                if !words.iter().any(|(word, _)| word == text) {
                    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                    let message = format!("the action of entry {number} is none that there is");
                    return Err(wrong(message, format!("write one of: {}", known.join(", "))));
                }
                Fig::from(text.clone())
            }
            "costs_retry" | "blames_checkpoint" => match &node.value {
                ConfigValue::Bool(is) => Fig::from(*is),
                other => {
                    let message = format!("{key} of entry {number} is {}", other.type_name());
                    return Err(wrong(message, "write true or false"));
                }
            },
            "examples" | "lookalikes" => Fig::from(texts_of(&key, number, node)?),
            other => return Err(wrong(format!("entry {number} has an unknown key `{other}`"), hint)),
        };
        dict.insert(key, read);
    }
    for needed in ["pattern", "class"] {
        if !dict.contains_key(needed) {
            return Err(wrong(format!("entry {number} has no {needed}"), hint));
        }
    }
    Ok(Fig::from(dict))
}

fn text_of<'n>(key: &str, number: usize, node: &'n ConfigNode) -> Result<&'n String, SettingError> {
    match &node.value {
        ConfigValue::Str(text) => Ok(text),
        other => {
            let message = format!("{key} of entry {number} is {}", other.type_name());
            Err(wrong(message, "put it in quotes"))
        }
    }
}

fn texts_of(key: &str, number: usize, node: &ConfigNode) -> Result<Vec<String>, SettingError> {
    let hint = "write a list of lines in quotes: ['a line', 'another one']";
    let ConfigValue::List(items) = &node.value else {
        let message = format!("{key} of entry {number} is {}", node.value.type_name());
        return Err(wrong(message, hint));
    };
    if items.len() > MANY {
        let message = format!("{key} of entry {number} has {} lines, {MANY} are allowed", items.len());
        return Err(wrong(message, "keep those that say the most"));
    }
    let text = |item: &ConfigNode| match &item.value {
        ConfigValue::Str(text) => Ok(text.clone()),
        other => {
            let message = format!("{key} of entry {number} has {}", other.type_name());
            Err(wrong(message, hint))
        }
    };
    items.iter().map(text).collect()
}

fn one_of_many(text: &str, number: usize, hint: &str) -> Result<(), SettingError> {
    if text.is_empty() {
        return Err(wrong(format!("the pattern of entry {number} is empty"), hint));
    }
    match compile(text, OF_MANY) {
        Ok(found) if found.is_match(b"") => {
            let message = format!("the pattern of entry {number} matches an empty line");
            Err(wrong(message, "write what only the failure prints"))
        }
        Ok(_) => Ok(()),
        Err(why) => {
            let message = format!("the pattern of entry {number} is no regular expression: {why}");
            let hint = "write it in single quotes; a \\ before a character takes it literally";
            Err(wrong(message, hint))
        }
    }
}

/// Compiles a pattern in bounded memory; errors say where.
fn compile(text: &str, limit: usize) -> Result<regex::bytes::Regex, String> {
    let found = regex::bytes::RegexBuilder::new(text).size_limit(limit).build();
    found.map_err(|e| {
        let said = e.to_string();
        // The last line has the message; a line of `^` below the pattern, indented by four columns, shows where.
        let last = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let marks = said.lines().find(|line| line.trim_start().starts_with('^'));
        match marks.and_then(|line| line.find('^')).and_then(|at| at.checked_sub(3)) {
            Some(at) => format!("{last}, at character {at}"),
            None => last.to_owned(),
        }
    })
}
