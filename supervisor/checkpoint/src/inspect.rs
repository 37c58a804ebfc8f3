//! The first stage of a proof: inspects the structure of one file.
//!
//! The kind is chosen by name ([`FileKind::of`]), never by content: a shard that turned into text is damaged, not a text file. The result
//! is always an [`InspectedFile`] with findings.

use crate::detail::{FileDescription, FileDetail};
use crate::kind::FileKind;
use crate::limits::InspectLimits;
use crate::plan::{ByteExtent, ReadPlan};
use crate::raw::shown;
use crate::source::{ByteSource, FileReader};
use crate::torch::{TorchFacts, TorchTensor};
use crate::{bare, dataloader, dcp, json, megatron, queue, safetensors, torch, zip};
use std::collections::HashSet;
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, FindingLevel, Verdict};

/// Bytes of a text file to check; the rest is left to the read plan.
const TEXT: u64 = 1 << 20;

/// Text up to this size, in bytes, is kept as a fact: a tracker's, for example.
const WORDS: usize = 256;

/// The unit in which file systems lose writes, in bytes.
const BLOCK: usize = 4096;
/// Text may end with a zero or two (UTF-16, old habits), but not with this many.
const ZEROS: usize = 16;

/// What was found in the structure of a file.
#[derive(Debug)]
pub struct InspectedFile {
    pub kind: FileKind,
    pub bytes: u64,
    pub findings: Vec<Finding>,
    /// Its tensors, if the format has any.
    pub inventory: Vec<TorchTensor>,
    /// What a full proof reads.
    pub plan: ReadPlan,
    pub facts: FileDetail,
    /// Whether every relevant byte was already read, so that a full proof reads nothing more.
    pub read_all: bool,
    /// For a `.distcp` file, where the elements of the chunks are.
    pub held: Vec<dcp::ChunkLocation>,
    /// What it says about other files.
    pub description: Option<Arc<FileDescription>>,
    /// The CRC-32 of all bytes, if they were read in one piece.
    pub(crate) crc: Option<u32>,
    pub(crate) max_findings: usize,
}

impl InspectedFile {
    pub(crate) fn new(kind: FileKind, limits: &InspectLimits) -> Self {
        Self {
            kind,
            bytes: 0,
            findings: Vec::new(),
            inventory: Vec::new(),
            plan: ReadPlan::default(),
            facts: FileDetail::default(),
            read_all: false,
            held: Vec::new(),
            description: None,
            crc: None,
            max_findings: limits.findings,
        }
    }
}

/// Inspects the structure of a file.
#[must_use]
pub fn inspect(kind: FileKind, src: &dyn ByteSource, limits: &InspectLimits) -> InspectedFile {
    let mut out = InspectedFile::new(kind, limits);
    let tail = match kind {
        FileKind::TorchZip => zip::TAIL,
        FileKind::Safetensors => 2 * BLOCK,
        _ => 0,
    };
    let read = FileReader::open(src, tail)
        .map_err(Box::<Finding>::from)
        .and_then(|file| {
            out.bytes = file.len();
            let looked = look(&file, limits, &mut out);
            out.crc = file.crc();
            looked
        });
    if let Err(fatal) = read {
        out.findings.push(*fatal);
    }
    whole_plan(&mut out);
    out
}

/// Makes a full proof read every byte, even if nothing in the file needs it: its CRC-32 is compared with later reads. A broken or only
/// sampled file is not read for that.
fn whole_plan(out: &mut InspectedFile) {
    out.plan.cover(out.bytes);
    let broken = out.findings.iter().any(|f| f.level == FindingLevel::Error);
    let sampled = out.kind == FileKind::Distcp && !out.read_all;
    if out.plan.extents.is_empty() && out.crc.is_none() && out.bytes > 0 && !broken && !sampled {
        out.plan = ReadPlan::unnamed(out.bytes);
        out.read_all = false;
    }
}

fn look(file: &FileReader<'_>, limits: &InspectLimits, out: &mut InspectedFile) -> Result<(), Box<Finding>> {
    match out.kind {
        FileKind::TorchZip => {
            let found = torch::inspect(file, limits, &mut out.findings);
            out.plan = found.plan;
            out.inventory = found.tensors;
            out.facts.torch = Some(found.facts);
        }
        FileKind::Json => {
            let text = json::bytes(file, limits)?;
            json::object(&text, limits)?;
            out.facts.parallel = megatron::parallel(&text, limits);
            out.read_all = true;
        }
        FileKind::AnyJson => {
            json::any(&json::bytes(file, limits)?, limits)?;
            out.read_all = true;
        }
        FileKind::ModelConfig => {
            out.facts.parallel = megatron::parallel(&json::model_config(file, limits)?, limits);
            out.read_all = true;
        }
        FileKind::Settings => {
            json::settings(file, limits)?;
            out.read_all = true;
        }
        FileKind::Tokenizer => {
            json::tokenizer(file, limits)?;
            out.read_all = true;
        }
        FileKind::FsdpConfig => {
            let config = json::fsdp_config(file, limits)?;
            out.facts.world_size = Some(config.world_size);
            out.facts.fsdp_version = Some(config.version);
            out.read_all = true;
        }
        FileKind::StepInfo => {
            out.facts.step_info = Some(json::step_info(file, limits)?);
            out.read_all = true;
        }
        FileKind::FreqControl => {
            let (checks, frequencies) = json::checks(file, limits)?;
            out.facts.checks = Some(checks);
            out.facts.frequencies = Some(frequencies);
            out.read_all = true;
        }
        FileKind::StatsInfo => {
            json::stats_info(file, limits)?;
            out.read_all = true;
        }
        FileKind::TrainerState => {
            out.facts.trainer_state = Some(json::trainer_state(file, limits)?);
            out.read_all = true;
        }
        FileKind::Safetensors => {
            let header = safetensors::inspect(file, limits)?;
            out.facts.tensors = Some(header.plan.extents.len() as u64);
            out.facts.elements = Some(header.elements);
            out.inventory = header.tensors;
            out.plan = header.plan;
            if header.pieces {
                let detail = "its tensors are pieces that torch's distributed writer did not join yet: how they fit is not read here";
                out.findings
                    .push(Finding::error("weights_in_pieces", Verdict::Unknown, detail).at(8));
            }
            zero_tail(file, out);
        }
        FileKind::SafetensorsIndex => {
            let index = safetensors::index(file, limits)?;
            out.facts.tensors = Some(index.tensors);
            out.facts.shards = index.shards();
            out.description = Some(Arc::new(FileDescription::Weights(index)));
            out.read_all = true;
        }
        FileKind::DcpMetadata => {
            out.read_all = true;
            let pickle = bare::read(file, limits, &mut out.findings)?;
            out.facts.torch = TorchFacts::of_names(pickle.unfamiliar());
            if let Some(dcp) = dcp::read_metadata(&pickle, limits, &mut out.findings)? {
                out.inventory = dcp.inventory(limits.tensors);
                out.facts.tensors = Some(dcp.tensors.len() as u64);
                out.facts.dcp = Some(dcp.facts());
                out.description = Some(Arc::new(FileDescription::Dcp(dcp)));
            }
        }
        FileKind::Distcp => distcp(file, out)?,
        FileKind::Pickle => {
            out.read_all = true;
            let pickle = bare::read(file, limits, &mut out.findings)?;
            out.facts.torch = TorchFacts::of_names(pickle.unfamiliar());
            if let Some(root) = pickle.root {
                dataloader::check(&pickle.heap, root, &mut out.findings);
            }
            out.facts.queue = pickle
                .root
                .and_then(|root| queue::unit(&pickle.heap, root, &mut out.findings));
            let items = pickle.root.and_then(|root| pickle.heap.items(root));
            out.facts.items = items.map(|list| list.len() as u64);
            let list = items.unwrap_or_default().iter().chain(&pickle.root);
            out.facts.batches = list.filter_map(|v| torch::batches(&pickle.heap, *v)).min();
        }
        FileKind::CkptContents => {
            out.facts.manifest = Some(megatron::manifest(file, limits, &mut out.findings)?);
            out.read_all = true;
        }
        FileKind::MegatronMetadata => {
            out.facts.dist_backend = Some(megatron::dist_backend(file, limits, &mut out.findings)?);
            out.read_all = true;
        }
        FileKind::Integrity => {
            out.facts.integrity = megatron::integrity(file, limits)?;
            out.read_all = true;
        }
        FileKind::QueueMetadata => {
            out.facts.queue = Some(queue::metadata(file, limits)?);
            out.read_all = true;
        }
        FileKind::QueueUnits => {
            out.facts.queue = Some(queue::units(file, limits)?);
            out.read_all = true;
        }
        FileKind::Text => text(file, out)?,
        FileKind::Opaque => opaque(file, out)?,
    }
    Ok(())
}

/// Inspects a file against another one's description: `file_name` is its path next to that file. Without a description, it is inspected
/// on its own.
#[must_use]
pub fn inspect_described(
    kind: FileKind,
    src: &dyn ByteSource,
    description: &FileDescription,
    file_name: &str,
    limits: &InspectLimits,
) -> InspectedFile {
    match (kind, description) {
        (FileKind::Distcp, FileDescription::Dcp(dcp)) => {
            let found = dcp::inspect_parts(src, dcp, file_name, limits);
            let facts = FileDetail {
                tensors: found.tensors,
                elements: found.elements,
                torch: found.torch,
                dcp_steps: found.steps,
                ..FileDetail::default()
            };
            let mut out = InspectedFile {
                bytes: found.bytes,
                findings: found.findings,
                inventory: found.inventory,
                plan: found.plan,
                held: found.held,
                facts,
                read_all: found.unnamed,
                ..InspectedFile::new(kind, limits)
            };
            whole_plan(&mut out);
            out
        }
        _ => {
            let mut out = inspect(kind, src, limits);
            if let FileDescription::Weights(index) = description {
                compare(index, file_name, &mut out);
            }
            out
        }
    }
}

/// Compares the file's tensors with those that the index assigns to it.
fn compare(index: &safetensors::Index, file_name: &str, out: &mut InspectedFile) {
    let Some(named) = index.files.get(file_name) else {
        return;
    };
    let sound = out.findings.iter().all(|f| f.effect() == Verdict::Whole);
    if !sound || out.inventory.is_empty() || out.facts.tensors.is_none_or(|n| n != out.inventory.len() as u64) {
        return;
    }
    let there: HashSet<&str> = out.inventory.iter().map(|t| t.name.as_str()).collect();
    let mut missing = named.iter().filter(|n| !there.contains(n.as_str()));
    if let Some(first) = missing.next() {
        let detail = format!(
            "{} of {} tensors that the index names for it are not in the file, the first is {}",
            1 + missing.count(),
            named.len(),
            shown(first)
        );
        out.findings
            .push(Finding::error("index_tensor_missing", Verdict::Damaged, detail));
    }
}

/// A `.distcp` file alone does not show what it should contain.
fn distcp(file: &FileReader<'_>, out: &mut InspectedFile) -> Result<(), Box<Finding>> {
    opaque(file, out)?;
    let detail = "what it should hold is in the file .metadata next to it, which was not read";
    out.findings
        .push(Finding::error("distcp_alone", Verdict::Unknown, detail));
    Ok(())
}

/// Text may be empty (an `__init__.py`), but not zeros.
fn text(file: &FileReader<'_>, out: &mut InspectedFile) -> Result<(), Box<Finding>> {
    let n = file.len().min(TEXT);
    let bytes = file.bytes(0, n as usize)?;
    zeros(&bytes, out);
    let tail = bytes.iter().rev().take_while(|b| **b == 0).count();
    if tail >= ZEROS && tail < bytes.len() {
        let detail = format!("text ends with {tail} zeros: they were never written");
        let at = n - tail as u64;
        out.findings
            .push(Finding::error("torn_write", Verdict::Damaged, detail).at(at));
    }
    out.read_all = n == file.len();
    if !out.read_all {
        out.plan = whole(file.len());
    }
    let words = std::str::from_utf8(&bytes).ok().map(str::trim);
    out.facts.text = words.filter(|w| w.len() <= WORDS).map(str::to_owned);
    Ok(())
}

/// Reports zeros at the end of a file, which a crashed machine loses first. Numbers may be zeros, so this is only a warning.
fn zero_tail(file: &FileReader<'_>, out: &mut InspectedFile) {
    let zeros = file.tail().iter().rev().take_while(|b| **b == 0).count() as u64;
    let from = (file.len() - zeros).next_multiple_of(BLOCK as u64);
    if from + BLOCK as u64 <= file.len() {
        let detail = format!(
            "the last {} bytes or more are zeros: perhaps they were never written",
            file.len() - from
        );
        out.findings.push(Finding::warning("zero_blocks", detail).at(from));
    }
}

fn opaque(file: &FileReader<'_>, out: &mut InspectedFile) -> Result<(), Box<Finding>> {
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

fn zeros(bytes: &[u8], out: &mut InspectedFile) {
    if !bytes.is_empty() && bytes.iter().all(|b| *b == 0) {
        let detail = "the file holds zeros where it should begin: its blocks were never written";
        out.findings
            .push(Finding::error("zero_filled", Verdict::Damaged, detail).at(0));
    }
}

fn whole(len: u64) -> ReadPlan {
    ReadPlan {
        extents: vec![ByteExtent {
            off: 0,
            len,
            crc: None,
            dtype: None,
            what: "the file".to_owned(),
        }],
    }
}
