//! Settings in the words of a command.

use super::schema::WordStyle;
use std::ops::Range;

/// One setting in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SaidWord {
    /// Position of its words.
    at: Range<usize>,
    key: String,
    value: String,
    /// A flag without a value, which means true.
    is_bare: bool,
}

/// A key without dashes; `-` and `_` are the same.
fn plain(key: &str) -> String {
    key.trim_start_matches(['-', '+']).replace('-', "_")
}

fn said(style: WordStyle, command: &[String]) -> Vec<SaidWord> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(word) = command.get(at) {
        let is_flag = word.starts_with("--") && word.len() > 2;
        let pair = word.split_once('=');
        let next = || command.get(at + 1).filter(|next| !next.starts_with("--"));
        let found = match (style, pair) {
            (WordStyle::Flags | WordStyle::FlagsEqual, Some((key, value))) if is_flag => Some((key, Some(value), 1)),
            (WordStyle::Flags, None) if is_flag => match next() {
                Some(value) => Some((word.as_str(), Some(value.as_str()), 2)),
                None => Some((word.as_str(), None, 1)),
            },
            (WordStyle::Pairs, Some((key, value))) if !word.starts_with('-') => Some((key, Some(value), 1)),
            _ => None,
        };
        let words = found.map_or(1, |(_, _, words)| words);
        out.extend(found.map(|(key, value, words)| SaidWord {
            at: at..at + words,
            key: plain(key),
            value: value.unwrap_or("true").to_owned(),
            is_bare: value.is_none(),
        }));
        at += words;
    }
    out
}

/// The value of a key in a command; the last one counts.
pub(super) fn value(style: WordStyle, command: &[String], key: &str) -> Option<String> {
    let key = plain(key);
    let mut all = said(style, command).into_iter().rev();
    all.find(|word| word.key == key).map(|word| word.value)
}

/// Returns true if a key that has to have a value has none.
pub(super) fn is_bare(style: WordStyle, command: &[String], key: &str) -> bool {
    let key = plain(key);
    let mut all = said(style, command).into_iter().rev();
    all.find(|word| word.key == key).is_some_and(|word| word.is_bare)
}

/// The command without some settings: `KEY`, or `KEY=VALUE` for that value only.
pub(super) fn without(style: WordStyle, command: &[String], strip: &[String]) -> Vec<String> {
    let strip: Vec<(String, Option<&str>)> = strip
        .iter()
        .map(|word| match word.split_once('=') {
            Some((key, value)) => (plain(key), Some(value)),
            None => (plain(word), None),
        })
        .collect();
    let goes = |word: &SaidWord| {
        strip
            .iter()
            .any(|(key, value)| *key == word.key && value.is_none_or(|v| v == word.value))
    };
    let gone: Vec<Range<usize>> = said(style, command)
        .iter()
        .filter(|word| goes(word))
        .map(|word| word.at.clone())
        .collect();
    let stays = |(at, _): &(usize, &String)| !gone.iter().any(|range| range.contains(at));
    let words = command.iter().enumerate().filter(stays);
    words.map(|(_, word)| word.clone()).collect()
}

/// The keys that words set.
pub(super) fn keys(style: WordStyle, words: &[String]) -> Vec<String> {
    said(style, words).into_iter().map(|word| word.key).collect()
}

/// A setting as a word of the command; `None` if it takes none.
pub(super) fn spelt(style: WordStyle, key: &str, value: &str) -> Option<String> {
    let key = key.trim_start_matches('-');
    match style {
        WordStyle::Flags | WordStyle::FlagsEqual => Some(format!("--{key}={value}")),
        WordStyle::Pairs => Some(format!("{key}={value}")),
        WordStyle::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn settings_are_read_as_the_style_says() {
        use WordStyle::{Flags, FlagsEqual, None as Nothing, Pairs};
        for (style, command, key, found) in [
            (Flags, "p t.py --save a --save b", "--save", Some("b")),
            (Flags, "p t.py --save-interval=5", "--save_interval", Some("5")),
            (Flags, "p t.py --x.enable --y 1", "--x.enable", Some("true")),
            (FlagsEqual, "p t.py --out_dir=o", "out_dir", Some("o")),
            (FlagsEqual, "p t.py --out_dir o", "out_dir", None),
            (Pairs, "p -m x a.b=1 +a.b=2", "a.b", Some("2")),
            (Pairs, "p --a.b=1", "a.b", None),
            (Nothing, "p --a=1", "--a", None),
        ] {
            assert_eq!(value(style, &words(command), key).as_deref(), found, "{command}");
        }
        for (command, bare) in [
            ("p t.py --save", true),
            ("p t.py --save --b 2", true),
            ("p t.py --save a --save", true),
            ("p t.py --save true", false),
            ("p t.py --b", false),
        ] {
            assert_eq!(is_bare(Flags, &words(command), "--save"), bare, "{command}");
        }
    }

    #[test]
    fn a_setting_goes_with_its_value() {
        let strip = words("--load --init_from=resume");
        for (command, left) in [
            ("p t.py --load x --b 2", "p t.py --b 2"),
            ("p t.py --load=x --b 2", "p t.py --b 2"),
            ("p t.py --init_from=resume", "p t.py"),
            ("p t.py --init_from=scratch", "p t.py --init_from=scratch"),
        ] {
            assert_eq!(without(WordStyle::Flags, &words(command), &strip).join(" "), left);
        }
    }
}
