//! The three depths of a proof over one file, and what stands where in it.

use crate::fixtures::Fixture;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use supervise_checkpoint::proof_record::compare;
use supervise_checkpoint::{
    FileDescription, FileKind, FilePin, FileReport, InspectLimits, InspectedFile, ProvenFile, SweepOptions, inspect,
    inspect_described, judge_file, sweep,
};
use supervise_core::checkpoint::{FindingLevel, Verdict};

/// Entry at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Region {
    /// Bytes with a CRC-32.
    Covered,
    /// Headers, descriptors and directories of archives, with the padding between.
    Archive,
    /// A header of safetensors.
    Header,
    /// Tensors without a checksum.
    Bare,
    /// A pickle that stands alone.
    Pickle,
    /// JSON.
    Json,
    /// Text and other files without a format.
    Text,
}

impl Region {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Covered => "entries of an archive (CRC-32)",
            Self::Archive => "headers and directory of an archive",
            Self::Header => "header of safetensors",
            Self::Bare => "tensors without checksum",
            Self::Pickle => ".metadata, pickles",
            Self::Json => "JSON",
            Self::Text => "text, files of no format",
        }
    }
}

/// A real file, what describes it, and where what stands in it.
pub(crate) struct Victim {
    pub(crate) file: Fixture,
    pub(crate) description: Option<Arc<FileDescription>>,
    pub(crate) regions: Vec<(Range<usize>, Region)>,
    /// Proof of it.
    pub(crate) known: ProvenFile,
    /// The file is an archive of torch that has checksums, or several.
    pub(crate) covered: Vec<Range<usize>>,
}

pub(crate) const PIN: FilePin = FilePin {
    dev: 1,
    ino: 2,
    size: 0,
    mtime: 1_700_000_000_000_000_000,
    ctime: 1_700_000_000_000_000_000,
};

fn look(file: &Fixture, description: Option<&FileDescription>, bytes: &[u8]) -> InspectedFile {
    let limits = InspectLimits::default();
    let name = file.path.file_name().unwrap();
    match description {
        Some(d) => inspect_described(file.kind(), &bytes, d, name, &limits),
        None => inspect(file.kind(), &bytes, &limits),
    }
}

/// The reports at both depths, the deeper one last.
pub(crate) fn reports(file: &Fixture, description: Option<&FileDescription>, bytes: &[u8]) -> [FileReport; 2] {
    let inspected = look(file, description, bytes);
    let options = SweepOptions {
        zero: true,
        finite: false,
    };
    let results = sweep(&bytes, &inspected.plan, options, &mut |_| ControlFlow::Continue(()));
    let results = results.expect("the slice holds what its plan names");
    [judge_file(&inspected, &[]), judge_file(&inspected, &results)]
}

impl Victim {
    pub(crate) fn new(file: Fixture, description: Option<Arc<FileDescription>>) -> Self {
        let inspected = look(&file, description.as_deref(), &file.bytes);
        let [_, report] = reports(&file, description.as_deref(), &file.bytes);
        let mut regions = Vec::new();
        let mut covered = Vec::new();
        for e in &inspected.plan.extents {
            let range = e.off as usize..(e.off + e.len) as usize;
            let region = match (file.kind(), e.crc) {
                (_, Some(_)) => {
                    covered.push(range.clone());
                    Region::Covered
                }
                (FileKind::Safetensors, None) if e.dtype.is_some() => Region::Bare,
                (FileKind::Safetensors, None) => Region::Header,
                (FileKind::Text | FileKind::Opaque, None) => Region::Text,
                _ => Region::Archive,
            };
            regions.push((range, region));
        }
        if regions.is_empty() {
            let region = match file.kind() {
                FileKind::DcpMetadata | FileKind::Pickle => Region::Pickle,
                FileKind::Text | FileKind::Opaque => Region::Text,
                _ => Region::Json,
            };
            regions.push((0..file.bytes.len(), region));
        }
        regions.retain(|(range, _)| !range.is_empty());
        let known = ProvenFile {
            pin: FilePin {
                size: file.bytes.len() as u64,
                ..PIN
            },
            report,
        };
        Self {
            file,
            description,
            regions,
            known,
            covered,
        }
    }

    pub(crate) fn region_at(&self, at: usize) -> Region {
        let here = self.regions.iter().find(|(range, _)| range.contains(&at));
        here.or(self.regions.last()).map_or(Region::Text, |r| r.1)
    }
}

/// True if a changed file was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) structure: bool,
    pub(crate) full: bool,
    /// At full depth at least a warning was given.
    pub(crate) doubted: bool,
    /// With a record of an earlier proof: size and time as they were, where the change keeps the size.
    pub(crate) record: bool,
}

/// Judges a changed file.
pub(crate) fn judge(victim: &Victim, bytes: &[u8]) -> (Caught, FileReport) {
    let [structure, full] = reports(&victim.file, victim.description.as_deref(), bytes);
    let now = FilePin {
        size: bytes.len() as u64,
        ..victim.known.pin
    };
    let seen = full.crc.and_then(|crc| compare(&victim.known, &now, crc));
    let bad = |r: &FileReport| r.verdict != Verdict::Whole || stranger(victim, r);
    let caught = Caught {
        structure: bad(&structure),
        full: bad(&full),
        doubted: bad(&full) || full.findings.iter().any(|f| f.level > FindingLevel::Note),
        record: bad(&full) || seen.is_some_and(|f| f.effect() == Verdict::Damaged),
    };
    (caught, full)
}

/// The file says of itself that it was written under another name: torch keeps the name inside, and trainers' judges
/// compare it.
fn stranger(victim: &Victim, report: &FileReport) -> bool {
    let name = |r: &FileReport| r.facts.torch.as_ref().and_then(|t| t.archive.clone());
    name(&victim.known.report).is_some_and(|n| Some(n.as_str()) == victim.file.path.file_stem())
        && name(report) != name(&victim.known.report)
}
