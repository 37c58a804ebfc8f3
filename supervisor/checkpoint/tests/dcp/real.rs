//! Files that torch, Megatron and areal really wrote.

use crate::tree::{Tree, fixtures};
use camino::Utf8Path;
use supervise_checkpoint::{DcpMetadata, FileDescription, FileKind, InspectLimits, SetKind, inspect, judge_file};
use supervise_core::checkpoint::{Depth, FindingLevel, Verdict};

/// Directories that are sound and yet cannot be proven.
const NOT_PROVABLE: [(&str, &str); 4] = [
    ("torch_dcp_hf/sharded", "weights_in_pieces"),
    ("consolidated/sharded", "weights_in_pieces"),
    ("torch_dcp_rank_metadata", "dcp_rank_metadata"),
    ("torch_dcp_zstd", "distcp_encoded"),
];

#[test]
fn everything_that_was_saved_is_whole_at_both_depths() {
    let sets = fixtures();
    assert!(sets.len() > 20, "{} sets", sets.len());
    for (dir, tree) in sets {
        let unknown = NOT_PROVABLE.iter().find(|(name, _)| dir.as_str().contains(name));
        for depth in [Depth::Structure, Depth::Full] {
            let report = tree.judge(depth);
            if let Some((_, code)) = unknown {
                assert_eq!(report.verdict, Verdict::Unknown, "{dir}: {:?}", report.findings);
                assert!(
                    report.findings.iter().all(|f| f.code == *code),
                    "{dir}: {:?}",
                    report.findings
                );
                continue;
            }
            // Small files are read in full at once.
            let proven = match report.kind {
                SetKind::RecoverInfo => Depth::Full,
                _ => depth,
            };
            assert_eq!(
                (report.verdict, report.proven),
                (Verdict::Whole, Some(proven)),
                "{dir}: {:?}",
                report.findings
            );
            // Megatron saves the padding between buckets as it was found in memory.
            let padding = dir.as_str().contains("dp_reshardable/");
            let doubts: Vec<_> = report
                .findings
                .iter()
                .filter(|f| f.level > FindingLevel::Note && !(padding && f.code == "non_finite"))
                .collect();
            assert!(doubts.is_empty(), "{dir}: {doubts:?}");
            let bytes: usize = tree.0.iter().filter(|(n, _)| needed(n)).map(|(_, b)| b.len()).sum();
            assert_eq!(report.bytes, bytes as u64, "{dir}");
            assert!(report.kind != SetKind::Dcp || report.tensors > 0, "{dir}");
            if report.kind == SetKind::Dcp {
                assert_eq!(report.inventory.len() as u64, report.tensors, "{dir}");
            }
        }
    }
}

fn needed(name: &str) -> bool {
    let ends = [
        ".distcp",
        ".metadata",
        "common.pt",
        ".safetensors",
        ".safetensors.index.json",
        "_info.json",
        "_info.pkl",
    ];
    matches!(name, "metadata.json" | "config.json" | "integrity.json")
        || supervise_checkpoint::set::read_with_weights(name)
        || ends.iter().any(|e| name.ends_with(e))
}

/// A directory of the fixtures.
pub(crate) fn fixture(path: &str) -> Tree {
    let root = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    Tree::read(&root.join(path))
}

/// Content of the `.metadata` of a directory.
pub(crate) fn table(tree: &Tree) -> DcpMetadata {
    let inspected = inspect(FileKind::DcpMetadata, &tree.0[".metadata"], &InspectLimits::default());
    match std::sync::Arc::into_inner(inspected.description.expect("a table")) {
        Some(FileDescription::Dcp(dcp)) => dcp,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_table_of_a_real_save_is_read() {
    let dcp = table(&fixture("torch_dcp_fsdp2_w2/step_2"));
    let files: Vec<_> = dcp.parts.keys().map(String::as_str).collect();
    assert_eq!(files, ["__0_0.distcp", "__1_0.distcp"]);
    let parts: usize = dcp.parts.values().map(Vec::len).sum();
    let chunks: usize = dcp.tensors.iter().map(|t| t.chunks).sum();
    assert_eq!(parts, chunks + dcp.objects as usize);
    assert!(dcp.tensors.iter().any(|t| t.chunks == 2), "cut over two ranks");
    assert!(dcp.tensors.iter().all(|t| t.dtype.is_some()));
    for (file, parts) in &dcp.parts {
        let tree = fixture("torch_dcp_fsdp2_w2/step_2");
        let mut at = 0;
        for part in parts {
            assert_eq!(part.off, at, "{file} {}", part.fqn);
            at += part.len;
        }
        assert_eq!(at, tree.0[file].len() as u64, "{file}");
    }
}

#[test]
fn step_counts_of_a_real_optimizer_are_read() {
    for step in [1, 2] {
        let tree = fixture(&format!("torch_dcp_fsdp2_w2/step_{step}"));
        let reports = tree.prove(
            &supervise_checkpoint::set::needs(SetKind::Dcp, tree.names()),
            Depth::Structure,
        );
        let counts: Vec<u64> = reports
            .values()
            .flat_map(|r| r.facts.dcp_steps.values().flatten().copied())
            .collect();
        assert!(!counts.is_empty() && counts.iter().all(|n| *n == step), "{counts:?}");
    }
}

#[test]
fn megatrons_own_words_are_read() {
    let role = fixture("verl_megatron_v2_tp2/global_step_1/actor");
    let read = |name: &str| {
        let report = judge_file(
            &inspect(FileKind::of(name), &role.0[name], &InspectLimits::default()),
            &[],
        );
        assert_eq!(report.verdict, Verdict::Whole, "{name}: {:?}", report.findings);
        report
    };
    let manifest = read("ckpt_contents.json").facts.manifest.expect("a manifest");
    assert_eq!((manifest.global_step, manifest.world_size), (Some(1), Some(2)));
    assert_eq!(manifest.save_contents, ["model", "optimizer", "extra"]);
    assert!(manifest.backend.use_dist_checkpointing && !manifest.backend.has_bridge);
    let dist: Vec<_> = manifest
        .entries
        .iter()
        .filter(|e| e.is_dist())
        .map(|e| (e.name.as_str(), e.path.as_str(), e.key.as_deref()))
        .collect();
    assert_eq!(
        dist,
        [
            ("lr_scheduler", "optimizer/dist_ckpt", Some("lr_scheduler")),
            ("model", "model/dist_ckpt", None),
            ("optimizer", "optimizer/dist_ckpt", None),
            ("rng_state", "extra/dist_ckpt", Some("rng_state")),
        ]
    );
    assert_eq!(manifest.entry("transformer_config").unwrap().format, "json");
    read("transformer_config.json");

    let dist = fixture("verl_megatron_v2_tp2/global_step_1/actor/model/dist_ckpt");
    let bytes = &dist.0["metadata.json"];
    let backend = inspect(FileKind::MegatronMetadata, bytes, &InspectLimits::default())
        .facts
        .dist_backend
        .unwrap();
    assert_eq!(
        (backend.sharded_backend.as_str(), backend.sharded_backend_version),
        ("torch_dist", Some(1))
    );
}
