//! The forms that settings have, and the two macros that define them. The settings themselves: [`super::table`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::Settings;

/// A word that can be chosen, and its meaning.
pub(super) type Word = (&'static str, &'static str);

/// Choices for a setting.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Bool,
    Whole {
        min: i64,
        max: i64,
    },
    OptionalWhole {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Duration,
    /// A duration, `auto` or `never`.
    Limit,
    /// A regular expression, or null.
    Pattern,
    Size,
    OptionalSize,
    Choice(&'static [Word]),
    /// A list of words.
    Choices(&'static [Word]),
    /// The name of a trainer framework.
    Trainer,
    OptionalText,
    /// `https://…`.
    OptionalAddress,
    /// A version, as Python's package metadata spells it.
    OptionalVersion,
    Command,
    Gpus,
    /// A list of Python names, each perhaps ending in a star.
    Globals,
    /// A list of user numbers.
    Users,
    /// A mapping of names to strings.
    Variables,
    /// A mapping of classes of failures to words.
    Answers(&'static [Word]),
    /// A list of patterns with classes of failures, and words.
    FailureLines(&'static [Word]),
    /// Settings below this one.
    Group(&'static [Row]),
}

/// A setting, or a group of them.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// As YAML; empty for a group.
    pub(super) default: &'static str,
    /// The lines of its comment.
    pub(super) doc: &'static [&'static str],
}

/// A type of which a setting can be.
pub(super) trait Setting: DeserializeOwned {
    /// The form of its values where the definition names no other.
    const KIND: Kind;

    /// Reads the form in which the value was layered.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

/// Defines groups of settings: the structs, and a row for each field.
///
/// A field is `name: Type = default, Kind;` with its comment above; the kind where it is not the type's own. A group has no default.
macro_rules! settings {
    ($($(#[doc = $about:literal])+ struct $group:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty $(= $default:literal)? $(, $kind:expr)?;)+
        $(else $rest:ident: $rest_type:ty;)?
    })+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $group {
            $($(#[doc = $doc])+
            #[serde(deserialize_with = "Setting::read")]
            pub $field: $type,)+
            $(#[serde(skip)]
            pub(super) $rest: $rest_type,)?
        }

        impl Setting for $group {
            const KIND: Kind = Kind::Group(&[$(Row {
                name: stringify!($field),
                kind: settings!(@kind $type $(, $kind)?),
                default: concat!($($default)?),
                doc: &[$($doc),+],
            }),+]);
        }
    )+};
    (@kind $type:ty) => { <$type as Setting>::KIND };
    (@kind $type:ty, $kind:expr) => { $kind };
}

/// Defines settings that are one of several words, each with its meaning.
macro_rules! choices {
    ($($(#[doc = $about:literal])+ enum $choice:ident { $(#[doc = $doc:literal] $variant:ident = $word:literal,)+ })+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $choice {
            $(#[doc = $doc]
            #[serde(rename = $word)]
            $variant,)+
        }

        impl $choice {
            /// The word as it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl Setting for $choice {
            const KIND: Kind = Kind::Choice(&[$(($word, $doc)),+]);
        }
    )+};
}

pub(super) use {choices, settings};

impl Setting for bool {
    const KIND: Kind = Kind::Bool;
}

impl Setting for u32 {
    const KIND: Kind = Kind::Whole { min: 0, max: 10_000 };
}

impl Setting for Option<u32> {
    const KIND: Kind = Kind::OptionalWhole { min: 1, max: 1_000_000 };
}

impl Setting for Option<u64> {
    /// A time in seconds: up to the last second that a date of four digits has.
    const KIND: Kind = Kind::OptionalWhole {
        min: 1,
        max: 253_402_300_799,
    };
}

impl Setting for u64 {
    const KIND: Kind = Kind::Size;
}

impl Setting for f64 {
    const KIND: Kind = Kind::Number { min: 1.0, max: 1000.0 };
}

impl Setting for Duration {
    const KIND: Kind = Kind::Duration;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::from_millis)
    }
}

impl Setting for String {
    const KIND: Kind = Kind::Trainer;
}

impl Setting for Option<String> {
    const KIND: Kind = Kind::OptionalText;
}

impl Setting for Option<Vec<String>> {
    const KIND: Kind = Kind::Command;
}

impl Setting for Vec<String> {
    const KIND: Kind = Kind::Globals;
}

impl Setting for Vec<u32> {
    const KIND: Kind = Kind::Users;
}

impl Setting for Vec<super::EventChoice> {
    const KIND: Kind = match super::EventChoice::KIND {
        Kind::Choice(words) => Kind::Choices(words),
        kind => kind,
    };
}

impl Setting for BTreeMap<String, super::PolicyChoice> {
    const KIND: Kind = match super::PolicyChoice::KIND {
        Kind::Choice(words) => Kind::Answers(words),
        kind => kind,
    };
}

impl Setting for Vec<super::UserRule> {
    const KIND: Kind = match super::PolicyChoice::KIND {
        Kind::Choice(words) => Kind::FailureLines(words),
        kind => kind,
    };
}

impl Setting for BTreeMap<String, String> {
    const KIND: Kind = Kind::Variables;
}

/// The settings and groups at the top.
pub(super) fn top() -> &'static [Row] {
    below(Settings::KIND)
}

/// Nodes below a group.
pub(super) fn below(kind: Kind) -> &'static [Row] {
    match kind {
        Kind::Group(rows) => rows,
        _ => &[],
    }
}

/// Every setting with its dotted key, in the order of its definition.
pub(super) fn leaves() -> impl Iterator<Item = (String, &'static Row)> {
    top().iter().flat_map(|row| match row.kind {
        Kind::Group(rows) => rows.iter().map(|r| (format!("{}.{}", row.name, r.name), r)).collect(),
        _ => vec![(row.name.to_owned(), row)],
    })
}

/// The dotted keys of all settings.
pub fn keys() -> impl Iterator<Item = String> {
    leaves().map(|(key, _)| key)
}

/// Returns true for the key of a setting, of a group of them, or of an entry of one (`policy.mem.*`, `env.HF_HOME`).
pub fn is_setting(key: &str) -> bool {
    let first = key.split('.').next().unwrap_or_default();
    let has_entries = |kind| matches!(kind, Kind::Variables | Kind::Answers(_));
    kind_of(key).is_some() || kind_of(first).is_some_and(has_entries)
}

/// Nodes below a dotted key.
pub(super) fn kind_of(key: &str) -> Option<Kind> {
    let find = |rows: &'static [Row], name: &str| rows.iter().find(|row| row.name == name).map(|row| row.kind);
    let mut names = key.split('.');
    let first = find(top(), names.next()?)?;
    names.try_fold(first, |kind, name| find(below(kind), name))
}

/// The words that a setting can be, with their meanings where they are known here.
pub(super) fn words(kind: Kind, trainers: &[&'static str]) -> Vec<Word> {
    match kind {
        Kind::Choice(words) | Kind::Choices(words) | Kind::Answers(words) => words.to_vec(),
        // Their meanings stand at `policy`.
        Kind::FailureLines(words) => words.iter().map(|(word, _)| (*word, "")).collect(),
        Kind::Trainer => [(super::AUTO, " found out from the YAML and the command")]
            .into_iter()
            .chain(trainers.iter().map(|name| (*name, "")))
            .collect(),
        _ => Vec::new(),
    }
}

/// The setting whose name is nearest to a mistyped one.
pub(super) fn nearest(key: &str) -> Option<String> {
    let scored = leaves().map(|(known, row)| {
        let distance = edit_distance(key, &known).min(edit_distance(key, row.name) + 1);
        (distance, known)
    });
    let (score, known) = scored.min_by_key(|(score, _)| *score)?;
    (score <= 2 + key.len() / 4).then_some(known)
}

/// Edit distance, insertions, deletions and replacements counting one.
pub fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, from) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()] + left.chars().count().saturating_sub(64)
}
