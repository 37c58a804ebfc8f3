//! Reads a declaration's TOML and collects all mistakes in it, each with its line, its key and what to do.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use supervise_config::edit_distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest declaration, in bytes.
pub const LARGEST: usize = 256 << 10;
/// Mistakes that are looked for, and those that are listed.
const FOUND: usize = 1000;
const PROBLEMS: usize = 50;
/// Entries of one list.
const ENTRIES: usize = 64;

/// One mistake in a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationProblem {
    pub line: usize,
    /// The table and the key.
    pub key: String,
    pub what: String,
    pub fix: String,
}

impl fmt::Display for DeclarationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; {}", self.line, self.key, self.what, self.fix)
    }
}

/// Mistakes found so far.
#[derive(Debug)]
pub(super) struct Problems<'t> {
    text: &'t str,
    list: Vec<DeclarationProblem>,
}

impl<'t> Problems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, list: Vec::new() }
    }

    pub(super) fn add(&mut self, at: usize, key: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) {
        if self.list.len() >= FOUND {
            return;
        }
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let shown = |text: String| {
            text.chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(300)
                .collect()
        };
        self.list.push(DeclarationProblem {
            line: 1 + before.iter().filter(|b| **b == b'\n').count(),
            key: shown(key.into()),
            what: shown(what.into()),
            fix: shown(fix.into()),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The mistakes in the order of their lines.
    pub(super) fn into_list(mut self) -> Vec<DeclarationProblem> {
        self.list.sort_by_key(|p| p.line);
        self.list.truncate(PROBLEMS);
        self.list
    }
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpannedValue<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// One table, read key by key; what is never asked for is unknown.
#[derive(Debug)]
pub(super) struct TableReader<'t, 'i> {
    table: Option<&'t DeTable<'i>>,
    pub(super) at: usize,
    /// `[steps]` or `[[part]] model`, for messages.
    pub(super) name: String,
    asked: BTreeSet<&'static str>,
    /// Keys of earlier versions, which were refused.
    retired: BTreeSet<&'static str>,
}

impl<'t, 'i> TableReader<'t, 'i> {
    pub(super) fn new(table: &'t DeTable<'i>, at: usize, name: impl Into<String>) -> Self {
        Self {
            table: Some(table),
            at,
            name: name.into(),
            asked: BTreeSet::new(),
            retired: BTreeSet::new(),
        }
    }

    /// A table that is not there.
    fn none(name: &str) -> Self {
        Self {
            table: None,
            at: 0,
            name: name.to_owned(),
            asked: BTreeSet::new(),
            retired: BTreeSet::new(),
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    fn label(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name} {key}"),
        }
    }

    pub(super) fn wrong(
        &self,
        p: &mut Problems<'_>,
        at: usize,
        key: &str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        p.add(at, self.label(key), what, fix);
    }

    fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.asked.insert(key);
        self.table?.get(key)
    }

    fn expected(&self, p: &mut Problems<'_>, value: &Spanned<DeValue<'_>>, key: &str, wanted: &str) {
        let found = value.get_ref().type_str();
        self.wrong(
            p,
            value.span().start,
            key,
            format!("found {found}"),
            format!("expected {wanted}"),
        );
    }

    pub(super) fn text(&mut self, key: &'static str, p: &mut Problems<'_>) -> Option<SpannedValue<String>> {
        let value = self.value(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(placed(value.span(), text.to_owned())),
            None => {
                self.expected(p, value, key, "a text");
                None
            }
        }
    }

    /// A text or a list of texts.
    pub(super) fn texts(&mut self, key: &'static str, p: &mut Problems<'_>) -> Option<Vec<SpannedValue<String>>> {
        let value = self.value(key)?;
        if let Some(text) = value.get_ref().as_str() {
            return Some(vec![placed(value.span(), text.to_owned())]);
        }
        let Some(list) = value.get_ref().as_array() else {
            self.expected(p, value, key, "a text or a list of texts");
            return None;
        };
        if list.len() > ENTRIES {
            let what = format!("{} entries", list.len());
            self.wrong(p, value.span().start, key, what, format!("use at most {ENTRIES}"));
            return None;
        }
        let mut out = Vec::new();
        for entry in list {
            match entry.get_ref().as_str() {
                Some(text) => out.push(placed(entry.span(), text.to_owned())),
                None => self.expected(p, entry, key, "a text"),
            }
        }
        Some(out)
    }

    pub(super) fn integer(&mut self, key: &'static str, p: &mut Problems<'_>) -> Option<SpannedValue<i64>> {
        let value = self.value(key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        if number.is_none() {
            self.expected(p, value, key, "a number");
        }
        Some(placed(value.span(), number?))
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, of: &[(&str, T)], p: &mut Problems<'_>) -> Option<T> {
        let text = self.text(key, p)?;
        let found = of.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let words: Vec<&str> = of.iter().map(|(word, _)| *word).collect();
            self.wrong(
                p,
                text.at,
                key,
                format!("`{}` is not known", text.value),
                format!("use {}", words.join(", ")),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// A whole number, or a list of them, as the text that a command would say.
    pub(super) fn numbers(&mut self, key: &'static str, p: &mut Problems<'_>) -> Vec<String> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let list: Vec<&Spanned<DeValue<'_>>> = match value.get_ref().as_array() {
            Some(list) => list.iter().collect(),
            None => vec![value],
        };
        let mut out = Vec::new();
        for entry in list.into_iter().take(ENTRIES) {
            let text = match entry.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                    .map_or_else(|_| number.to_string(), |number| number.to_string()),
                _ => {
                    self.expected(p, entry, key, "a whole number");
                    continue;
                }
            };
            match text.replace('_', "").parse::<i64>() {
                Ok(_) => out.push(text),
                Err(_) => {
                    let what = format!("`{text}` is no whole number");
                    self.wrong(p, entry.span().start, key, what, "write a number, such as 100");
                }
            }
        }
        out
    }

    /// Refuses a key that has a new name.
    pub(super) fn renamed(&mut self, old: &'static str, new: &str, p: &mut Problems<'_>) {
        if let Some(value) = self.value(old) {
            self.wrong(
                p,
                value.span().start,
                old,
                "this key has a new name",
                format!("write {new}"),
            );
            self.retired.insert(old);
        }
        self.asked.remove(old);
    }

    pub(super) fn table(&mut self, key: &'static str, p: &mut Problems<'_>) -> TableReader<'t, 'i> {
        let name = match self.name.as_str() {
            "" => format!("[{key}]"),
            _ => self.label(key),
        };
        let Some(value) = self.value(key) else {
            return Self::none(&name);
        };
        match value.get_ref().as_table() {
            Some(table) => Self::new(table, value.span().start, name),
            None => {
                self.expected(p, value, key, "a table");
                Self::none(&name)
            }
        }
    }

    /// The tables of `[[key]]`, or of a list of inline tables.
    pub(super) fn tables(&mut self, key: &'static str, p: &mut Problems<'_>) -> Vec<TableReader<'t, 'i>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let name = match self.name.as_str() {
            "" => format!("[[{key}]]"),
            _ => self.label(key),
        };
        let Some(list) = value.get_ref().as_array() else {
            self.expected(p, value, key, "a list of tables");
            return Vec::new();
        };
        if list.len() > ENTRIES {
            let what = format!("{} tables", list.len());
            self.wrong(p, value.span().start, key, what, format!("use at most {ENTRIES}"));
            return Vec::new();
        }
        let mut out = Vec::new();
        for entry in list {
            match entry.get_ref().as_table() {
                Some(table) => out.push(Self::new(table, entry.span().start, name.clone())),
                None => self.expected(p, entry, key, "a table"),
            }
        }
        out
    }

    /// Refuses a key that would change nothing.
    pub(super) fn unused(&mut self, key: &'static str, what: &str, p: &mut Problems<'_>) {
        if let Some(value) = self.value(key) {
            self.wrong(p, value.span().start, key, what, "leave it out");
        }
        self.asked.remove(key);
        self.retired.insert(key);
    }

    /// Refuses keys of the format that this version does not act on yet.
    pub(super) fn later(&mut self, keys: &[&'static str], p: &mut Problems<'_>) {
        for key in keys {
            if let Some(value) = self.value(key) {
                let what = "this version does not act on it yet";
                self.wrong(p, value.span().start, key, what, "leave it out");
            }
        }
    }

    /// Refuses keys that were never asked for.
    pub(super) fn end(self, p: &mut Problems<'_>) {
        let known: Vec<&str> = self.asked.iter().copied().collect();
        for key in self.table.into_iter().flat_map(DeTable::keys) {
            let word = key.get_ref().as_ref();
            if !self.asked.contains(word) && !self.retired.contains(word) {
                let near = nearest(word, &known);
                let fix = near.map_or_else(
                    || format!("use {}", known.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                self.wrong(p, key.span().start, word, "no such key", fix);
            }
        }
    }
}

fn placed<T>(span: Range<usize>, value: T) -> SpannedValue<T> {
    SpannedValue { at: span.start, value }
}

/// The known word that a person probably meant.
pub(super) fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let word: String = word.chars().take(40).collect();
    let close = |other: &&&str| {
        let starts =
            other.len() > 2 && (word.starts_with(**other) || other.starts_with(word.as_str()) && word.len() > 2);
        starts || edit_distance(&word, other) <= 1 + other.len() / 5
    };
    known
        .iter()
        .filter(close)
        .min_by_key(|other| edit_distance(&word, other))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_proposed() {
        let known = ["missing", "files", "format"];
        for (word, near) in [
            ("mising", Some("missing")),
            ("file", Some("files")),
            ("fromat", Some("format")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), near, "{word}");
        }
    }
}
