//! Parses the tensor table of a header within a memory budget.
//!
//! The library that reads these files is written in Rust: it accepts standard JSON, not Python's variant.

use crate::dtype::Dtype;
use crate::json;
use crate::limits::InspectLimits;
use crate::plan::ByteExtent;
use crate::torch::TorchTensor;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use supervise_core::checkpoint::{Finding, Verdict};

/// Allocator overhead, in bytes.
const APART: usize = 16;
/// The most bytes per tensor, without name and shape: in the table, which doubles as it grows, or in the result, which has a second list
/// of extents with the gaps in between.
const EACH: usize = 3 * size_of::<TensorEntry>() + 3 * size_of::<ByteExtent>() + size_of::<TorchTensor>();

#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) name: Box<str>,
    /// The type with the bits of an element, or the unknown type's name.
    pub(super) dtype: Result<(Dtype, u64), Box<str>>,
    pub(super) shape: Box<[u64]>,
    pub(super) data_offsets: [u64; 2],
}

/// The tensors of a header. Only the keys of `__metadata__` are used.
#[derive(Debug, Default)]
pub(super) struct HeaderTable {
    pub(super) tensors: Vec<TensorEntry>,
    /// Whether torch's distributed writer recorded there which piece of a tensor this file contains.
    pub(super) pieces: bool,
}

pub(super) fn entries(text: &[u8], limits: &InspectLimits) -> Result<HeaderTable, Box<Finding>> {
    let room = json::room(text.len(), limits);
    let budget = HeaderBudget {
        left: Cell::new(room),
        short: Cell::new(false),
    };
    let mut from = serde_json::Deserializer::from_slice(text);
    let read = TableSeed(&budget)
        .deserialize(&mut from)
        .and_then(|table| from.end().map(|()| table));
    read.map_err(|e| match budget.short.get() {
        true => {
            // If the rest is like the part already parsed.
            let read = if e.line() == 1 { e.column().max(1) } else { text.len() };
            let need = text.len() as u128 * (room + read) as u128 / read as u128;
            Box::new(json::too_big(usize::try_from(need).unwrap_or(usize::MAX), limits))
        }
        false => Box::new(wrong(text, &e)),
    })
}

fn wrong(text: &[u8], e: &serde_json::Error) -> Finding {
    let zeros = text.iter().rev().take_while(|b| **b == 0).count();
    let (code, detail) = match zeros {
        0 => ("safetensors_header", format!("the header is no table of tensors: {e}")),
        n => (
            "torn_write",
            format!("the last {n} bytes of the header are zeros: they were never written"),
        ),
    };
    Finding::error(code, Verdict::Damaged, detail).at(8)
}

struct HeaderBudget {
    left: Cell<usize>,
    short: Cell<bool>,
}

impl HeaderBudget {
    fn spend<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.short.set(true);
                Err(E::custom("it takes more memory than is allowed"))
            }
        }
    }
}

struct TableSeed<'b>(&'b HeaderBudget);

impl<'de> DeserializeSeed<'de> for TableSeed<'_> {
    type Value = HeaderTable;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<HeaderTable, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableSeed<'_> {
    type Value = HeaderTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderTable, A::Error> {
        let mut out = HeaderTable::default();
        while let Some(HeaderWord(name)) = map.next_key()? {
            if name == "__metadata__" {
                // The library accepts null as no notes.
                let notes: Option<HeaderNotes> = map.next_value()?;
                out.pieces = notes.is_some_and(|n| n.pieces);
                continue;
            }
            self.0.spend(EACH + 2 * (name.len() + APART))?;
            let info = map.next_value_seed(InfoSeed(self.0))?;
            out.tensors.push(TensorEntry {
                name: name.into(),
                dtype: info.dtype,
                shape: info.shape,
                data_offsets: info.data_offsets,
            });
        }
        Ok(out)
    }
}

/// A string that is borrowed from the text if it needs no unescaping.
struct HeaderWord<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for HeaderWord<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct WordVisitor;
        impl<'de> Visitor<'de> for WordVisitor {
            type Value = HeaderWord<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<HeaderWord<'de>, E> {
                Ok(HeaderWord(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<HeaderWord<'de>, E> {
                Ok(HeaderWord(Cow::Owned(text.to_owned())))
            }
        }
        d.deserialize_str(WordVisitor)
    }
}

/// The file's notes: strings, none of which is kept.
struct HeaderNotes {
    pieces: bool,
}

impl<'de> Deserialize<'de> for HeaderNotes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NotesVisitor;
        impl<'de> Visitor<'de> for NotesVisitor {
            type Value = HeaderNotes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderNotes, A::Error> {
                let mut pieces = false;
                while let Some((HeaderWord(key), HeaderWord(_))) = map.next_entry()? {
                    pieces |= key.starts_with("DCP_");
                }
                Ok(HeaderNotes { pieces })
            }
        }
        d.deserialize_map(NotesVisitor)
    }
}

struct TensorInfo {
    dtype: Result<(Dtype, u64), Box<str>>,
    shape: Box<[u64]>,
    data_offsets: [u64; 2],
}

struct InfoSeed<'b>(&'b HeaderBudget);

impl InfoSeed<'_> {
    fn dtype<E: serde::de::Error>(&self, word: &HeaderWord<'_>) -> Result<Result<(Dtype, u64), Box<str>>, E> {
        match Dtype::from_safetensors(&word.0) {
            Some(known) => Ok(Ok(known)),
            None => {
                self.0.spend(word.0.len() + APART)?;
                Ok(Err(Box::from(word.0.as_ref())))
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for InfoSeed<'_> {
    type Value = TensorInfo;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<TensorInfo, D::Error> {
        d.deserialize_struct("TensorInfo", &["dtype", "shape", "data_offsets"], self)
    }
}

impl<'de> Visitor<'de> for InfoSeed<'_> {
    type Value = TensorInfo;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("type, shape and place of a tensor")
    }

    // The library's own reader accepts a list too.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TensorInfo, A::Error> {
        let lacks = |n| A::Error::invalid_length(n, &self);
        let word = seq.next_element()?.ok_or_else(|| lacks(0))?;
        Ok(TensorInfo {
            dtype: self.dtype(&word)?,
            shape: seq.next_element_seed(ShapeSeed(self.0))?.ok_or_else(|| lacks(1))?,
            data_offsets: seq.next_element()?.ok_or_else(|| lacks(2))?,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorInfo, A::Error> {
        let (mut dtype, mut shape, mut data_offsets) = (None, None, None);
        while let Some(HeaderWord(key)) = map.next_key()? {
            match key.as_ref() {
                "dtype" if dtype.is_some() => return Err(A::Error::duplicate_field("dtype")),
                "shape" if shape.is_some() => return Err(A::Error::duplicate_field("shape")),
                "data_offsets" if data_offsets.is_some() => return Err(A::Error::duplicate_field("data_offsets")),
                "dtype" => dtype = Some(self.dtype(&map.next_value()?)?),
                "shape" => shape = Some(map.next_value_seed(ShapeSeed(self.0))?),
                "data_offsets" => data_offsets = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(TensorInfo {
            dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
            shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
            data_offsets: data_offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?,
        })
    }
}

struct ShapeSeed<'b>(&'b HeaderBudget);

impl<'de> DeserializeSeed<'de> for ShapeSeed<'_> {
    type Value = Box<[u64]>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Box<[u64]>, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed<'_> {
    type Value = Box<[u64]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shape")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Box<[u64]>, A::Error> {
        let mut out: Vec<u64> = Vec::new();
        self.0.spend(APART)?;
        while let Some(n) = seq.next_element()? {
            // It doubles as it grows.
            self.0.spend(3 * size_of::<u64>())?;
            out.push(n);
        }
        Ok(out.into())
    }
}
