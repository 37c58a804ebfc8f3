//! A small writer and reader of `torch.save` files.
//!
//! The demo trainer has to leave behind files that a real torch opens and that a
//! checker of real files accepts, without a Python in sight. A file is a zip whose
//! entries are stored, not compressed, each beginning on a multiple of 64 bytes:
//! `archive/data.pkl` (pickle protocol 2), `archive/data/N` (raw little-endian
//! storages), `byteorder`, `version` and a few more. As torch does, the local headers
//! carry no checksum; the central directory carries all of them.
//!
//! The reader understands what the writer writes and no more. Like torch's own build
//! of its zip library it does **not** compare checksums: a flipped byte loads without
//! a word, a cut file does not load at all.

mod pickle;
mod zip;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// A value that a checkpoint file can hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Python's `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary, in insertion order.
    Dict(Vec<(Value, Value)>),
    /// A `collections.OrderedDict`, as state dictionaries are.
    Ordered(Vec<(Value, Value)>),
    /// A contiguous tensor.
    Tensor(Tensor),
    /// A new object of a class, by module and name: what a reader of hostile files must notice.
    Object(&'static str, &'static str),
}

impl Value {
    /// Looks up a string key in a dictionary.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Dict(items) | Value::Ordered(items) => items
                .iter()
                .find(|(k, _)| matches!(k, Value::Str(s) if s == key))
                .map(|(_, v)| v),
            _ => None,
        }
    }

    /// Looks up an integer key in a dictionary.
    pub fn at(&self, key: i64) -> Option<&Value> {
        match self {
            Value::Dict(items) | Value::Ordered(items) => items
                .iter()
                .find(|(k, _)| matches!(k, Value::Int(n) if *n == key))
                .map(|(_, v)| v),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The tensor's storage, if this is a tensor.
    pub fn storage(&self) -> Option<&Storage> {
        match self {
            Value::Tensor(t) => Some(&t.storage),
            _ => None,
        }
    }
}

/// Makes a dictionary from string keys.
pub fn dict<const N: usize>(items: [(&str, Value); N]) -> Value {
    Value::Dict(items.into_iter().map(|(k, v)| (Value::Str(k.to_owned()), v)).collect())
}

/// A tensor that owns its storage whole and lies in it contiguously.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The lengths of its dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub storage: Storage,
}

impl Tensor {
    /// A one-dimensional tensor of 32-bit floats.
    pub fn floats(values: &[f32]) -> Value {
        Value::Tensor(Tensor {
            shape: vec![values.len()],
            storage: Storage::Float(values.to_vec()),
        })
    }

    /// A scalar tensor, such as an optimizer's step count.
    pub fn scalar(value: f32) -> Value {
        Value::Tensor(Tensor {
            shape: vec![],
            storage: Storage::Float(vec![value]),
        })
    }

    /// A one-dimensional tensor of bytes, such as a generator's state.
    pub fn bytes(values: &[u8]) -> Value {
        Value::Tensor(Tensor {
            shape: vec![values.len()],
            storage: Storage::Byte(values.to_vec()),
        })
    }

    /// A one-dimensional tensor of 64-bit integers.
    pub fn longs(values: &[i64]) -> Value {
        Value::Tensor(Tensor {
            shape: vec![values.len()],
            storage: Storage::Long(values.to_vec()),
        })
    }
}

/// The numbers of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    /// `torch.FloatStorage`.
    Float(Vec<f32>),
    /// `torch.ByteStorage`.
    Byte(Vec<u8>),
    /// `torch.LongStorage`.
    Long(Vec<i64>),
}

impl Storage {
    fn class(&self) -> &'static str {
        match self {
            Storage::Float(_) => "FloatStorage",
            Storage::Byte(_) => "ByteStorage",
            Storage::Long(_) => "LongStorage",
        }
    }

    fn len(&self) -> usize {
        match self {
            Storage::Float(v) => v.len(),
            Storage::Byte(v) => v.len(),
            Storage::Long(v) => v.len(),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Storage::Float(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Storage::Byte(v) => v.clone(),
            Storage::Long(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn from_bytes(class: &str, bytes: &[u8]) -> Option<Storage> {
        Some(match class {
            "FloatStorage" => {
                let (words, rest) = bytes.as_chunks::<4>();
                rest.is_empty().then_some(())?;
                Storage::Float(words.iter().map(|b| f32::from_le_bytes(*b)).collect())
            }
            "ByteStorage" => Storage::Byte(bytes.to_vec()),
            "LongStorage" => {
                let (words, rest) = bytes.as_chunks::<8>();
                rest.is_empty().then_some(())?;
                Storage::Long(words.iter().map(|b| i64::from_le_bytes(*b)).collect())
            }
            _ => return None,
        })
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TorchFileError {
    /// The file could not be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The end of the file is not the end of a zip.
    #[error("PytorchStreamReader failed reading zip archive: failed finding central directory")]
    NoCentralDirectory,
    /// An entry is missing or lies outside the file.
    #[error("PytorchStreamReader failed locating file {0}: file not found")]
    NoEntry(String),
    /// The pickle holds something that the writer never writes.
    #[error("invalid load key at byte {0} of data.pkl")]
    Pickle(usize),
}

/// The bytes of the file that holds `value`, written through a buffer.
pub fn encode(value: &Value) -> Vec<u8> {
    encode_as(value, "archive")
}

/// A pickle that stands alone, of a value without tensors.
pub fn pickled(value: &Value) -> Vec<u8> {
    pickle::encode(value, &mut Vec::new())
}

/// The bytes of the file that holds `value`; `stem`: the folder inside, named as the file it is written to.
pub fn encode_as(value: &Value, stem: &str) -> Vec<u8> {
    let mut storages = Vec::new();
    let pickled = pickle::encode(value, &mut storages);
    archive_of(&pickled, &storages, stem)
}

/// The bytes of a file that holds this pickle, whatever it says.
pub fn encode_pickle(pickled: &[u8]) -> Vec<u8> {
    archive_of(pickled, &[], "archive")
}

fn archive_of(pickled: &[u8], storages: &[&Storage], stem: &str) -> Vec<u8> {
    let mut archive = zip::Writer::default();
    archive.add(&format!("{stem}/data.pkl"), pickled);
    archive.add(&format!("{stem}/.format_version"), b"1");
    archive.add(&format!("{stem}/.storage_alignment"), b"64");
    archive.add(&format!("{stem}/byteorder"), b"little");
    for (index, storage) in storages.iter().enumerate() {
        archive.add(&format!("{stem}/data/{index}"), &storage.to_bytes());
    }
    archive.add(&format!("{stem}/version"), b"3\n");
    let id = format!("{:040}", archive.checksum());
    archive.add(&format!("{stem}/.data/serialization_id"), id.as_bytes());
    archive.finish()
}

/// Writes `value` to its final name at once, neither renamed nor flushed, as `torch.save` does.
pub fn write(path: &Path, value: &Value) -> io::Result<()> {
    fs::File::create(path)?.write_all(&encode(value))
}

/// Reads a file that [`write`] wrote.
pub fn read(path: &Path) -> Result<Value, TorchFileError> {
    decode(&fs::read(path)?)
}

/// Reads the bytes that [`encode`] made.
pub fn decode(bytes: &[u8]) -> Result<Value, TorchFileError> {
    let archive = zip::Reader::open(bytes)?;
    let pickled = archive.entry("archive/data.pkl")?;
    pickle::decode(pickled, |key, class, length| {
        let name = format!("archive/data/{key}");
        let storage = Storage::from_bytes(class, archive.entry(&name)?);
        storage
            .filter(|s| s.len() == length)
            .ok_or(TorchFileError::NoEntry(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        dict([
            ("weights", Tensor::floats(&[1.5, -2.25, f32::MIN_POSITIVE])),
            ("rng", Tensor::bytes(&[0, 255, 7])),
            ("order", Tensor::longs(&[-1, i64::MAX])),
            ("count", Tensor::scalar(3.0)),
            ("big", Value::Int(1 << 40)),
            ("small", Value::Int(-7)),
            ("betas", Value::Tuple(vec![Value::Float(0.9), Value::Float(0.999)])),
            (
                "flags",
                Value::List(vec![Value::Bool(true), Value::Bool(false), Value::None]),
            ),
            ("empty", Value::List(vec![])),
            ("inner", Value::Ordered(vec![(Value::Str("ü".into()), Value::Int(0))])),
            ("state", Value::Dict(vec![(Value::Int(2), Value::Str(String::new()))])),
        ])
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(decode(&encode(&sample())).unwrap(), sample());
    }

    #[test]
    fn a_cut_file_never_loads() {
        let whole = encode(&sample());
        for length in 0..whole.len() {
            assert!(
                decode(&whole[..length]).is_err(),
                "{length} of {} bytes loaded",
                whole.len()
            );
        }
    }

    #[test]
    fn a_flipped_byte_in_a_storage_loads_without_a_word() {
        let mut bytes = encode(&Tensor::floats(&[1.0; 64]));
        let one = 1.0f32.to_le_bytes().repeat(64);
        let at = bytes.windows(256).position(|w| w == one).unwrap();
        assert_eq!(at % 64, 0);
        bytes[at + 2] ^= 0x40;
        assert_ne!(decode(&bytes).unwrap(), Tensor::floats(&[1.0; 64]));
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let whole = encode(&sample());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            let _ = decode(&bytes);
        }
    }
}
