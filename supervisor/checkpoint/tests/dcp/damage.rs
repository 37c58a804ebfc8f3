//! Whole sets, damaged: whatever is lost, changed or mixed is found.

use crate::real::{fixture, table};
use crate::tree::Tree;
use std::ops::{ControlFlow, Range};
use supervise_checkpoint::dcp::{StorageRange, StoredValue};
use supervise_checkpoint::{
    FileDescription, FileKind, FileReport, InspectLimits, SweepOptions, inspect, inspect_described, judge_file, sweep,
};
use supervise_core::checkpoint::{Depth, Verdict};

const SETS: [&str; 6] = [
    "torch_dcp_flat/step_1",
    "torch_dcp_fsdp2_w2/step_2",
    "areal_sft_w2/checkpoints/trainer/real/t0/default/recover_checkpoint",
    "verl_megatron_v2_tp2/global_step_1/actor/optimizer/dist_ckpt",
    "verl_megatron_v2_dp_reshardable/global_step_2/actor/extra/dist_ckpt",
    "torch_dcp_hf/consolidated",
];

fn refused(tree: &Tree, depth: Depth, what: &str) -> Verdict {
    let report = tree.judge(depth);
    assert_ne!(report.verdict, Verdict::Whole, "{what} passed: {:?}", report.findings);
    assert!(
        report.findings.len() < 200,
        "{what}: {} findings",
        report.findings.len()
    );
    report.verdict
}

#[test]
fn a_lost_file_is_an_incomplete_save() {
    for set in SETS {
        let whole = fixture(set);
        for name in whole.0.keys() {
            let mut tree = whole.clone();
            tree.0.remove(name);
            let verdict = refused(&tree, Depth::Structure, &format!("{set} without {name}"));
            assert_eq!(verdict, Verdict::Incomplete, "{set} without {name}");
            let report = tree.judge(Depth::Structure);
            assert_eq!(report.proven, None, "{set} without {name}");
            assert!(
                report
                    .findings
                    .iter()
                    .any(|f| f.file.as_deref().is_some_and(|p| p == name.as_str())),
                "{set}: nobody says that {name} is missing: {:?}",
                report.findings
            );
        }
    }
}

#[test]
fn a_cut_file_is_refused_at_the_structure() {
    for set in SETS {
        let whole = fixture(set);
        for (name, bytes) in &whole.0 {
            let len = bytes.len();
            let mut at: Vec<usize> = (0..len).step_by(len / 12 + 1).chain([1, len - 2, len - 1]).collect();
            if name.ends_with(".distcp") {
                let parts = &table(&whole).parts[name];
                at.extend(parts.iter().flat_map(|p| [p.off as usize, p.off as usize + 1]).take(12));
            }
            for at in at {
                let mut tree = whole.clone();
                tree.0.get_mut(name).unwrap().truncate(at);
                let verdict = refused(&tree, Depth::Structure, &format!("{set}: {name} cut at {at}"));
                let soft = matches!(verdict, Verdict::Incomplete | Verdict::Damaged);
                assert!(soft, "{set}: {name} cut at {at}: {verdict}");
            }
        }
    }
}

/// The report of one `.distcp` file, read in full.
fn full(dcp: &FileDescription, name: &str, bytes: &[u8]) -> FileReport {
    let limits = InspectLimits::default();
    let inspected = inspect_described(FileKind::Distcp, &bytes, dcp, name, &limits);
    let mut on = |_| ControlFlow::Continue(());
    let read = sweep(&bytes, &inspected.plan, SweepOptions::default(), &mut on).expect("the bytes are there");
    judge_file(&inspected, &read)
}

/// Bytes that no loader looks at: padding in local headers, and who made the archive according to its zip64 record.
fn unused(bytes: &[u8], part: Range<usize>) -> Vec<Range<usize>> {
    let zip = &bytes[part.clone()];
    let plan = inspect(FileKind::TorchZip, &zip, &InspectLimits::default()).plan;
    let mut out = Vec::new();
    for e in plan.extents.iter().filter(|e| !e.is_gap()) {
        let (data, name) = (e.off as usize, e.what.as_bytes());
        let at = (0..data)
            .rev()
            .find(|&at| zip[at..].starts_with(b"PK\x03\x04") && zip[at + 30..].starts_with(name))
            .unwrap();
        out.push(part.start + at + 30 + name.len()..part.start + data);
    }
    let record = part.end - 22 - 20 - 56;
    out.push(record + 12..record + 16);
    out
}

#[test]
fn a_flipped_byte_of_a_part_is_refused() {
    for (set, name) in [
        ("torch_dcp_flat/step_1", "__0_0.distcp"),
        ("torch_dcp_fsdp2_w2/step_2", "__1_0.distcp"),
        (
            "verl_megatron_v2_tp2/global_step_1/actor/optimizer/dist_ckpt",
            "__0_0.distcp",
        ),
    ] {
        let tree = fixture(set);
        let dcp = table(&tree);
        let mut bytes = tree.0[name].clone();
        let parts: Vec<_> = dcp.parts[name]
            .iter()
            .map(|p| p.off as usize..(p.off + p.len) as usize)
            .collect();
        let unused: Vec<_> = parts.iter().flat_map(|p| unused(&bytes, p.clone())).collect();
        let dcp = FileDescription::Dcp(dcp);
        let last = parts.last().unwrap().clone();
        for at in (0..bytes.len()).step_by(bytes.len() / 120 + 1).chain(last.step_by(11)) {
            bytes[at] ^= 0x10;
            let report = full(&dcp, name, &bytes);
            let free = unused.iter().any(|r| r.contains(&at));
            assert!(
                report.verdict != Verdict::Whole || free,
                "{set}: byte {at}: {:?}",
                report.findings
            );
            bytes[at] ^= 0x10;
        }
    }
}

#[test]
fn zeros_are_refused() {
    let tree = fixture("torch_dcp_fsdp2_w2/step_2");
    let dcp = FileDescription::Dcp(table(&tree));
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        let whole = &tree.0[name];
        for at in (0..whole.len()).step_by(4096) {
            let mut bytes = whole.clone();
            let end = bytes.len().min(at + 4096);
            bytes[at..end].fill(0);
            let report = full(&dcp, name, &bytes);
            assert_eq!(
                report.verdict,
                Verdict::Damaged,
                "{name}: zeros at {at}: {:?}",
                report.findings
            );
        }
    }
    let zero = vec![0; tree.0[".metadata"].len()];
    let mut lost = tree.clone();
    lost.0.insert(".metadata".to_owned(), zero);
    assert_eq!(refused(&lost, Depth::Structure, "zeros in .metadata"), Verdict::Damaged);
}

/// `.metadata` has no checksum: what a change leaves standing must at least say the same about places and shapes.
#[test]
fn a_flipped_byte_of_the_table_is_refused_or_harmless() {
    let tree = fixture("torch_dcp_flat/step_1");
    let places = |t: &Tree| -> Vec<_> { ["__0_0.distcp", "__1_0.distcp"].map(|f| layout(t, f)).into() };
    let before: Vec<_> = places(&tree);
    let mut passed = 0;
    let len = tree.0[".metadata"].len();
    for at in (0..len).step_by(3) {
        let mut changed = tree.clone();
        changed.0.get_mut(".metadata").unwrap()[at] ^= 0x04;
        if changed.judge(Depth::Structure).verdict == Verdict::Whole {
            passed += 1;
            assert_eq!(places(&changed), before, "byte {at}");
        }
    }
    assert!(passed < len / 6, "{passed} of {len} changes passed");
}

/// The bytes that a file must have at a place.
fn layout(tree: &Tree, file: &str) -> Vec<(u64, u64, StoredValue)> {
    let of_part = |p: &StorageRange| (p.off, p.len, p.what.clone());
    table(tree).parts[file].iter().map(of_part).collect()
}

#[test]
fn exchanged_files_are_refused() {
    for set in SETS {
        let whole = fixture(set);
        let parts: Vec<&String> = whole.0.keys().filter(|n| n.ends_with(".distcp")).collect();
        for (a, b) in parts.iter().zip(parts.iter().skip(1)) {
            let mut tree = whole.clone();
            if layout(&whole, a) == layout(&whole, b) {
                // The tensors of one may stand for those of the other: the parts do not say their names.
                continue;
            }
            tree.0.insert((*a).clone(), whole.0[*b].clone());
            refused(&tree, Depth::Structure, &format!("{set}: {b} as {a}"));
            tree.0.insert((*b).clone(), whole.0[*a].clone());
            refused(&tree, Depth::Structure, &format!("{set}: {a} and {b} exchanged"));
        }
    }
}

#[test]
fn files_left_over_do_no_harm_and_bytes_left_over_are_damage() {
    let mut tree = fixture("torch_dcp_fsdp2_w2/step_2");
    let bytes = tree.judge(Depth::Full).bytes;
    tree.0.insert("__2_0.distcp".to_owned(), tree.0["__1_0.distcp"].clone());
    let report = tree.judge(Depth::Full);
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Some(Depth::Full)));
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].code, "distcp_unreferenced");
    assert_eq!(report.bytes, bytes);

    tree.0.get_mut("__1_0.distcp").unwrap().extend([0; 10]);
    let report = tree.judge(Depth::Structure);
    assert_eq!(report.verdict, Verdict::Damaged);
    assert_eq!(report.findings[0].code, "distcp_trailing");
}
