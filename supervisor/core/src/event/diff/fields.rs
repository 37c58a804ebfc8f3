//! Fields of a step in which it differs from another one: kept as the text that stands in the journal, and read when they are applied.

use crate::checkpoint::CheckpointSummary;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Fields by the names of a summary. A journal holds two or three for each save: into values first, most of the time of reading them
/// would go there.
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
    /// These fields; `None`: JSON cannot express them (none is known).
    #[must_use]
    pub fn new(fields: &Map<String, Value>) -> Option<Self> {
        to_raw_value(fields).ok().map(Self)
    }

    fn has(&self, name: &str) -> bool {
        let names: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_slice(self.0.get().as_bytes()).ok();
        names.is_some_and(|names| names.contains_key(name))
    }

    /// Gives a summary these fields; `None`: one has another value than such a field can have.
    pub(super) fn put(&self, c: &mut CheckpointSummary) -> Option<()> {
        let mut text = serde_json::Deserializer::from_slice(self.0.get().as_bytes());
        text.deserialize_map(Put(c)).ok()
    }
}

/// Takes the values of fields into a summary as they are read.
struct Put<'a>(&'a mut CheckpointSummary);

/// Reads fields into a summary as if all of it were read from JSON. Those behind the semicolon can be missing in what is written.
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
                // One that is forgotten here does not compile.
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

        /// Takes a field from a summary; `None`: each has it, and it is not among the ones that come.
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
