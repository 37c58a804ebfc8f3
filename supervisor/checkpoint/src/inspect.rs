//! The first call of a proof: the structure of one file.
//!
//! The kind is chosen by name ([`FileKind::of`]), never by what the bytes claim to be: a shard that turned into text is
//! damaged, not a text file. Whatever happens, the answer is an [`Inspected`] with findings.

use crate::judge::FileDetail;
use crate::limits::Limits;
use crate::plan::{Extent, ReadPlan};
use crate::source::{Reader, Source};
use crate::torch::Tensor;
use crate::{json, safetensors, torch, zip};
use serde::{Deserialize, Serialize};
use supervise_core::checkpoint::{Finding, Verdict};

/// Text files are looked at up to this size; the rest is left to the read plan.
const TEXT: u64 = 1 << 20;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file that `torch.save` wrote.
    TorchZip,
    /// A JSON object.
    Json,
    /// `fsdp_config.json`.
    FsdpConfig,
    /// A safetensors file.
    Safetensors,
    /// The index of several safetensors files.
    SafetensorsIndex,
    /// Text.
    Text,
    /// Bytes of no known format.
    Opaque,
}

impl FileKind {
    /// The kind that a file name promises; the folder does not matter.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ends = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
        match name {
            "fsdp_config.json" => Self::FsdpConfig,
            _ if ends(".safetensors.index.json") => Self::SafetensorsIndex,
            _ if ends(".safetensors") => Self::Safetensors,
            _ if ends(".pt") || ends(".pth") => Self::TorchZip,
            _ if ends(".json") => Self::Json,
            _ if [".txt", ".py", ".md", ".jinja", ".yaml", ".yml"]
                .iter()
                .any(|s| ends(s)) =>
            {
                Self::Text
            }
            _ => Self::Opaque,
        }
    }
}

/// What the structure of a file says.
#[derive(Debug)]
pub struct Inspected {
    /// How it was read.
    pub kind: FileKind,
    /// Its length.
    pub bytes: u64,
    /// What was found, in order.
    pub findings: Vec<Finding>,
    /// Tensors, where the format has any.
    pub inventory: Vec<Tensor>,
    /// What a full proof reads.
    pub plan: ReadPlan,
    /// What else it tells.
    pub facts: FileDetail,
    /// Every byte that matters was read already: a full proof reads nothing more.
    pub read_all: bool,
    pub(crate) max_findings: usize,
}

/// Looks at the structure of a file.
#[must_use]
pub fn inspect(kind: FileKind, src: &dyn Source, limits: &Limits) -> Inspected {
    let mut out = Inspected {
        kind,
        bytes: 0,
        findings: Vec::new(),
        inventory: Vec::new(),
        plan: ReadPlan::default(),
        facts: FileDetail::default(),
        read_all: false,
        max_findings: limits.findings,
    };
    let tail = match kind {
        FileKind::TorchZip => zip::TAIL,
        _ => 0,
    };
    let read = Reader::open(src, tail).map_err(Box::<Finding>::from).and_then(|file| {
        out.bytes = file.len();
        look(&file, limits, &mut out)
    });
    if let Err(fatal) = read {
        out.findings.push(*fatal);
    }
    out
}

fn look(file: &Reader<'_>, limits: &Limits, out: &mut Inspected) -> Result<(), Box<Finding>> {
    match out.kind {
        FileKind::TorchZip => {
            let found = torch::inspect(file, limits, &mut out.findings);
            out.plan = found.plan;
            out.inventory = found.tensors;
            out.facts.torch = Some(found.facts);
        }
        FileKind::Json => {
            json::object(file, limits)?;
            out.read_all = true;
        }
        FileKind::FsdpConfig => {
            let config = json::fsdp_config(file, limits)?;
            out.facts.world_size = Some(config.world_size);
            out.facts.fsdp_version = config.version;
            out.read_all = true;
        }
        FileKind::Safetensors => {
            let header = safetensors::inspect(file, limits)?;
            out.facts.tensors = Some(header.plan.extents.len() as u64);
            out.facts.elements = Some(header.elements);
            out.plan = header.plan;
        }
        FileKind::SafetensorsIndex => {
            let index = safetensors::index(file, limits)?;
            out.facts.tensors = Some(index.tensors);
            out.facts.shards = index.shards;
            out.read_all = true;
        }
        FileKind::Text => text(file, out)?,
        FileKind::Opaque => opaque(file, out)?,
    }
    Ok(())
}

/// Text may be empty (an `__init__.py`), but not zeros.
fn text(file: &Reader<'_>, out: &mut Inspected) -> Result<(), Box<Finding>> {
    let n = file.len().min(TEXT);
    let bytes = file.bytes(0, n as usize)?;
    zeros(&bytes, out);
    out.read_all = n == file.len();
    if !out.read_all {
        out.plan = whole(file.len());
    }
    Ok(())
}

fn opaque(file: &Reader<'_>, out: &mut Inspected) -> Result<(), Box<Finding>> {
    if file.is_empty() {
        return Err(Box::new(Finding::error(
            "empty_file",
            Verdict::Incomplete,
            "the file is empty",
        )));
    }
    let head = file.bytes(0, file.len().min(4096) as usize)?;
    zeros(&head, out);
    out.plan = whole(file.len());
    Ok(())
}

fn zeros(bytes: &[u8], out: &mut Inspected) {
    if !bytes.is_empty() && bytes.iter().all(|b| *b == 0) {
        let detail = "the file holds zeros where it should begin: its blocks were never written";
        out.findings
            .push(Finding::error("zero_filled", Verdict::Damaged, detail).at(0));
    }
}

fn whole(len: u64) -> ReadPlan {
    ReadPlan {
        extents: vec![Extent {
            off: 0,
            len,
            crc: None,
            dtype: None,
            what: "the file".to_owned(),
        }],
    }
}
