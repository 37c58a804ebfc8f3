//! The name of a trainer framework. It is opaque here; only its adapter knows more.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// Longest name, in bytes.
const LONGEST: usize = 24;

/// A trainer framework, by the name that journals use: lower-case letters, digits and `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrainerKind([u8; LONGEST]);

impl TrainerKind {
    /// The kind with this name, which is cut after 24 bytes.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        let mut out = [0; LONGEST];
        let mut at = 0;
        while at < bytes.len() && at < LONGEST {
            out[at] = bytes[at];
            at += 1;
        }
        Self(out)
    }

    /// Parses a written name; `None` if it is not a valid one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let is_plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        let bytes = name.as_bytes();
        let mut out = [0; LONGEST];
        out.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty() && bytes.iter().all(is_plain)).then_some(Self(out))
    }

    /// The name as journals use it.
    #[must_use]
    pub fn name(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(LONGEST);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for TrainerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrainerKind({})", self.name())
    }
}

/// For display, and for a run's identity: with dashes.
impl fmt::Display for TrainerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name().replace('_', "-"))
    }
}

impl Serialize for TrainerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for TrainerKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| de::Error::custom(format!("`{name}` is not the name of a trainer")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names written by versions that listed the trainers here.
    #[test]
    fn names_stay_as_they_were_written() {
        for (name, shown) in [
            ("verl_ppo", "verl-ppo"),
            ("verl_sft", "verl-sft"),
            ("areal", "areal"),
            ("plain", "plain"),
        ] {
            let text = format!("\"{name}\"");
            let kind: TrainerKind = serde_json::from_str(&text).unwrap();
            assert_eq!(kind, TrainerKind::new(name));
            assert_eq!(serde_json::to_string(&kind).unwrap(), text);
            assert_eq!(kind.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["\"\"", "\"a b\"", "\"Verl\"", "\"a_name_that_is_longer_than_any\"", "7"] {
            assert!(serde_json::from_str::<TrainerKind>(text).is_err(), "{text}");
        }
    }
}
