//! Files that older versions of torch wrote: archives since 1.6, distributed checkpoints since 2.0.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::disallowed_methods, reason = "tests bring the bytes")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{
    FileKind, FileReport, InspectLimits, SweepOptions, inspect, inspect_described, judge_file, sweep,
};
use supervise_core::checkpoint::{Depth, Verdict};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch-older")
}

fn named(prefix: &str) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = fs::read_dir(here()).unwrap().map(|e| e.unwrap().path()).collect();
    out.retain(|p| p.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    out.sort();
    out
}

fn full(bytes: &[u8]) -> FileReport {
    let inspected = inspect(FileKind::TorchZip, &bytes, &InspectLimits::default());
    let read = sweep(&bytes, &inspected.plan, SweepOptions::default(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    });
    judge_file(&inspected, &read.unwrap_or_default())
}

#[test]
fn archives_of_every_generation_are_whole_and_their_state_is_read() {
    let files = named("state_");
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let report = full(&fs::read(&path).unwrap());
        let place = format!("{}: {:?}", path.display(), report.findings);
        assert_eq!(
            (report.verdict, report.proven),
            (Verdict::Whole, Depth::Full),
            "{place}"
        );
        assert!(report.findings.is_empty(), "{place}");
        let facts = report.facts.torch.unwrap();
        assert!(facts.tensors > 12 && facts.unfamiliar.is_empty(), "{facts:?}");
        assert_eq!(facts.rng, ["cpu", "numpy", "random"]);
        assert_eq!(facts.scheduler_steps, Some(3));
    }
    for path in named("stream_") {
        let report = full(&fs::read(&path).unwrap());
        assert_eq!(
            report.verdict,
            Verdict::Whole,
            "{}: {:?}",
            path.display(),
            report.findings
        );
        assert_eq!(report.facts.torch.unwrap().archive.as_deref(), Some("archive"));
    }
}

/// Whatever wrote it, a bit of a tensor that changed is found.
#[test]
fn a_changed_tensor_is_found_in_archives_of_every_generation() {
    for path in named("state_") {
        let whole = fs::read(&path).unwrap();
        let inspected = inspect(FileKind::TorchZip, &whole.as_slice(), &InspectLimits::default());
        let covered: Vec<_> = inspected
            .plan
            .extents
            .iter()
            .filter(|e| e.crc.is_some() && e.len > 0)
            .collect();
        assert!(covered.len() > 10, "{}: {} entries", path.display(), covered.len());
        for extent in covered {
            let mut bytes = whole.clone();
            bytes[(extent.off + extent.len / 2) as usize] ^= 8;
            let report = full(&bytes);
            assert_ne!(report.verdict, Verdict::Whole, "{}: {}", path.display(), extent.what);
        }
    }
}

#[test]
fn distributed_checkpoints_of_older_versions_are_whole() {
    let folders = named("dcp_");
    assert!(folders.len() >= 2, "{folders:?}");
    for folder in folders {
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        let (table, part) = (read(".metadata"), read("__0_0.distcp"));
        let limits = InspectLimits::default();
        let table_seen = inspect(FileKind::DcpMetadata, &table.as_slice(), &limits);
        let description = table_seen.description.clone().unwrap();
        let part_seen = inspect_described(
            FileKind::Distcp,
            &part.as_slice(),
            &description,
            "__0_0.distcp",
            &limits,
        );
        let go = &mut |_| std::ops::ControlFlow::Continue(());
        let swept = sweep(&part.as_slice(), &part_seen.plan, SweepOptions::default(), go).unwrap();
        let reports = BTreeMap::from([
            (".metadata".to_owned(), judge_file(&table_seen, &[])),
            ("__0_0.distcp".to_owned(), judge_file(&part_seen, &swept)),
        ]);
        let sizes = BTreeMap::from([
            (".metadata".to_owned(), table.len() as u64),
            ("__0_0.distcp".to_owned(), part.len() as u64),
        ]);
        let judged = set::judge(SetKind::Dcp, &sizes, &reports);
        let place = format!("{}: {:?}", folder.display(), judged.findings);
        assert_eq!(
            (judged.verdict, judged.proven),
            (Verdict::Whole, Some(Depth::Full)),
            "{place}"
        );
        assert_eq!(judged.tensors, 4, "{place}");
    }
}
