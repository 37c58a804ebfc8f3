//! Names, words and classes of a table: each is spelled in one way, so a changed letter shows.

use crate::build::{part, tree};
use crate::real::fixture;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::Verdict;

fn report(bytes: &[u8]) -> FileReport {
    judge_file(&inspect(FileKind::DcpMetadata, &bytes, &InspectLimits::default()), &[])
}

/// The table of a real save with the first of these words spelled otherwise.
fn with(from: &str, to: &str) -> FileReport {
    assert_eq!(from.len(), to.len());
    let mut bytes = fixture("torch_dcp_flat/step_1").0[".metadata"].clone();
    assert_eq!(report(&bytes).verdict, Verdict::Whole);
    let at = bytes
        .windows(from.len())
        .position(|w| w == from.as_bytes())
        .unwrap_or_else(|| panic!("{from} is not there"));
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    report(&bytes)
}

fn refused(from: &str, to: &str, verdict: Verdict, code: &str) {
    let found = with(from, to);
    assert_eq!(found.verdict, verdict, "{to}: {:?}", found.findings);
    assert!(
        found.findings.iter().any(|f| f.code == code),
        "{to}: {:?}",
        found.findings
    );
}

#[test]
fn a_class_or_module_that_is_not_torchs_is_refused() {
    for (from, to) in [
        ("checkpoint.filesystem", "checkpoint.filusystem"),
        ("StorageMeta", "StorageMetb"),
        ("_MEM_FORMAT_ENCODING", "_MEM_FORMAT_ENCODINH"),
    ] {
        let found = with(from, to);
        assert_ne!(found.verdict, Verdict::Whole, "{to}: {:?}", found.findings);
    }
    refused("StorageMeta", "StorageMetb", Verdict::Unsafe, "unknown_table_class");
}

#[test]
fn an_attribute_that_no_class_has_is_refused() {
    refused("planner_data", "plannes_data", Verdict::Unknown, "unknown_table_class");
    refused("storage_meta", "storage_metb", Verdict::Unknown, "unknown_table_class");
}

#[test]
fn a_layout_has_a_word_that_torch_knows() {
    refused("torch.strided", "torch.stridmd", Verdict::Damaged, "dcp_metadata");
}

#[test]
fn names_are_the_ways_they_were_made_of() {
    let fqn = with_first_name();
    let mut other = fqn.clone().into_bytes();
    let last = other.len() - 1;
    other[last] ^= 1;
    refused(
        &fqn,
        std::str::from_utf8(&other).unwrap(),
        Verdict::Damaged,
        "dcp_names",
    );
}

/// The first name of a tensor in the save that has a way of more than one part.
fn with_first_name() -> String {
    let bytes = fixture("torch_dcp_flat/step_1").0[".metadata"].clone();
    let found = inspect(FileKind::DcpMetadata, &bytes, &InspectLimits::default());
    let mut names = found.inventory.iter().map(|t| t.name.clone());
    names.find(|n| n.contains('.')).expect("a nested name")
}

#[test]
fn a_planner_that_keeps_nothing_is_sound() {
    let tree = tree(&[("__0_0.distcp", "w", part(4, 1), 4)]);
    assert_eq!(report(&tree.0[".metadata"]).verdict, Verdict::Whole);
}
