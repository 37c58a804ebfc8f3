//! How much is read, and what happens where reading fails.

use crate::build::{part, tree};
use crate::real::{fixture, table};
use crate::tree::Tree;
use std::cell::Cell;
use std::io;
use supervise_checkpoint::{
    ByteSource, FileDescription, FileKind, InspectLimits, InspectedFile, inspect_described, judge_file,
};
use supervise_core::checkpoint::{Depth, Verdict};

const FILE: &str = "__0_0.distcp";

/// Counts reads, refuses one place, or ends early.
struct Watched<'a> {
    bytes: &'a [u8],
    reads: Cell<u64>,
    read: Cell<u64>,
    broken: Option<u64>,
    shrinks_to: Option<u64>,
}

impl<'a> Watched<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            reads: Cell::new(0),
            read: Cell::new(0),
            broken: None,
            shrinks_to: None,
        }
    }
}

impl ByteSource for Watched<'_> {
    fn len(&self) -> io::Result<u64> {
        let shrunk = self.shrinks_to.filter(|_| self.reads.get() > 2);
        Ok(shrunk.unwrap_or(self.bytes.len() as u64))
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        let end = off + buf.len() as u64;
        if self.broken.is_some_and(|at| (off..end).contains(&at)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let there = self.len()? as usize;
        let n = self.bytes[..there].read_at(off, buf)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

fn look(tree: &Tree, source: &Watched<'_>, limits: &InspectLimits) -> InspectedFile {
    let dcp = FileDescription::Dcp(table(tree));
    inspect_described(FileKind::Distcp, source, &dcp, FILE, limits)
}

/// A file with many parts, each of as many floats.
fn many(parts: usize, elements: u32) -> Tree {
    let names: Vec<String> = (0..parts).map(|n| format!("w.{n}")).collect();
    let bytes = part(elements, 1);
    let all: Vec<_> = names
        .iter()
        .map(|n| (FILE, n.as_str(), bytes.clone(), i64::from(elements)))
        .collect();
    tree(&all)
}

#[test]
fn small_parts_share_their_reads() {
    let tree = many(500, 16);
    let bytes = &tree.0[FILE];
    let source = Watched::new(bytes);
    let inspected = look(&tree, &source, &InspectLimits::default());
    assert!(inspected.findings.is_empty(), "{:?}", inspected.findings);
    let least = bytes.len() as u64 / (256 << 10) + 1;
    assert!(
        source.reads.get() <= 2 * least,
        "{} reads of {} bytes",
        source.reads.get(),
        bytes.len()
    );
}

#[test]
fn the_structure_of_large_parts_costs_little() {
    let tree = many(40, 100_000);
    let bytes = &tree.0[FILE];
    let source = Watched::new(bytes);
    let inspected = look(&tree, &source, &InspectLimits::default());
    assert!(inspected.findings.is_empty(), "{:?}", inspected.findings);
    assert!(source.reads.get() <= 3 * 40, "{} reads", source.reads.get());
    assert!(
        source.read.get() < bytes.len() as u64 / 16,
        "{} of {} bytes",
        source.read.get(),
        bytes.len()
    );
    // One extent for each part, gaps between them, and the other entries of the first.
    assert!(
        inspected.plan.extents.len() < 2 * 40 + 10,
        "{}",
        inspected.plan.extents.len()
    );
}

#[test]
fn many_parts_are_looked_at_in_samples_where_that_is_enough() {
    let tree = many(50, 16);
    let few = InspectLimits {
        parts: 10,
        all_parts: false,
        ..InspectLimits::default()
    };
    let whole = Watched::new(&tree.0[FILE]);
    let report = judge_file(&look(&tree, &whole, &few), &[]);
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Depth::Structure));
    assert_eq!(report.findings[0].code, "distcp_sampled");
    assert!(
        look(&tree, &whole, &few).plan.extents.is_empty(),
        "no full proof comes of samples"
    );

    // A part that no sample meets.
    let mut bytes = tree.0[FILE].clone();
    let dcp = table(&tree);
    let second = &dcp.parts[FILE][1];
    bytes[second.off as usize..][..second.len as usize].fill(0);
    let torn = Watched::new(&bytes);
    assert_eq!(judge_file(&look(&tree, &torn, &few), &[]).verdict, Verdict::Whole);
    let all = InspectLimits { all_parts: true, ..few };
    assert_eq!(judge_file(&look(&tree, &torn, &all), &[]).verdict, Verdict::Damaged);
    // The last one always is among them.
    let mut cut = tree.0[FILE].clone();
    let last = cut.len() - 1000;
    cut[last..].fill(0);
    let source = Watched::new(&cut);
    assert_eq!(
        judge_file(&look(&tree, &source, &InspectLimits { parts: 2, ..few }), &[]).verdict,
        Verdict::Damaged
    );
}

#[test]
fn what_cannot_be_read_is_not_called_damaged() {
    let tree = fixture("torch_dcp_flat/step_1");
    let bytes = &tree.0[FILE];
    for at in (0..bytes.len() as u64).step_by(997) {
        let source = Watched {
            broken: Some(at),
            ..Watched::new(bytes)
        };
        let report = judge_file(&look(&tree, &source, &InspectLimits::default()), &[]);
        let fine = matches!(report.verdict, Verdict::Whole | Verdict::Unreadable);
        assert!(fine, "byte {at}: {:?}", report.findings);
        if let Some(f) = report.why() {
            assert!(f.retryable && f.code == "io_error", "byte {at}: {f}");
        }
    }
    let source = Watched {
        broken: Some(100),
        ..Watched::new(bytes)
    };
    assert_eq!(
        judge_file(&look(&tree, &source, &InspectLimits::default()), &[]).verdict,
        Verdict::Unreadable
    );
}

#[test]
fn a_file_that_shrinks_is_worth_another_try() {
    let tree = many(40, 30_000);
    let source = Watched {
        shrinks_to: Some(5000),
        ..Watched::new(&tree.0[FILE])
    };
    let report = judge_file(&look(&tree, &source, &InspectLimits::default()), &[]);
    assert_eq!(report.verdict, Verdict::Incomplete, "{:?}", report.findings);
    assert!(report.findings.len() < 8, "{:?}", report.findings);
}
