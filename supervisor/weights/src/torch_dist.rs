//! Builds a `torch_dist` checkpoint from a model, in `torch.distributed.checkpoint`'s format as Megatron writes it.
//!
//! Source: torch 2.11 `distributed/checkpoint/metadata.py` and `filesystem.py` (each item of a file is an archive of `torch.save`),
//! megatron-core 0.16 `dist_checkpointing/{core,serialization,strategies/torch,strategies/common}.py`. Only what torch 2.1 and later can
//! read is written.

mod table;

use crate::archive::{ArchiveEntry, ArchiveLayout};
use crate::archive_writer::Archives;
use crate::layout::OutTensor;
use crate::megatron::MegatronModel;
use crate::model::{ModelWeights, row_major};
use crate::problem::ModelError;
use crate::read::{ModelReader, SharedSource};
use crate::write::{OutputSink, WriteError};
use std::ops::ControlFlow;
use supervise_checkpoint::Dtype;
use table::{PickleWriter, StoredItem, torch_name};

/// Size from which another file is started, in bytes.
const FILE: u64 = 4 << 30;
/// Entries that `torch.save` adds to each archive.
const ORDER: &[u8] = b"little";
const VERSION: &[u8] = b"3\n";

/// The files of the checkpoint.
#[derive(Debug)]
pub struct TorchDistPlan {
    archives: Archives,
    small: [(&'static str, Vec<u8>); 3],
}

/// Plans the files of a model.
///
/// # Errors
/// A type that torch has no storage for.
pub fn plan(model: MegatronModel) -> Result<TorchDistPlan, ModelError> {
    let mut archives = Archives::default();
    let mut table = Vec::new();
    let mut tensors = Vec::new();
    let place = |archives: &mut Archives, entries: Vec<ArchiveEntry>, tensor: Option<OutTensor>| {
        let layout = ArchiveLayout::of("archive", &entries)?;
        if archives.last_bytes() == 0 || archives.last_bytes() >= FILE {
            let file = archives.files().count();
            archives.begin(format!("__0_{file}.distcp"));
        }
        let (at, length) = archives.add(layout, entries, tensor.map(|t| (STORAGE, t)));
        let file = archives.files().count() - 1;
        Ok::<_, ModelError>(StoredItem { file, at, length })
    };
    for (key, global) in model.tensors {
        let mut chunks = Vec::with_capacity(global.parts.len());
        for part in global.parts {
            let entries = saved(&tensor(&part.tensor)?, Some(part.tensor.bytes()));
            chunks.push((part.offsets.clone(), part.tensor.shape.clone()));
            let stored = place(&mut archives, entries, Some(part.tensor))?;
            table.push((key.clone(), Some(part.offsets), stored));
        }
        tensors.push((key, global.dtype, global.shape, chunks));
    }
    for state in &model.states {
        let stored = place(&mut archives, saved(b"\x80\x02]q\0Na.", None), None)?;
        table.push((state.clone(), None, stored));
    }
    let common = saved(b"\x80\x02}q\0.", None);
    let small = [
        (".metadata", table::metadata(&tensors, &model.states, &table)?),
        ("common.pt", alone("common", &common)?),
        ("metadata.json", CONFIG.to_vec()),
    ];
    Ok(TorchDistPlan { archives, small })
}

/// Megatron's `metadata.json`.
const CONFIG: &[u8] = br#"{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}"#;
/// Index of the storage among an archive's entries.
const STORAGE: usize = 2;

/// Entries of an archive: values, and the storage that they refer to.
fn saved(values: &[u8], storage: Option<u64>) -> Vec<ArchiveEntry> {
    let small = |name: &str, bytes: &[u8]| ArchiveEntry {
        name: name.to_owned(),
        len: bytes.len() as u64,
        bytes: Some(bytes.to_vec()),
        zeros: 0,
    };
    let mut out = vec![small("data.pkl", values), small("byteorder", ORDER)];
    out.extend(storage.map(|len| ArchiveEntry {
        name: "data/0".to_owned(),
        len,
        bytes: None,
        zeros: 0,
    }));
    out.push(small("version", VERSION));
    out
}

/// The bytes of a small archive.
fn alone(name: &str, entries: &[ArchiveEntry]) -> Result<Vec<u8>, ModelError> {
    let layout = ArchiveLayout::of(name, entries)?;
    let mut out = vec![0; layout.bytes as usize];
    let mut put = |at: u64, bytes: &[u8]| out[at as usize..][..bytes.len()].copy_from_slice(bytes);
    let mut crcs = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        let bytes = entry.bytes.as_deref().unwrap_or_default();
        put(layout.data(n), bytes);
        crcs.push(crc32fast::hash(bytes));
    }
    for (at, bytes) in layout.frame(&crcs) {
        put(at, &bytes);
    }
    Ok(out)
}

/// The pickled call that builds a tensor from its storage.
fn tensor(tensor: &OutTensor) -> Result<Vec<u8>, ModelError> {
    let class = match tensor.dtype {
        Dtype::F64 => "DoubleStorage",
        Dtype::F32 => "FloatStorage",
        Dtype::F16 => "HalfStorage",
        Dtype::Bf16 => "BFloat16Storage",
        other => {
            return Err(torch_name(other)
                .err()
                .unwrap_or_else(|| ModelError::unknown(other.word())));
        }
    };
    let mut out = PickleWriter::new();
    out.global("torch._utils", "_rebuild_tensor_v2");
    out.raw(b"((");
    out.text("storage")?;
    out.global("torch", class);
    out.text("0")?;
    out.text("cpu")?;
    out.int(crate::model::elements(&tensor.shape));
    out.raw(b"tQ");
    out.int(0);
    out.numbers(&tensor.shape);
    out.numbers(&row_major(&tensor.shape));
    out.raw(b"\x89");
    out.global("collections", "OrderedDict");
    out.raw(b")RtR");
    Ok(out.end())
}

impl TorchDistPlan {
    /// Names and lengths of the tensor files.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.archives.files()
    }

    /// Names and contents of the other files.
    pub fn small(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.small.iter().map(|(name, bytes)| (*name, bytes.as_slice()))
    }

    /// Writes the tensor files. Returns the number of source bytes whose checksums were compared.
    ///
    /// # Errors
    /// A source that is damaged or cannot be read, an output that cannot be written.
    pub fn write(
        &self,
        weights: &ModelWeights,
        sources: &[Box<SharedSource>],
        target: &dyn OutputSink,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
    ) -> Result<u64, WriteError> {
        let reading = ModelReader::new(weights, sources);
        self.archives.write(reading, target, threads, progress)
    }
}
