//! Fields in which a step differs from another one, kept as journal text and parsed when they are applied.

use crate::checkpoint::CheckpointSummary;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Fields, named as in a summary. A journal contains two or three sets per save; parsing them into values first would
/// take most of the reading time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Box<RawValue>")]
pub struct RawFields(Box<RawValue>);

impl PartialEq for RawFields {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl TryFrom<Box<RawValue>> for RawFields {
    type Error = &'static str;

    fn try_from(text: Box<RawValue>) -> Result<Self, Self::Error> {
        match text.get().starts_with('{') {
            true => Ok(Self(text)),
            false => Err("expected fields of a step"),
        }
    }
}

impl RawFields {
    /// Serializes fields; `None` if JSON cannot express them (none is known).
    #[must_use]
    pub fn new(fields: &Map<String, Value>) -> Option<Self> {
        to_raw_value(fields).ok().map(Self)
    }

    fn has(&self, name: &str) -> bool {
        let names: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_slice(self.0.get().as_bytes()).ok();
        names.is_some_and(|names| names.contains_key(name))
    }

    /// Sets these fields in a summary; `None` if one has a value that the field cannot have.
    pub(super) fn put(&self, c: &mut CheckpointSummary) -> Option<()> {
        let mut text = serde_json::Deserializer::from_slice(self.0.get().as_bytes());
        text.deserialize_map(Put(c)).ok()
    }
}

/// Sets the fields of a summary as they are read.
struct Put<'a>(&'a mut CheckpointSummary);

/// Reads fields into a summary as if the whole summary were parsed from JSON. Those after the semicolon may be missing
/// in what is written.
macro_rules! fields {
    ($($always:ident)* ; $($often:ident)*) => {
        #[expect(non_camel_case_types, reason = "named as the fields are")]
        #[derive(Deserialize)]
        enum Name {
            $($always,)*
            $($often,)*
            #[serde(other)]
            Unknown,
        }

        impl<'de> Visitor<'de> for Put<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields of a step")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
                // A forgotten field does not compile.
                let CheckpointSummary { $($always,)* $($often,)* } = self.0;
                while let Some(name) = map.next_key()? {
                    match name {
                        $(Name::$always => *$always = map.next_value()?,)*
                        $(Name::$often => *$often = map.next_value()?,)*
                        Name::Unknown => _ = map.next_value::<IgnoredAny>()?,
                    }
                }
                Ok(())
            }
        }

        /// Clears a field that is left out; `None` if the field is always written and is not about to be set.
        pub(super) fn leave_out(c: &mut CheckpointSummary, name: &str, to_come: &RawFields) -> Option<()> {
            match name {
                $(stringify!($often) => c.$often = Default::default(),)*
                $(stringify!($always) => return to_come.has(name).then_some(()),)*
                _ => {}
            }
            Some(())
        }
    };
}

fields!(
    id step layout verdict roles contents resume pins bytes files newest findings;
    proven world holds reshard part saved_by save husk unfamiliar own_modules other_owner trainer_note
);
