//! Sets: recognized by their names, judged by their files.

use crate::archive::{state_dict, torch_zip};
use crate::build::{part, table, tree};
use crate::real::fixture;
use crate::tree::Tree;
use std::collections::BTreeMap;
use supervise_checkpoint::{FileKind, InspectLimits, SetKind, inspect, judge_file, set};
use supervise_core::checkpoint::{Depth, Verdict};

#[test]
fn names_tell_the_kind() {
    for (names, kind) in [
        (vec![".metadata", "__0_0.distcp"], Some(SetKind::Dcp)),
        (vec!["__0_0.distcp"], Some(SetKind::Dcp)),
        (vec![".metadata.tmp"], Some(SetKind::Dcp)),
        (
            vec![".metadata", "metadata.json", "common.pt"],
            Some(SetKind::MegatronDist),
        ),
        (vec!["common.pt"], Some(SetKind::MegatronDist)),
        (vec!["common.pt", "__0_0.distcp"], Some(SetKind::MegatronDist)),
        (vec!["common.pt", "other.pt"], None),
        (vec!["model.safetensors", "config.json"], Some(SetKind::Weights)),
        (vec!["pytorch_model.bin"], Some(SetKind::Weights)),
        (vec!["model.safetensors.index.json"], Some(SetKind::Weights)),
        (vec!["metadata.json", "storage_0.pkl"], None),
        (vec!["config.json"], None),
        (vec!["sub/__0_0.distcp"], None),
        (vec![], None),
    ] {
        assert_eq!(set::recognize(names.iter().copied()), kind, "{names:?}");
    }
}

#[test]
fn what_describes_comes_before_what_it_describes() {
    let names = ["__0_0.distcp", "common.pt", ".metadata", "metadata.json", "notes.txt"];
    let needs = set::needs(SetKind::MegatronDist, names.into_iter());
    let paths: Vec<_> = needs.iter().map(|n| (n.path.as_str(), n.kind)).collect();
    assert_eq!(
        paths,
        [
            ("metadata.json", FileKind::MegatronMetadata),
            ("common.pt", FileKind::TorchZip),
            (".metadata", FileKind::DcpMetadata),
            ("__0_0.distcp", FileKind::Distcp),
        ]
    );
    assert_eq!(needs[3].described_by.as_deref().map(|p| p.as_str()), Some(".metadata"));
    let names = ["model-00001-of-00002.safetensors", "model.safetensors.index.json"];
    let needs = set::needs(SetKind::Weights, names.into_iter());
    assert_eq!(needs[0].kind, FileKind::SafetensorsIndex);
    assert_eq!(needs[1].described_by.as_deref(), Some(needs[0].path.as_path()));
}

#[test]
fn a_save_that_broke_off_is_incomplete() {
    let whole = fixture("torch_dcp_fsdp2_w2/step_2");
    let mut tmp = whole.clone();
    let table = tmp.0.remove(".metadata").unwrap();
    tmp.0.insert(".metadata.tmp".to_owned(), table.clone());
    let report = tmp.judge(Depth::Structure);
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert!(
        report.findings[0].detail.contains(".metadata.tmp"),
        "{:?}",
        report.findings
    );
    let mut later = whole.clone();
    later.0.insert(".metadata.tmp".to_owned(), table);
    let report = later.judge(Depth::Structure);
    assert_eq!(report.verdict, Verdict::Whole);
    assert_eq!(report.findings[0].code, "dcp_unfinished");

    let mut alone = whole;
    alone.0.retain(|name, _| name == ".metadata");
    let report = alone.judge(Depth::Structure);
    assert_eq!(report.verdict, Verdict::Incomplete);
    let missing: Vec<_> = report.findings.iter().filter(|f| f.code == "distcp_missing").collect();
    assert_eq!(missing.len(), 2, "{:?}", report.findings);
    assert!(missing[0].detail.contains("values"), "{:?}", missing[0]);
}

#[test]
fn sizes_alone_tell_of_a_file_that_is_too_short_or_too_long() {
    let tree = fixture("torch_dcp_fsdp2_w2/step_2");
    let needs = set::needs(SetKind::Dcp, tree.names());
    let mut reports = tree.prove(&needs[..1], Depth::Structure);
    let mut sizes: BTreeMap<String, u64> = tree.0.iter().map(|(n, b)| (n.clone(), b.len() as u64)).collect();
    let report = set::judge(SetKind::Dcp, &sizes, &reports);
    assert_eq!(
        (report.verdict, report.proven),
        (Verdict::Whole, None),
        "not all was looked into"
    );
    *sizes.get_mut("__1_0.distcp").unwrap() -= 1;
    let report = set::judge(SetKind::Dcp, &sizes, &reports);
    assert_eq!(
        (report.verdict, report.findings[0].code.as_ref()),
        (Verdict::Incomplete, "distcp_truncated")
    );
    *sizes.get_mut("__1_0.distcp").unwrap() += 2;
    let longer = set::judge(SetKind::Dcp, &sizes, &reports);
    assert_eq!(
        (longer.verdict, longer.findings[0].code.as_ref()),
        (Verdict::Damaged, "distcp_trailing")
    );
    *sizes.get_mut("__1_0.distcp").unwrap() -= 2;
    // A report that went through a journal has lost its description, not its facts.
    let text = serde_json::to_string(&reports[".metadata"]).unwrap();
    reports.insert(".metadata".to_owned(), serde_json::from_str(&text).unwrap());
    let again = set::judge(SetKind::Dcp, &sizes, &reports);
    assert_eq!(again.findings, report.findings);
    assert!(again.inventory.is_empty() && !report.inventory.is_empty());
}

#[test]
fn files_of_two_saves_are_told_by_their_step_counts() {
    let step = |n: f32| {
        let mut bytes = part(1, 0);
        let old = 0.5_f32.to_le_bytes();
        let at = bytes.windows(4).rposition(|w| w == old).unwrap();
        bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        bytes
    };
    // The archive's checksum of the changed number is wrong, which only a full reading sees.
    let judge = |a: f32, b: f32, c: f32| {
        let tree = tree(&[
            ("__0_0.distcp", "optim.state.a.step", step(a), 1),
            ("__1_0.distcp", "optim.state.b.step", step(b), 1),
            ("__1_0.distcp", "optim.state.c.step", step(c), 1),
        ]);
        tree.judge(Depth::Structure)
    };
    assert_eq!(judge(7.0, 7.0, 7.0).findings, []);
    let mixed = judge(7.0, 8.0, 8.0);
    assert_eq!(
        (mixed.verdict, mixed.findings[0].code.as_ref()),
        (Verdict::Damaged, "mixed_steps")
    );
    assert!(
        mixed.findings[0].detail.starts_with("optim has taken"),
        "{:?}",
        mixed.findings
    );
    let frozen = judge(7.0, 7.0, 3.0);
    assert_eq!(
        (frozen.verdict, frozen.findings[0].code.as_ref()),
        (Verdict::Whole, "steps_differ")
    );
}

#[test]
fn an_optimizer_saved_as_one_value_tells_its_steps() {
    let dict = state_dict(&[("state.0.step", 1)]);
    let save = torch_zip(&dict, &[3.0_f32.to_le_bytes().to_vec()]).bytes();
    let len = save.len() as i64;
    let mut tree = Tree::default();
    let metadata = table(
        |p| {
            p.text("optim").meta("BytesStorageMetadata");
        },
        |p| {
            p.index("optim", None).place("__0_0.distcp", 0, len);
        },
    );
    tree.0.insert(".metadata".to_owned(), metadata);
    tree.0.insert("__0_0.distcp".to_owned(), save);
    let reports = tree.prove(&set::needs(SetKind::Dcp, tree.names()), Depth::Full);
    let steps = &reports["__0_0.distcp"].facts.dcp_steps;
    assert_eq!(steps, &BTreeMap::from([("optim".to_owned(), vec![3])]));
    assert_eq!(tree.judge(Depth::Full).verdict, Verdict::Whole);
}

#[test]
fn other_writers_are_not_known() {
    let mut tree = fixture("verl_megatron_v2_tp2/global_step_1/actor/model/dist_ckpt");
    let zarr = br#"{"sharded_backend": "zarr", "sharded_backend_version": 1, "common_backend": "torch"}"#;
    tree.0.insert("metadata.json".to_owned(), zarr.to_vec());
    let report = tree.judge(Depth::Structure);
    assert_eq!(
        (report.verdict, report.findings[0].code.as_ref()),
        (Verdict::Unknown, "dist_backend")
    );
}

#[test]
fn an_index_of_other_weights_is_found() {
    let mut tree = fixture("torch_dcp_hf/consolidated");
    let text = String::from_utf8(tree.0["model.safetensors.index.json"].clone()).unwrap();
    let first = text.split('"').find(|w| w.ends_with(".weight")).unwrap().to_owned();
    let changed = text.replace(&first, "no.such.weight");
    tree.0
        .insert("model.safetensors.index.json".to_owned(), changed.into_bytes());
    let report = tree.judge(Depth::Structure);
    assert_eq!(
        (report.verdict, report.findings[0].code.as_ref()),
        (Verdict::Damaged, "index_tensor_missing")
    );
    assert!(
        report.findings[0].detail.contains("no.such.weight"),
        "{:?}",
        report.findings
    );
}

#[test]
fn weights_may_do_without_an_index_where_nothing_is_missing() {
    let mut tree = fixture("torch_dcp_hf/consolidated/sharded");
    // What the pieces hold is not read, and none is missing.
    let whole = tree.judge(Depth::Full);
    assert_eq!(whole.verdict, Verdict::Unknown);
    assert!(
        whole.findings.iter().all(|f| f.code == "weights_in_pieces"),
        "{:?}",
        whole.findings
    );
    let name = "shard-00002-model-00002-of-00002.safetensors";
    tree.0.remove(name).expect("a part");
    let report = tree.judge(Depth::Full);
    assert_eq!(report.verdict, Verdict::Incomplete);
    let missing = report.findings.iter().find(|f| f.code == "weights_missing");
    assert_eq!(missing.and_then(|f| f.file.as_deref()).map(|f| f.as_str()), Some(name));
}

fn manifest(text: &str) -> (Verdict, Vec<String>, Option<supervise_checkpoint::DistManifest>) {
    let bytes = text.as_bytes();
    let report = judge_file(&inspect(FileKind::CkptContents, &bytes, &InspectLimits::default()), &[]);
    let codes = report.findings.iter().map(|f| f.code.to_string()).collect();
    (report.verdict, codes, report.facts.manifest)
}

#[test]
fn manifests_are_read_as_verl_writes_them() {
    let (verdict, codes, read) = manifest(
        r#"{"schema_version": 2, "framework": "megatron", "role": "critic", "global_step": 7, "world_size": 16,
        "backend": {"has_bridge": true, "peft": true, "use_dist_checkpointing": false}, "save_contents": ["hf_model"],
        "contents": {
          "hf_model": {"path": "model/huggingface", "format": "huggingface", "note": ["a list of one"]},
          "peft_adapters": {"path": "model/dist_ckpt", "format": "megatron_dist_checkpoint", "note": "a string"},
          "model": {"path": "model/huggingface", "format": "huggingface", "backend": "mbridge",
                    "peft_adapter_path": "model/huggingface/adapter"}},
        "directories": {"model/huggingface": "words"}, "saved_any_dist_ckpt": true}"#,
    );
    assert_eq!((verdict, codes), (Verdict::Whole, vec![]));
    let read = read.unwrap();
    assert_eq!(
        read.entry("model").unwrap().adapter.as_deref(),
        Some("model/huggingface/adapter")
    );
    assert!(read.entry("peft_adapters").unwrap().is_dist());
    assert_eq!((read.role.as_deref(), read.world_size), (Some("critic"), Some(16)));
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let (verdict, codes, read) = manifest(
        r#"{"schema_version": 9, "contents": {"model": {"path": "/etc", "format": "json"}}, "schema_version": 2,
        "contents": {"model": {"path": "a", "format": "json", "path": "b"}}}"#,
    );
    assert_eq!((verdict, codes), (Verdict::Whole, vec![]));
    assert_eq!(read.unwrap().entries[0].path, "b");
}

#[test]
fn a_manifest_cannot_lead_out_of_its_directory() {
    for path in ["/etc", "..", "a/../../b", "", "a//b", "a\\\\b"] {
        for text in [
            format!(r#"{{"schema_version": 2, "contents": {{"model": {{"path": "{path}", "format": "json"}}}}}}"#),
            format!(r#"{{"schema_version": 2, "contents": {{}}, "directories": {{"{path}": "words"}}}}"#),
        ] {
            let (verdict, codes, _) = manifest(&text);
            assert_eq!(
                (verdict, codes),
                (Verdict::Damaged, vec!["manifest_path".to_owned()]),
                "{text}"
            );
        }
    }
}

#[test]
fn manifests_of_other_kinds_are_not_whole() {
    for (text, verdict) in [
        ("", Verdict::Incomplete),
        (r#"{"schema_version": 2, "contents": {"#, Verdict::Incomplete),
        ("[]", Verdict::Damaged),
        ("{}", Verdict::Damaged),
        (r#"{"schema_version": 2}"#, Verdict::Damaged),
        (
            r#"{"schema_version": 2, "contents": {"model": {"path": "a"}}}"#,
            Verdict::Damaged,
        ),
        (r#"{"schema_version": 3, "contents": {}}"#, Verdict::Unknown),
        (
            r#"{"schema_version": 2, "contents": {"model": {"path": "a", "format": "zarr"}}}"#,
            Verdict::Unknown,
        ),
    ] {
        assert_eq!(manifest(text).0, verdict, "{text}");
    }
}
