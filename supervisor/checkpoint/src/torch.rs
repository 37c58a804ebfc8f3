//! Files written by `torch.save`: a zip whose `data.pkl` refers to storages kept as `data/<key>`.
//!
//! This is the strongest check of a save: every storage that the pickle refers to is an entry of exactly the size that its type and
//! element count require. torch closes the archive even when an exception aborts the save, so a valid zip alone proves little. The pickle
//! is read as data ([`crate::pickle`]); its own checksum is compared immediately, those of the storages are left to the read plan.

mod facts;
mod header;
mod rng;
mod steps;
mod storages;
mod tensors;

pub(crate) use facts::batches;
pub use facts::{ShardTotals, TorchFacts};
pub use storages::TorchStorage;
pub use tensors::{Placement, TorchTensor};

use crate::dtype::Dtype;
use crate::limits::InspectLimits;
use crate::pickle::{self, ParsedPickle};
use crate::plan::{ByteExtent, ReadPlan};
use crate::source::FileReader;
use crate::zip::{self, Archive, ZipEntry};
use std::collections::HashMap;
use supervise_core::checkpoint::{Finding, Verdict};

/// Entries up to this size, in bytes, are read and checksummed with the structure.
const SMALL: u64 = 64;

/// The content of one file.
#[derive(Debug, Default)]
pub struct TorchInspection {
    /// Tensors in file order, up to the limit.
    pub tensors: Vec<TorchTensor>,
    /// By key.
    pub storages: HashMap<String, TorchStorage>,
    /// Everything else that is known.
    pub facts: TorchFacts,
    pub plan: ReadPlan,
}

/// Inspects a file; adds findings, and returns everything else that could be read.
pub fn inspect(file: &FileReader<'_>, limits: &InspectLimits, findings: &mut Vec<Finding>) -> TorchInspection {
    let mut out = TorchInspection::default();
    if let Err(fatal) = look(file, limits, findings, &mut out) {
        findings.push(*fatal);
    }
    out
}

fn look(
    file: &FileReader<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
    out: &mut TorchInspection,
) -> Result<(), Box<Finding>> {
    let archive = zip::read(file, limits, findings)?;
    if !archive.zip64 {
        findings.push(Finding::note(
            "zip_no_zip64",
            "the archive has no zip64 end record: another program wrote it",
        ));
    }
    let names = EntryIndex::of(&archive)?;
    names.strangers(findings);
    out.facts.archive = Some(names.prefix.to_owned());
    let mut small = small_entries(file, &archive, &names, out)?;
    header::check(file, &names, findings)?;
    let data = names.find("data.pkl").ok_or_else(|| no_pickle(&archive))?;
    let bytes = pickle_bytes(file, data, limits)?;
    small.check(data, &bytes);
    let crcs = small.judge(findings);
    let limits = &InspectLimits {
        held: archive.weight(),
        ..limits.clone()
    };
    let pickle = pickle::read(bytes, limits);
    findings.extend(pickle.findings(data.data, limits.asks));
    out.facts.unfamiliar = pickle.unfamiliar();
    if pickle.error.is_none() && (pickle.used as u64) < data.size {
        let left = data.size - pickle.used as u64;
        findings.push(
            Finding::error(
                "pickle_trailing",
                Verdict::Damaged,
                format!("{left} bytes follow the end of data.pkl's stream"),
            )
            .at(data.data),
        );
    }
    let big_endian = out.facts.byteorder.as_deref() == Some("big");
    out.storages = storages::collect(&pickle, findings);
    if pickle.error.is_none() {
        storages::compare(&out.storages, &names, findings);
    }
    describe(file, &pickle, &names, limits, findings, out)?;
    if pickle.heap.is_exhausted() && pickle.error.is_none() {
        findings.push(pickle::exhausted().at(data.data));
    }
    out.plan = plan(&archive, &names, &out.storages, crcs, big_endian);
    Ok(())
}

/// Lists tensors and facts; they are only as reliable as the pickle.
fn describe(
    file: &FileReader<'_>,
    pickle: &ParsedPickle,
    names: &EntryIndex<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
    out: &mut TorchInspection,
) -> Result<(), Box<Finding>> {
    let Some(root) = pickle.root else {
        return Ok(());
    };
    let listed = tensors::list(&pickle.heap, root, limits);
    tensors::check(&listed, &out.storages, findings);
    out.facts.tensors = listed.count;
    out.facts.elements = listed.elements;
    if listed.cut {
        findings.push(Finding::note(
            "inventory_cut",
            "not all values were looked at when tensors were listed (limit)",
        ));
    }
    out.tensors = listed.tensors;
    facts::fill(&mut out.facts, &pickle.heap, root, &out.tensors);
    out.facts.rng = rng::look(&pickle.heap, root, &out.tensors, findings);
    out.facts.optimizer_steps = steps::read(file, &pickle.heap, root, &out.tensors, &out.storages, names)?;
    Ok(())
}

fn no_pickle(archive: &Archive) -> Box<Finding> {
    let detail = format!(
        "the archive has {} entries and no data.pkl: the save broke off",
        archive.entries.len()
    );
    Box::new(Finding::error("no_data_pkl", Verdict::Incomplete, detail))
}

fn pickle_bytes(file: &FileReader<'_>, data: &ZipEntry, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    match usize::try_from(data.size)
        .ok()
        .filter(|_| data.size <= limits.pickle_bytes)
    {
        Some(n) => Ok(file.bytes(data.data, n)?),
        None => {
            let detail = format!(
                "data.pkl has {} bytes, more than are looked at ({})",
                data.size, limits.pickle_bytes
            );
            Err(Box::new(
                Finding::error("limit_reached", Verdict::Unknown, detail).at(data.data),
            ))
        }
    }
}

/// The entries by their name below the common directory.
pub(crate) struct EntryIndex<'a> {
    prefix: &'a str,
    by_name: HashMap<&'a str, &'a ZipEntry>,
    strangers: Vec<&'a str>,
}

impl<'a> EntryIndex<'a> {
    /// torch takes the first entry's directory as the archive's name.
    fn of(archive: &'a Archive) -> Result<Self, Box<Finding>> {
        let first = archive.entries.first().ok_or_else(|| no_pickle(archive))?;
        let prefix = first.name.split_once('/').map_or("", |(folder, _)| folder);
        let mut by_name = HashMap::with_capacity(archive.entries.len());
        let mut strangers = Vec::new();
        for e in &archive.entries {
            match e.name.strip_prefix(prefix).and_then(|n| n.strip_prefix('/')) {
                Some(name) => drop(by_name.insert(name, e)),
                None => strangers.push(e.name.as_str()),
            }
        }
        Ok(Self {
            prefix,
            by_name,
            strangers,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a ZipEntry> {
        self.by_name.get(name).copied()
    }

    /// Finds an entry as torch does: ignoring case. No two names differ only in case.
    fn find(&self, name: &str) -> Option<&'a ZipEntry> {
        let alike = || self.by_name.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        self.get(name).or_else(|| alike().map(|(_, e)| *e))
    }

    /// Keys of the entries below `data/`.
    pub(crate) fn data_keys(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.by_name.keys().filter_map(|n| n.strip_prefix("data/"))
    }

    fn strangers(&self, findings: &mut Vec<Finding>) {
        if let Some(name) = self.strangers.first() {
            let (n, name) = (self.strangers.len(), crate::raw::shown(name));
            let detail = format!(
                "{n} entries are outside the folder {}: {name}",
                crate::raw::shown(self.prefix)
            );
            findings.push(Finding::error("zip_strangers", Verdict::Damaged, detail));
        }
        if self.by_name.contains_key("constants.pkl") {
            let detail = "the archive holds compiled TorchScript: torch.load would give it to its own loader";
            findings.push(Finding::error("torchscript", Verdict::Unsafe, detail));
        }
    }
}

/// Checksums of the small entries, which were read anyway.
#[derive(Default)]
struct Small<'a> {
    right: u32,
    wrong: Vec<&'a ZipEntry>,
}

impl<'a> Small<'a> {
    fn check(&mut self, e: &'a ZipEntry, bytes: &[u8]) {
        if crc32fast::hash(bytes) == e.crc {
            self.right += 1;
        } else if !bytes.is_empty() {
            self.wrong.push(e);
        }
    }

    /// Returns whether checksums count. All wrong: the writer was told to compute none. Some wrong: damage.
    fn judge(&self, findings: &mut Vec<Finding>) -> bool {
        if self.right == 0 && self.wrong.len() > 1 {
            findings.push(crc_not_written());
            return false;
        }
        for e in &self.wrong {
            findings.push(crc_mismatch(&e.name, e.data, ""));
        }
        true
    }
}

pub(crate) fn crc_not_written() -> Finding {
    let detail =
        "no checksum in the archive fits: it was written without (set_crc32_options), so nothing protects its bytes";
    Finding::warning("crc_not_written", detail)
}

pub(crate) fn crc_mismatch(what: &str, at: u64, more: &str) -> Finding {
    let detail = format!(
        "the bytes of {} do not fit their checksum{more}",
        crate::raw::shown(what)
    );
    Finding::error("crc_mismatch", Verdict::Damaged, detail).at(at)
}

fn small_entries<'a>(
    file: &FileReader<'_>,
    archive: &'a Archive,
    names: &EntryIndex<'a>,
    out: &mut TorchInspection,
) -> Result<Small<'a>, Box<Finding>> {
    let mut small = Small::default();
    for e in archive.entries.iter().filter(|e| e.size <= SMALL) {
        let name = e
            .name
            .strip_prefix(names.prefix)
            .and_then(|n| n.strip_prefix('/'))
            .unwrap_or_default();
        if !matches!(
            name,
            "version" | "byteorder" | ".format_version" | ".storage_alignment" | ".data/serialization_id"
        ) {
            continue;
        }
        let bytes = file.bytes(e.data, e.size as usize)?;
        small.check(e, &bytes);
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        match name {
            "version" => out.facts.version = Some(text),
            "byteorder" => out.facts.byteorder = Some(text),
            ".data/serialization_id" => out.facts.serialization_id = Some(text),
            _ => {}
        }
    }
    Ok(small)
}

fn plan(
    archive: &Archive,
    names: &EntryIndex<'_>,
    storages: &HashMap<String, TorchStorage>,
    crcs: bool,
    big_endian: bool,
) -> ReadPlan {
    let dtype_of = |e: &ZipEntry| -> Option<Dtype> {
        let key = e.name.strip_prefix(names.prefix)?.strip_prefix("/data/")?;
        storages.get(key).filter(|_| !big_endian)?.dtype()
    };
    let mut extents: Vec<ByteExtent> = archive
        .entries
        .iter()
        .map(|e| ByteExtent {
            off: e.data,
            len: e.size,
            crc: crcs.then_some(e.crc),
            dtype: dtype_of(e),
            what: e.name.clone(),
        })
        .collect();
    extents.sort_by_key(|e| e.off);
    ReadPlan { extents }
}
