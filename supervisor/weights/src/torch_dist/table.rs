//! Writes a checkpoint's table, `.metadata`: a pickle of torch's own classes.

use crate::problem::ModelError;
use std::collections::{BTreeSet, HashMap};
use supervise_checkpoint::Dtype;

#[derive(Debug, Clone, Copy)]
pub(super) struct StoredItem {
    /// Index of its file.
    pub(super) file: usize,
    /// Its first byte there.
    pub(super) at: u64,
    /// In bytes.
    pub(super) length: u64,
}

/// A tensor: key, type, whole shape, and its boxes (start and size of each).
pub(super) type Described = (String, Dtype, Vec<u64>, Vec<(Vec<u64>, Vec<u64>)>);

const METADATA: &str = "torch.distributed.checkpoint.metadata";

/// Writes the whole table. `items`: key and location of each box of a tensor, or of a state without boxes.
pub(super) fn metadata(
    tensors: &[Described],
    states: &BTreeSet<String>,
    items: &[(String, Option<Vec<u64>>, StoredItem)],
) -> Result<Vec<u8>, ModelError> {
    let mut out = PickleWriter::new();
    out.object(METADATA, "Metadata");
    out.raw(b"(");
    out.text("state_dict_metadata")?;
    out.raw(b"}");
    for (key, dtype, shape, chunks) in tensors {
        out.text(key)?;
        out.object(METADATA, "TensorStorageMetadata");
        out.raw(b"(");
        out.text("properties")?;
        out.properties(*dtype)?;
        out.text("size")?;
        out.size(shape);
        out.text("chunks")?;
        out.raw(b"](");
        for (offsets, sizes) in chunks {
            out.object(METADATA, "ChunkStorageMetadata");
            out.raw(b"(");
            out.text("offsets")?;
            out.size(offsets);
            out.text("sizes")?;
            out.size(sizes);
            out.raw(b"ub");
        }
        out.raw(b"eubs");
    }
    for state in states {
        out.text(state)?;
        out.global(METADATA, "BytesStorageMetadata");
        out.raw(b")\x81s");
    }
    out.text("planner_data")?;
    out.raw(b"N");
    out.text("storage_data")?;
    out.raw(b"}");
    for (key, offsets, stored) in items {
        out.object(METADATA, "MetadataIndex");
        out.raw(b"(");
        out.text("fqn")?;
        out.text(key)?;
        out.text("index")?;
        out.raw(b"N");
        if let Some(offsets) = offsets {
            out.text("offset")?;
            out.size(offsets);
        }
        out.raw(b"ub");
        out.object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
        out.raw(b"(");
        out.text("relative_path")?;
        out.text(&format!("__0_{}.distcp", stored.file))?;
        out.text("offset")?;
        out.int(stored.at);
        out.text("length")?;
        out.int(stored.length);
        out.raw(b"ubs");
    }
    out.raw(b"ub");
    Ok(out.end())
}

pub(super) fn torch_name(dtype: Dtype) -> Result<&'static str, ModelError> {
    Ok(match dtype {
        Dtype::F64 => "float64",
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        other => {
            let text = format!(
                "numbers of the type {} are not written into such a checkpoint",
                other.word()
            );
            return Err(ModelError::unknown(text));
        }
    })
}

/// Writes a pickle of protocol 2.
pub(super) struct PickleWriter {
    out: Vec<u8>,
    /// Memo slots of names and texts: each is written once.
    memo: HashMap<String, u32>,
}

impl PickleWriter {
    pub(super) fn new() -> Self {
        Self {
            out: vec![0x80, 2],
            memo: HashMap::new(),
        }
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.out.push(b'.');
        self.out
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Fetches a text from the memo; returns whether it was there.
    fn fetched(&mut self, what: &str) -> bool {
        let next = self.memo.len() as u32;
        match self.memo.get(what) {
            Some(place) => {
                self.out.push(b'j');
                self.out.extend(place.to_le_bytes());
                true
            }
            None => {
                self.memo.insert(what.to_owned(), next);
                false
            }
        }
    }

    /// Puts the value written last into the memo's newest slot.
    fn remember(&mut self) {
        self.out.push(b'r');
        self.out.extend((self.memo.len() as u32 - 1).to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), ModelError> {
        let len = u32::try_from(text.len()).map_err(|_| ModelError::unknown("a name is longer than 4 GiB"))?;
        if !self.fetched(text) {
            self.out.push(b'X');
            self.out.extend(len.to_le_bytes());
            self.out.extend(text.as_bytes());
            self.remember();
        }
        Ok(())
    }

    pub(super) fn global(&mut self, module: &str, name: &str) {
        let word = format!("{module}\n{name}\n");
        if !self.fetched(&word) {
            self.out.push(b'c');
            self.out.extend(word.as_bytes());
            self.remember();
        }
    }

    fn object(&mut self, module: &str, name: &str) {
        self.global(module, name);
        self.raw(b")\x81}");
    }

    pub(super) fn int(&mut self, n: u64) {
        if let Ok(small) = u8::try_from(n) {
            self.out.extend([b'K', small]);
        } else if let Ok(four) = i32::try_from(n) {
            self.out.push(b'J');
            self.out.extend(four.to_le_bytes());
        } else {
            // No file, and no tensor in one, exceeds 63 bits.
            self.out.extend([0x8a, 8]);
            self.out.extend(n.to_le_bytes());
        }
    }

    pub(super) fn numbers(&mut self, all: &[u64]) {
        self.out.push(b'(');
        for n in all {
            self.int(*n);
        }
        self.out.push(b't');
    }

    fn size(&mut self, all: &[u64]) {
        self.global("torch", "Size");
        self.raw(b"(");
        self.numbers(all);
        self.raw(b"tR");
    }

    fn properties(&mut self, dtype: Dtype) -> Result<(), ModelError> {
        self.global(METADATA, "TensorProperties");
        self.raw(b")\x81(");
        self.global("torch", torch_name(dtype)?);
        self.global("torch.serialization", "_get_layout");
        self.raw(b"(");
        self.text("torch.strided")?;
        self.raw(b"tR\x89");
        self.global(METADATA, "_MEM_FORMAT_ENCODING");
        self.raw(b"(K\x00tR\x89tb");
        Ok(())
    }
}
