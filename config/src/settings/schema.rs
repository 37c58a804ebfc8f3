//! The forms of settings, and the two macros that define them. For the settings themselves, see [`super::table`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::Settings;

/// An allowed word and its meaning.
pub(super) type ChoiceWord = (&'static str, &'static str);

#[derive(Debug, Clone, Copy)]
pub(super) enum SettingKind {
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
    /// How much training may be lost: a duration of at least ten seconds.
    OptionalLoss,
    /// A duration, `auto` or `never`.
    Limit,
    Pattern,
    Size,
    OptionalSize,
    Choice(&'static [ChoiceWord]),
    Choices(&'static [ChoiceWord]),
    Trainer,
    OptionalText,
    /// `https://…`.
    OptionalAddress,
    /// A version, as Python's package metadata spells it.
    OptionalVersion,
    Command,
    Gpus,
    /// A list of Python names; each may end in a star.
    Globals,
    /// A list of numeric user IDs.
    Users,
    Variables,
    /// A mapping of classes of failures to words.
    Answers(&'static [ChoiceWord]),
    /// A list of patterns with failure classes and words.
    FailureLines(&'static [ChoiceWord]),
    Group(&'static [SettingRow]),
}

#[derive(Debug)]
pub(super) struct SettingRow {
    pub(super) name: &'static str,
    pub(super) kind: SettingKind,
    /// As YAML; empty for a group.
    pub(super) default: &'static str,
    pub(super) doc: &'static [&'static str],
}

pub(super) trait SettingType: DeserializeOwned {
    /// The form of its values, unless the definition names another.
    const KIND: SettingKind;

    /// Deserializes a value from the merged settings, where a duration is milliseconds.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

/// Defines groups of settings: the structs, and a row for each field.
///
/// A field is `name: Type = default, Kind;` with its comment above. The kind may be left out if it is the type's own. A group has no
/// default.
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
            #[serde(deserialize_with = "SettingType::read")]
            pub $field: $type,)+
            $(#[serde(skip)]
            pub(super) $rest: $rest_type,)?
        }

        impl SettingType for $group {
            const KIND: SettingKind = SettingKind::Group(&[$(SettingRow {
                name: stringify!($field),
                kind: settings!(@kind $type $(, $kind)?),
                default: concat!($($default)?),
                doc: &[$($doc),+],
            }),+]);
        }
    )+};
    (@kind $type:ty) => { <$type as SettingType>::KIND };
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
            /// Returns the word as it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl SettingType for $choice {
            const KIND: SettingKind = SettingKind::Choice(&[$(($word, $doc)),+]);
        }
    )+};
}

pub(super) use {choices, settings};

impl SettingType for bool {
    const KIND: SettingKind = SettingKind::Bool;
}

impl SettingType for u32 {
    const KIND: SettingKind = SettingKind::Whole { min: 0, max: 10_000 };
}

impl SettingType for Option<u32> {
    const KIND: SettingKind = SettingKind::OptionalWhole { min: 1, max: 1_000_000 };
}

impl SettingType for Option<u64> {
    /// A time in seconds, up to the last second of the year 9999.
    const KIND: SettingKind = SettingKind::OptionalWhole {
        min: 1,
        max: 253_402_300_799,
    };
}

impl SettingType for u64 {
    const KIND: SettingKind = SettingKind::Size;
}

impl SettingType for f64 {
    const KIND: SettingKind = SettingKind::Number { min: 1.0, max: 1000.0 };
}

impl SettingType for Duration {
    const KIND: SettingKind = SettingKind::Duration;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::from_millis)
    }
}

impl SettingType for Option<Duration> {
    const KIND: SettingKind = SettingKind::OptionalLoss;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

impl SettingType for String {
    const KIND: SettingKind = SettingKind::Trainer;
}

impl SettingType for Option<String> {
    const KIND: SettingKind = SettingKind::OptionalText;
}

impl SettingType for Option<Vec<String>> {
    const KIND: SettingKind = SettingKind::Command;
}

impl SettingType for Vec<String> {
    const KIND: SettingKind = SettingKind::Globals;
}

impl SettingType for Vec<u32> {
    const KIND: SettingKind = SettingKind::Users;
}

impl SettingType for Vec<super::EventChoice> {
    const KIND: SettingKind = match super::EventChoice::KIND {
        SettingKind::Choice(words) => SettingKind::Choices(words),
        kind => kind,
    };
}

impl SettingType for BTreeMap<String, super::PolicyChoice> {
    const KIND: SettingKind = match super::PolicyChoice::KIND {
        SettingKind::Choice(words) => SettingKind::Answers(words),
        kind => kind,
    };
}

impl SettingType for Vec<super::UserRule> {
    const KIND: SettingKind = match super::PolicyChoice::KIND {
        SettingKind::Choice(words) => SettingKind::FailureLines(words),
        kind => kind,
    };
}

impl SettingType for BTreeMap<String, String> {
    const KIND: SettingKind = SettingKind::Variables;
}

pub(super) fn top() -> &'static [SettingRow] {
    below(Settings::KIND)
}

pub(super) fn below(kind: SettingKind) -> &'static [SettingRow] {
    match kind {
        SettingKind::Group(rows) => rows,
        _ => &[],
    }
}

/// Returns every setting with its dotted key, in definition order.
pub(super) fn leaves() -> impl Iterator<Item = (String, &'static SettingRow)> {
    top().iter().flat_map(|row| match row.kind {
        SettingKind::Group(rows) => rows.iter().map(|r| (format!("{}.{}", row.name, r.name), r)).collect(),
        _ => vec![(row.name.to_owned(), row)],
    })
}

/// Returns the dotted keys of all settings.
pub fn keys() -> impl Iterator<Item = String> {
    leaves().map(|(key, _)| key)
}

/// Whether the key is that of a setting, of a group, or of an entry of one (`policy.mem.*`, `env.HF_HOME`).
pub fn is_setting(key: &str) -> bool {
    let first = key.split('.').next().unwrap_or_default();
    let has_entries = |kind| matches!(kind, SettingKind::Variables | SettingKind::Answers(_));
    kind_of(key).is_some() || kind_of(first).is_some_and(has_entries)
}

pub(super) fn kind_of(key: &str) -> Option<SettingKind> {
    let find = |rows: &'static [SettingRow], name: &str| rows.iter().find(|row| row.name == name).map(|row| row.kind);
    let mut names = key.split('.');
    let first = find(top(), names.next()?)?;
    names.try_fold(first, |kind, name| find(below(kind), name))
}

/// Returns the allowed words of a setting, with their meanings if known here.
pub(super) fn words(kind: SettingKind, trainers: &[&'static str]) -> Vec<ChoiceWord> {
    match kind {
        SettingKind::Choice(words) | SettingKind::Choices(words) | SettingKind::Answers(words) => words.to_vec(),
        // Their meanings are documented at `policy`.
        SettingKind::FailureLines(words) => words.iter().map(|(word, _)| (*word, "")).collect(),
        SettingKind::Trainer => [(super::AUTO, " found out from the YAML and the command")]
            .into_iter()
            .chain(trainers.iter().map(|name| (*name, "")))
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn nearest(key: &str) -> Option<String> {
    let scored = leaves().map(|(known, row)| {
        let distance = edit_distance(key, &known).min(edit_distance(key, row.name) + 1);
        (distance, known)
    });
    let groups = top()
        .iter()
        .map(|row| (edit_distance(key, row.name), row.name.to_owned()));
    let (score, known) = scored.chain(groups).min_by_key(|(score, _)| *score)?;
    (score <= 2 + key.len() / 4).then_some(known)
}

/// Computes the edit distance; insertions, deletions and replacements cost one each.
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
