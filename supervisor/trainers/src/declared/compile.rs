//! Patterns and regular expressions of a declaration, compiled within bounds.

use super::pattern::NamePattern;
use super::source::{Problems, SpannedValue, TableReader};
use regex::{Regex, RegexBuilder};

/// Memory that one regular expression may take, in bytes.
const REGEX: usize = 1 << 20;

/// Parses a name with placeholders.
pub(super) fn pattern(
    t: &TableReader<'_, '_>,
    key: &str,
    text: &SpannedValue<String>,
    words: &[&str],
    p: &mut Problems<'_>,
) -> Option<NamePattern> {
    match NamePattern::parse(&text.value, words) {
        Ok(pattern) => Some(pattern),
        Err(e) => {
            t.wrong(p, text.at, key, e.what, e.fix);
            None
        }
    }
}

/// Compiles a regular expression within bounds.
pub(super) fn regex(
    t: &TableReader<'_, '_>,
    key: &str,
    text: &SpannedValue<String>,
    p: &mut Problems<'_>,
) -> Option<Regex> {
    let built = RegexBuilder::new(&text.value)
        .size_limit(REGEX)
        .dfa_size_limit(REGEX)
        .nest_limit(50)
        .build();
    match built {
        Ok(regex) if regex.is_match("") => {
            t.wrong(
                p,
                text.at,
                key,
                "it matches every line",
                "add text that the line always has",
            );
            None
        }
        Ok(regex) => Some(regex),
        Err(regex::Error::CompiledTooBig(_)) => {
            t.wrong(
                p,
                text.at,
                key,
                "it needs too much memory",
                "use smaller counts in braces",
            );
            None
        }
        Err(e) => {
            let text_of = e.to_string();
            let why = text_of
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            t.wrong(
                p,
                text.at,
                key,
                format!("no regular expression: {why}"),
                "look-around and back references are not supported",
            );
            None
        }
    }
}
