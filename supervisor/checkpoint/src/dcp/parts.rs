//! Inspects the parts of a `.distcp` file, each a file of `torch.save` of its own.
//!
//! Every part is inspected like a file, through a window: its archive, its pickle (a part may contain any object, including a dangerous
//! one), and whether it is the tensor that `.metadata` describes. Offsets in findings and extents are relative to the whole file.
//! Whatever the inspection already reads and checksums is left out of the plan, so that the plan of a file with 100,000 parts has one
//! extent for each.

use super::findings::FindingCollector;
use super::steps::OptimizerSteps;
use super::window::{PartWindow, ReadAhead, SMALL};
use super::{COMMON_STATE, ChunkLocation, DcpMetadata, StorageRange, StoredValue};
use crate::bare;
use crate::dtype::Dtype;
use crate::limits::InspectLimits;
use crate::plan::{ByteExtent, ReadPlan};
use crate::raw::shown;
use crate::source::{ByteSource, FileReader, ReadFault};
use crate::torch::{self, TorchFacts, TorchInspection, TorchTensor};
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::{Finding, Verdict};

/// Bytes at the end of a large part to fetch first: its directory has only a handful of entries.
const TAIL: usize = 4096;
/// Gaps between parts are read up to this size, in bytes.
const GAP: u64 = 1 << 20;
/// Entries that are read and checksummed during the inspection, and their size.
const CHECKED: [&str; 6] = [
    "data.pkl",
    "version",
    "byteorder",
    ".format_version",
    ".storage_alignment",
    ".data/serialization_id",
];

/// The most unfamiliar imported names to keep.
const STRANGE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct DistcpFile {
    pub(crate) bytes: u64,
    pub(crate) findings: Vec<Finding>,
    pub(crate) inventory: Vec<TorchTensor>,
    /// Tensors that the table assigns to the file, and the elements of those in the inventory.
    pub(crate) tensors: Option<u64>,
    pub(crate) elements: Option<u64>,
    pub(crate) steps: BTreeMap<String, Vec<u64>>,
    pub(crate) torch: Option<TorchFacts>,
    pub(crate) plan: ReadPlan,
    /// Locations of the chunks that match the table, in order of offset.
    pub(crate) held: Vec<ChunkLocation>,
    /// Whether no table names the file, so that nothing in it is read.
    pub(crate) unnamed: bool,
}

pub(crate) fn inspect_parts(
    src: &dyn ByteSource,
    dcp: &DcpMetadata,
    file_name: &str,
    limits: &InspectLimits,
) -> DistcpFile {
    let mut out = DistcpFile::default();
    if let Err(fatal) = look(src, dcp, file_name, limits, &mut out) {
        out.findings.push(*fatal);
    }
    out
}

fn look(
    src: &dyn ByteSource,
    dcp: &DcpMetadata,
    file_name: &str,
    limits: &InspectLimits,
    out: &mut DistcpFile,
) -> Result<(), Box<Finding>> {
    let len = src.len().map_err(|error| ReadFault::Io { at: 0, error })?;
    out.bytes = len;
    let Some(parts) = dcp.parts.get(file_name) else {
        let detail = "the file .metadata does not name it: it is left over from an earlier save";
        out.findings.push(Finding::warning("distcp_unreferenced", detail));
        out.unnamed = true;
        return Ok(());
    };
    describe(parts, limits, out);
    if len == 0 {
        let empty = Finding::error("empty_file", Verdict::Incomplete, "the file is empty");
        return Err(Box::new(empty));
    }
    truncated(parts, len, out);
    let ahead = ReadAhead::new(src, len);
    gaps(&ahead, parts, len, out)?;
    let mut look = PartCheck {
        ahead: &ahead,
        limits,
        said: FindingCollector::default(),
        steps: OptimizerSteps::default(),
        unfamiliar: BTreeSet::new(),
        encoded: 0,
        extents: Vec::new(),
        held: Vec::new(),
        common: None,
    };
    let there: Vec<&StorageRange> = sound(parts, len);
    let sampled = !limits.all_parts && there.len() > limits.parts;
    let looked_at = if sampled { limits.parts.max(1) } else { there.len() };
    for n in 0..looked_at {
        if !look.part(there[spread(n, looked_at, there.len())]) {
            break;
        }
    }
    look.finish(out);
    if sampled {
        let detail = format!("{looked_at} of {} parts were looked into (limit)", there.len());
        out.findings.push(Finding::note("distcp_sampled", detail));
        out.plan.extents.clear();
    }
    out.plan.cover(len);
    Ok(())
}

/// Returns the index of the n-th of `few`, spread evenly over `many` from first to last.
fn spread(n: usize, few: usize, many: usize) -> usize {
    if few < 2 {
        return n;
    }
    n * (many - 1) / (few - 1)
}

/// The parts that are inside the file and do not overlap.
fn sound(parts: &[StorageRange], len: u64) -> Vec<&StorageRange> {
    let mut at = 0;
    let behind = |p: &&StorageRange| match p.off.checked_add(p.len).filter(|e| *e <= len && p.off >= at) {
        Some(end) => {
            at = end;
            true
        }
        None => false,
    };
    parts.iter().filter(behind).collect()
}

fn describe(parts: &[StorageRange], limits: &InspectLimits, out: &mut DistcpFile) {
    let tensors = || parts.iter().filter(|p| matches!(p.what, StoredValue::Tensor { .. }));
    let tensor = |p: &StorageRange| match &p.what {
        StoredValue::Tensor { dtype, shape, .. } => Some(TorchTensor {
            name: p.fqn.to_string(),
            dtype: *dtype,
            shape: shape.to_vec(),
            stride: Vec::new(),
            storage: None,
            offset: 0,
            placement: None,
        }),
        StoredValue::Bytes => None,
    };
    out.inventory = tensors().filter_map(tensor).take(limits.tensors).collect();
    out.tensors = Some(tensors().count() as u64);
    out.elements = Some(out.inventory.iter().fold(0, |n, t| n.saturating_add(t.elements())));
}

fn truncated(parts: &[StorageRange], len: u64, out: &mut DistcpFile) {
    let beyond = |p: &&StorageRange| p.off.checked_add(p.len).is_none_or(|end| end > len);
    let mut cut = parts.iter().filter(beyond);
    let Some(first) = cut.next() else {
        return;
    };
    let end = parts.last().map_or(0, |p| p.off.saturating_add(p.len));
    let detail = format!(
        "the file has {len} bytes and should have {end}: {} of {} parts are cut off or missing, the first is {}",
        1 + cut.count(),
        parts.len(),
        shown(&first.fqn)
    );
    out.findings
        .push(Finding::error("distcp_truncated", Verdict::Incomplete, detail).at(len));
}

/// Reports bytes between parts: torch leaves none, and truncates a file before writing it again.
fn gaps(ahead: &ReadAhead<'_>, parts: &[StorageRange], len: u64, out: &mut DistcpFile) -> Result<(), Box<Finding>> {
    let (mut at, mut first, mut sum) = (0_u64, None, 0_u64);
    let ends = parts.iter().map(|p| (p.off, p.off.saturating_add(p.len)));
    for (from, to) in ends {
        let from = from.min(len);
        if from > at && data(ahead, at, from - at)? {
            first.get_or_insert(at);
            sum = sum.saturating_add(from - at);
        }
        at = at.max(to);
    }
    if at < len {
        let detail = format!(
            "{} bytes follow the last part: the file was written for another .metadata",
            len - at
        );
        out.findings
            .push(Finding::error("distcp_trailing", Verdict::Damaged, detail).at(at));
    }
    if let Some(first) = first {
        let detail = format!("{sum} bytes belong to no part that .metadata names");
        out.findings.push(Finding::warning("distcp_gap", detail).at(first));
    }
    Ok(())
}

/// Whether a gap contains anything but zeros; a large one is assumed to.
fn data(ahead: &ReadAhead<'_>, at: u64, n: u64) -> Result<bool, Box<Finding>> {
    if n > GAP {
        return Ok(true);
    }
    let window = PartWindow::new(ahead, at, n);
    let bytes = FileReader::open(&window, 0)?.bytes(0, n as usize)?;
    Ok(bytes.iter().any(|b| *b != 0))
}

struct PartCheck<'a> {
    ahead: &'a ReadAhead<'a>,
    limits: &'a InspectLimits,
    said: FindingCollector,
    steps: OptimizerSteps,
    unfamiliar: BTreeSet<String>,
    encoded: u64,
    extents: Vec<ByteExtent>,
    held: Vec<ChunkLocation>,
    /// Facts of Megatron's common object, if this file contains it.
    common: Option<TorchFacts>,
}

impl PartCheck<'_> {
    /// Inspects one part. Returns whether to continue: false if the file cannot be read.
    fn part(&mut self, part: &StorageRange) -> bool {
        if part.encoded {
            self.encoded += 1;
            self.extents.push(extent(part.off, part.len, None, &part.fqn));
            return true;
        }
        let window = PartWindow::new(self.ahead, part.off, part.len);
        let tail = if part.len <= SMALL { SMALL as usize } else { TAIL };
        let mut findings = Vec::new();
        let read = FileReader::open(&window, tail).map_err(Box::<Finding>::from);
        match read.and_then(|file| self.inside(part, &file, &mut findings)) {
            Ok(()) => {}
            Err(fatal) => findings.push(*fatal),
        }
        let mut go_on = true;
        for f in findings {
            go_on &= f.effect() != Verdict::Unreadable && f.code != "file_changed";
            self.said.add(placed(f, part));
        }
        go_on
    }

    fn inside(
        &mut self,
        part: &StorageRange,
        file: &FileReader<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Box<Finding>> {
        let is_pickle = part.what == StoredValue::Bytes && file.bytes(0, 1)?.first() == Some(&0x80);
        if is_pickle {
            let names = bare::read(file, self.limits, findings)?.unfamiliar();
            if self.unfamiliar.len() < STRANGE {
                self.unfamiliar.extend(names);
            }
            self.extents.push(extent(part.off, part.len, None, &part.fqn));
            return Ok(());
        }
        let found = torch::inspect(file, self.limits, findings);
        if self.unfamiliar.len() < STRANGE {
            self.unfamiliar.extend(found.facts.unfamiliar.iter().cloned());
        }
        if findings.iter().all(|f| f.effect() == Verdict::Whole) {
            findings.extend(differs(part, &found));
            self.held.extend(held(part, &found));
            self.steps.look(part, file, &found)?;
        }
        if part.what == StoredValue::Bytes && part.fqn.split('/').next() == Some(COMMON_STATE) {
            self.common = Some(found.facts.clone());
        }
        // Read all entries of the first part again, so that a file in which no checksum matches is not mistaken for one whose writer
        // computed none.
        let all = self.extents.is_empty();
        for e in found.plan.extents.iter().filter(|e| !e.is_gap()) {
            let name = e.what.split_once('/').map_or(e.what.as_str(), |(_, name)| name);
            let checked = CHECKED.contains(&name) && (name == "data.pkl" || e.len <= 64);
            if all || !checked {
                let what = match name {
                    "data/0" => part.fqn.to_string(),
                    _ => format!("{} {name}", part.fqn),
                };
                self.extents.push(ByteExtent {
                    dtype: e.dtype,
                    ..extent(part.off.saturating_add(e.off), e.len, e.crc, &what)
                });
            }
        }
        Ok(())
    }

    fn finish(self, out: &mut DistcpFile) {
        out.findings.extend(self.said.into_findings());
        if self.encoded > 0 {
            let detail = format!(
                "{} parts were changed on their way into the file (compressed or encrypted) and cannot be looked into",
                self.encoded
            );
            out.findings
                .push(Finding::error("distcp_encoded", Verdict::Unknown, detail));
        }
        out.steps = self.steps.into_groups();
        let unfamiliar: Vec<String> = self.unfamiliar.into_iter().take(STRANGE).collect();
        out.torch = match self.common {
            // The archive's name is not the file's name.
            Some(common) => Some(TorchFacts {
                unfamiliar,
                archive: None,
                ..common
            }),
            None => TorchFacts::of_names(unfamiliar),
        };
        out.plan.extents = self.extents;
        out.held = self.held;
    }
}

fn extent(off: u64, len: u64, crc: Option<u32>, what: &str) -> ByteExtent {
    ByteExtent {
        off,
        len,
        crc,
        dtype: None,
        what: what.to_owned(),
    }
}

fn placed(mut f: Finding, part: &StorageRange) -> Finding {
    f.offset = Some(part.off.saturating_add(f.offset.unwrap_or(0)));
    f.detail = format!("{}: {}", shown(&part.fqn), f.detail);
    f
}

/// The location of the elements, if the part contains only the described tensor.
fn held(part: &StorageRange, found: &TorchInspection) -> Option<ChunkLocation> {
    let StoredValue::Tensor { dtype, shape, .. } = &part.what else {
        return None;
    };
    let [one] = found.tensors.as_slice() else {
        return None;
    };
    let swapped = found.facts.byteorder.as_deref() == Some("big");
    if found.facts.tensors != 1 || one.shape != **shape || one.dtype != *dtype || swapped {
        return None;
    }
    let key = one.storage.as_deref()?;
    let is_data = |what: &str| what.split_once("/data/").is_some_and(|(_, k)| k == key);
    let data = found.plan.extents.iter().find(|e| is_data(&e.what))?;
    let within = one.offset.checked_mul(one.dtype?.size())?;
    Some(ChunkLocation {
        part: part.off,
        at: part.off.checked_add(data.off)?.checked_add(within)?,
        stride: one.stride.clone(),
    })
}

/// Reports a part that is intact but differs from its description: another save wrote it. Tensor classes that are not torch's may store
/// their elements in another form, so those give only a warning.
fn differs(part: &StorageRange, found: &TorchInspection) -> Option<Finding> {
    let StoredValue::Tensor { dtype, shape, .. } = &part.what else {
        return None;
    };
    let words = |dtype: Option<Dtype>, shape: &[u64]| {
        format!("{} {shape:?}", dtype.map_or("elements of an unknown type", Dtype::word))
    };
    let there = match found.tensors.as_slice() {
        [one] if found.facts.tensors == 1 => {
            if one.shape == **shape && (dtype.is_none() || one.dtype == *dtype) {
                return None;
            }
            words(one.dtype, &one.shape)
        }
        _ => format!("{} tensors", found.facts.tensors),
    };
    let detail = format!("it holds {there}, .metadata says {}", words(*dtype, shape));
    if found.facts.unfamiliar.is_empty() {
        Some(Finding::error("distcp_content", Verdict::Damaged, detail))
    } else {
        Some(Finding::warning("distcp_content", detail))
    }
}
