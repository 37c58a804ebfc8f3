//! Files beside weights and tables that a load cannot do without.

use crate::real::fixture;
use crate::tree::Tree;
use supervise_checkpoint::{SetKind, SetReport};
use supervise_core::checkpoint::{Depth, Verdict};

const RECOVER: &str = "areal_sft_w2/checkpoints/trainer/real/t0/recover_info";

fn has(report: &SetReport, code: &str) -> bool {
    report.findings.iter().any(|f| f.code == code)
}

fn put(tree: &Tree, name: &str, bytes: &[u8]) -> SetReport {
    let mut tree = tree.clone();
    tree.0.insert(name.to_owned(), bytes.to_vec());
    tree.judge(Depth::Full)
}

#[test]
fn what_areal_keeps_of_a_run_is_looked_at() {
    let whole = fixture(RECOVER);
    assert_eq!(whole.kind(), Some(SetKind::RecoverInfo));
    let report = whole.judge(Depth::Full);
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Some(Depth::Full)));
    for name in whole.0.keys() {
        let mut lost = whole.clone();
        lost.0.remove(name);
        let report = lost.judge(Depth::Full);
        assert_eq!(report.verdict, Verdict::Incomplete, "without {name}");
        assert!(has(&report, "recover_info_missing"), "without {name}");
        assert_ne!(put(&whole, name, b"").verdict, Verdict::Whole, "{name} empty");
        let cut = &whole.0[name][..whole.0[name].len() - 1];
        assert_ne!(put(&whole, name, cut).verdict, Verdict::Whole, "{name} cut");
    }
    let steps = br#"{"epoch": 1, "epoch_step": 2, "global_step": 5, "steps_per_epoch": 4}"#;
    assert_eq!(put(&whole, "step_info.json", steps).verdict, Verdict::Damaged);
    let code = b"cos\nsystem\n(S'true'\ntR.";
    assert_eq!(put(&whole, "dataloader_info.pkl", code).verdict, Verdict::Unsafe);
}

/// A folder with a file of weights without tensors.
fn weights(beside: &[&str]) -> Tree {
    let mut tree = Tree::default();
    let file = [&2_u64.to_le_bytes(), b"{}".as_slice()].concat();
    tree.0.insert("model.safetensors".to_owned(), file);
    for name in beside {
        tree.0.insert((*name).to_owned(), b"{}".to_vec());
    }
    tree
}

#[test]
fn weights_beside_a_tokenizer_need_their_configuration() {
    for sound in [
        vec![],
        vec!["config.json"],
        vec!["tokenizer_config.json", "config.json"],
    ] {
        assert_eq!(weights(&sound).judge(Depth::Full).verdict, Verdict::Whole, "{sound:?}");
    }
    let adapter = weights(&["tokenizer_config.json", "adapter_config.json"]);
    assert_eq!(adapter.judge(Depth::Full).verdict, Verdict::Whole);
    for beside in ["tokenizer_config.json", "generation_config.json"] {
        let report = weights(&[beside]).judge(Depth::Full);
        assert_eq!(report.verdict, Verdict::Incomplete, "{beside}");
        assert!(has(&report, "config_missing"), "{beside}");
    }
    let broken = put(&weights(&[]), "config.json", b"{\"a\": ");
    assert_eq!(broken.verdict, Verdict::Incomplete);
    assert_eq!(put(&weights(&[]), "config.json", b"").verdict, Verdict::Incomplete);
}
