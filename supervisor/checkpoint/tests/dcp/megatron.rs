//! Directories of Megatron from 0.19 on: no `common.pt`, but an object among the parts; digests where they were asked for.

use crate::real::fixture;
use crate::tree::Tree;
use supervise_core::checkpoint::{Depth, Verdict};

const NEWER: &str = "megatron_core_0_19/step_2";

fn codes(tree: &Tree) -> (Verdict, Vec<String>) {
    let report = tree.judge(Depth::Full);
    (
        report.verdict,
        report.findings.iter().map(|f| f.code.to_string()).collect(),
    )
}

#[test]
fn an_object_among_the_parts_stands_for_the_common_file() {
    for step in ["megatron_core_0_19/step_1", NEWER] {
        let report = fixture(step).judge(Depth::Full);
        assert_eq!(
            (report.verdict, report.proven),
            (Verdict::Whole, Some(Depth::Full)),
            "{:?}",
            report.findings
        );
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
    let tree = fixture(NEWER);
    let reports = tree.prove(
        &supervise_checkpoint::set::needs(tree.kind().unwrap(), tree.names()),
        Depth::Structure,
    );
    let common = reports["__0_0.distcp"].facts.torch.as_ref().unwrap();
    assert_eq!(common.scheduler_steps, Some(4), "{common:?}");
    assert!(
        common.optimizer_steps.is_empty() || common.optimizer_steps == [2],
        "{common:?}"
    );
}

#[test]
fn without_either_the_directory_is_not_whole() {
    let mut tree = fixture("verl_megatron_v2_tp2/global_step_1/actor/model/dist_ckpt");
    assert_eq!(codes(&tree).0, Verdict::Whole);
    tree.0.remove("common.pt");
    assert_eq!(
        codes(&tree),
        (Verdict::Incomplete, vec!["dist_common_missing".to_owned()])
    );
    let mut tree = fixture(NEWER);
    tree.0.remove("integrity.json");
    let part = tree.0.get_mut("__0_0.distcp").unwrap();
    part.truncate(7000);
    assert_eq!(codes(&tree).0, Verdict::Incomplete);
}

#[test]
fn a_list_of_digests_names_files_that_are_there() {
    let mut tree = fixture(NEWER);
    tree.0.get_mut("integrity.json").unwrap().retain(|b| *b != b'\n');
    assert_eq!(codes(&tree).0, Verdict::Whole);
    let list = String::from_utf8(tree.0["integrity.json"].clone()).unwrap();
    for (from, to, code) in [
        ("__1_0.distcp", "__7_0.distcp", "integrity_file_missing"),
        ("__1_0.distcp", "../../../etc", "json_content"),
        ("sha256", "sha999", "integrity"),
        ("\"files\"", "\"fines\"", "json_content"),
    ] {
        tree.0
            .insert("integrity.json".to_owned(), list.replace(from, to).into_bytes());
        assert_eq!(codes(&tree).1, [code], "{from} → {to}");
    }
}
