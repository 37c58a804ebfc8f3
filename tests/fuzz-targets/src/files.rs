//! Targets that are files of checkpoints.

use crate::archive;
use crate::memory::within;
use crate::source::Watched;
use std::ops::ControlFlow;
use supervise_checkpoint::{
    FileKind, FileReport, InspectLimits, InspectedFile, SweepOptions, inspect, inspect_described, judge_file, pickle,
    sweep,
};
use supervise_core::checkpoint::{Finding, Verdict};

/// A pickle that runs a program, and leaves nothing on the stack.
const CALL: &[u8] = b"cos\nsystem\n(S'id'\ntR0";

/// Tight, so that every limit is met.
pub(crate) fn limits() -> InspectLimits {
    InspectLimits {
        entries: 2000,
        directory_bytes: 1 << 20,
        header_reads: 64,
        pickle_bytes: 1 << 20,
        pickle_opcodes: 100_000,
        memory: 4 << 20,
        walk_values: 100_000,
        walk_depth: 32,
        tensors: 1000,
        json_bytes: 1 << 20,
        header_bytes: 1 << 20,
        findings: 16,
        parts: 64,
        corners: 10_000,
        ..InspectLimits::default()
    }
}

/// Memory that one file may take: its values, as much again for what is made of them, and some for each byte.
pub(crate) fn memory(len: usize) -> usize {
    8 * limits().memory + 512 * len
}

/// An archive.
pub(crate) fn torch_zip(bytes: &[u8]) {
    file(FileKind::TorchZip, bytes);
}

/// A pickle in a sound archive.
pub(crate) fn torch_pickle(bytes: &[u8]) {
    file(FileKind::TorchZip, &archive::around(bytes));
}

/// Weights, as a file and as an index of files.
pub(crate) fn safetensors(bytes: &[u8]) {
    file(FileKind::Safetensors, bytes);
    file(FileKind::SafetensorsIndex, bytes);
}

/// Everything that is JSON or text.
pub(crate) fn json(bytes: &[u8]) {
    for kind in [
        FileKind::Json,
        FileKind::FsdpConfig,
        FileKind::ModelConfig,
        FileKind::Settings,
        FileKind::Tokenizer,
        FileKind::StepInfo,
        FileKind::FreqControl,
        FileKind::CkptContents,
        FileKind::MegatronMetadata,
        FileKind::Text,
        FileKind::Opaque,
    ] {
        file(kind, bytes);
    }
}

/// Statements of `torch.distributed.checkpoint` about its files.
pub(crate) fn dcp_metadata(bytes: &[u8]) {
    file(FileKind::DcpMetadata, bytes);
    file(FileKind::Pickle, bytes);
}

/// A `.distcp` file and what is said about it: two bytes that tell how long the description is, the description, the file.
pub(crate) fn distcp(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
        return file(FileKind::Distcp, bytes);
    };
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (told, data) = rest.split_at(len);
    file(FileKind::Distcp, data);
    let Some(description) = inspect(FileKind::DcpMetadata, &told, &limits()).description else {
        return;
    };
    for all_parts in [false, true] {
        let limits = InspectLimits { all_parts, ..limits() };
        same_each_time(data, |source| {
            let inspected = inspect_described(FileKind::Distcp, source, &description, "__0_0.distcp", &limits);
            proven(&inspected, source)
        });
    }
}

fn file(kind: FileKind, bytes: &[u8]) {
    same_each_time(bytes, |source| proven(&inspect(kind, source, &limits()), source));
}

fn same_each_time(bytes: &[u8], look: impl Fn(&Watched<'_>) -> FileReport) {
    let source = Watched::new(bytes);
    let first = within(memory(bytes.len()), || look(&source));
    assert_eq!(first, look(&source), "two looks at the same bytes");
}

/// The whole proof, with what every step of it promises.
fn proven(inspected: &InspectedFile, source: &Watched<'_>) -> FileReport {
    let len = inspected.bytes;
    let read = source.take_read();
    assert!(
        read <= 8 * len + (256 << 10),
        "structure read {read} bytes of a file of {len}"
    );
    for e in &inspected.plan.extents {
        let end = e.off.checked_add(e.len);
        assert!(end.is_some_and(|end| end <= len), "{e:?} of {len}");
    }
    let structure = judge_file(inspected, &[]);
    sound(&structure, len);
    let results = sweep(source, &inspected.plan, SweepOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    });
    let report = judge_file(inspected, &results.expect("memory gives what it holds"));
    let read = source.take_read();
    assert!(
        read <= 4 * len + (64 << 10),
        "a full proof read {read} bytes of a file of {len}"
    );
    sound(&report, len);
    assert!(
        report.verdict >= structure.verdict,
        "reading more made it better: {structure:?} {report:?}"
    );
    report
}

fn sound(report: &FileReport, len: u64) {
    assert_eq!(report.bytes, len);
    let shown = report.findings.len();
    assert!(shown <= limits().findings + 1, "{shown} findings");
    for f in &report.findings {
        about(f, len);
    }
    let effects = report.findings.iter().map(Finding::effect);
    let worst = effects.fold(Verdict::Whole, Verdict::worst);
    assert_eq!(report.verdict, worst, "{:?}", report.findings);
    assert_eq!(
        report.why().is_some(),
        report.verdict != Verdict::Whole,
        "{:?}",
        report.findings
    );
    assert_ne!(report.verdict, Verdict::Unreadable, "{:?}", report.findings);
    let text = serde_json::to_string(report).expect("a report can be written");
    let mut back: FileReport = serde_json::from_str(&text).expect("a report can be read back");
    // What describes other files, and what was counted, stays in memory.
    back.description.clone_from(&report.description);
    back.floats.clone_from(&report.floats);
    assert_eq!(&back, report);
}

/// A finding names a place in the file, in words that can be shown.
fn about(f: &Finding, len: u64) {
    assert!(f.offset.is_none_or(|at| at <= len), "{f:?} of {len}");
    assert!(f.detail.len() < 4096, "{f:?}");
    assert!(!f.detail.chars().any(char::is_control), "{f:?}");
}

/// A pickle by itself.
pub(crate) fn pickle(bytes: &[u8]) {
    let found = within(memory(bytes.len()), || findings(bytes));
    assert_eq!(found, findings(bytes), "two looks at the same bytes");
    // What went before cannot be taken back: a call stays a call whatever follows it.
    assert!(is_unsafe(&findings(&[CALL, bytes].concat())));
    // A sound stream is run to its end, so what stands there counts.
    let read = pickle::read(bytes.to_vec(), &limits());
    let roomy = read.heap.objects().len() < 10_000 && read.heap.globals().len() < 1000;
    if read.root.is_some() && roomy {
        assert!(is_unsafe(&findings(&[&bytes[..read.used - 1], CALL, b"."].concat())));
    }
}

fn is_unsafe(findings: &[Finding]) -> bool {
    findings.iter().any(|f| f.verdict == Verdict::Unsafe)
}

/// Findings in a pickle that stands at byte 1000.
fn findings(bytes: &[u8]) -> Vec<Finding> {
    const BASE: u64 = 1000;
    let found = pickle::read(bytes.to_vec(), &limits());
    assert!(found.used <= bytes.len());
    assert!(found.root.is_some() != found.error.is_some());
    let findings = found.findings(BASE, false);
    for f in &findings {
        about(f, BASE + bytes.len() as u64);
        assert!(f.offset.is_none_or(|at| at >= BASE), "{f:?}");
    }
    let names = found.unfamiliar();
    assert!(names.len() <= 16 && names.is_sorted_by(|a, b| a < b), "{names:?}");
    findings
}
