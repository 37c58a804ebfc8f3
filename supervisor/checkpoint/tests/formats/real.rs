//! Files that torch and verl really wrote.

use crate::build::{codes, full, structure};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect};
use supervise_core::checkpoint::{Depth, FindingLevel, Verdict};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const SETS: [&str; 3] = ["verl_ppo_fsdp1_w2", "verl_ppo_fsdp2_w2", "verl_sft_fsdp2_w2"];

#[expect(clippy::disallowed_methods, reason = "tests bring the bytes")]
pub(crate) fn bytes(path: &Utf8Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[expect(clippy::disallowed_methods, reason = "tests bring the files")]
fn files(dir: &Utf8Path, out: &mut Vec<Utf8PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{dir}: {e}")) {
        let path = Utf8PathBuf::from_path_buf(entry.unwrap().path()).unwrap();
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path);
        }
    }
}

/// All files of a checkpoint set of verl.
pub(crate) fn set(name: &str) -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    files(&Utf8Path::new(HERE).join("../../tests/fixtures").join(name), &mut out);
    out.sort();
    assert!(out.len() > 15, "{name} has {} files", out.len());
    out
}

/// The source files of this crate.
pub(crate) fn sources() -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    files(&Utf8Path::new(HERE).join("src"), &mut out);
    out
}

/// A file that torch 2.6 wrote.
fn torch_2_6(name: &str) -> Vec<u8> {
    bytes(&Utf8Path::new(HERE).join("tests/torch-2.6").join(name))
}

/// A small file of torch 2.11.
pub(crate) fn torch(name: &str) -> Vec<u8> {
    bytes(&Utf8Path::new(HERE).join("tests/torch-2.11").join(format!("{name}.pt")))
}

fn facts(report: &FileReport) -> &supervise_checkpoint::torch::TorchFacts {
    report.facts.torch.as_ref().expect("facts of a torch file")
}

#[test]
fn everything_verl_saved_is_whole_at_both_depths() {
    for path in SETS.iter().flat_map(|s| set(s)) {
        let (kind, data) = (FileKind::of(path.as_str()), bytes(&path));
        let shallow = structure(kind, &data);
        assert_eq!(shallow.verdict, Verdict::Whole, "{path}: {:?}", shallow.findings);
        let deep = full(kind, &data);
        assert_eq!(
            (deep.verdict, deep.proven),
            (Verdict::Whole, Depth::Full),
            "{path}: {:?}",
            deep.findings
        );
        let doubts: Vec<_> = deep.findings.iter().filter(|f| f.level > FindingLevel::Note).collect();
        assert!(doubts.is_empty(), "{path}: {doubts:?}");
        assert_eq!(deep.bytes, data.len() as u64);
    }
}

#[test]
fn shards_tell_rank_mesh_and_name() {
    for path in SETS
        .iter()
        .flat_map(|s| set(s))
        .filter(|p| p.file_name().unwrap().starts_with("model_"))
    {
        let report = structure(FileKind::TorchZip, &bytes(&path));
        let facts = facts(&report);
        assert_eq!(facts.archive.as_deref(), path.file_stem(), "{path}");
        let rank = facts.rank.expect("the mesh names the rank");
        assert!(
            path.as_str().ends_with(&format!("_rank_{rank}.pt")),
            "{path} says rank {rank}"
        );
        assert_eq!(facts.mesh, Some(2), "{path}");
        assert_eq!(facts.tensors, 15, "{path}");
    }
}

#[test]
fn tensors_of_a_shard_are_listed_with_their_placement() {
    let shards = ["verl_ppo_fsdp1_w2", "verl_ppo_fsdp2_w2"];
    for name in shards {
        let path = set(name)
            .into_iter()
            .find(|p| p.as_str().ends_with("model_world_size_2_rank_1.pt"))
            .unwrap();
        let data = bytes(&path);
        let inspected = inspect(FileKind::TorchZip, &data, &InspectLimits::default());
        let first = &inspected.inventory[0];
        assert_eq!(first.name, "model.embed_tokens.weight");
        assert_eq!(first.shape, [32, 8]);
        let placement = first.placement.as_ref().expect("a distributed tensor");
        assert_eq!(placement.global, [64, 8]);
        assert_eq!(placement.words, ["Shard(0)"]);
        assert_eq!((placement.mesh.as_slice(), placement.rank), ([2].as_slice(), Some(1)));
        let elements: u64 = inspected
            .inventory
            .iter()
            .map(supervise_checkpoint::torch::TorchTensor::elements)
            .sum();
        assert_eq!(elements, 1048, "half of 2096 parameters");
    }
}

#[test]
fn steps_of_optimizer_schedule_and_loader_are_read() {
    for path in SETS.iter().flat_map(|s| set(s)) {
        let Some(step) = path
            .as_str()
            .split("global_step_")
            .nth(1)
            .and_then(|r| r.split('/').next())
        else {
            continue;
        };
        let step: u64 = step.parse().unwrap();
        let name = path.file_name().unwrap();
        let report = structure(FileKind::of(name), &bytes(&path));
        if name.starts_with("optim_") {
            assert_eq!(facts(&report).optimizer_steps, [step], "{path}");
        } else if name.starts_with("extra_state_") {
            assert!(facts(&report).has_lr_scheduler, "{path}");
            assert_eq!(facts(&report).scheduler_steps, Some(step), "{path}");
            assert_eq!(facts(&report).rng, ["cpu", "numpy", "random"], "{path}");
        } else if name.starts_with("data") {
            assert_eq!(facts(&report).batches, Some(step), "{path}");
        } else if name == "fsdp_config.json" {
            assert_eq!(report.facts.world_size, Some(2), "{path}");
            let version = if path.as_str().contains("fsdp1") { 1 } else { 2 };
            assert_eq!(report.facts.fsdp_version, Some(version), "{path}");
        }
    }
}

#[test]
fn what_torch_writes_of_other_values_is_whole_and_familiar() {
    for name in [
        "adamw",
        "dtypes",
        "modules",
        "numpy",
        "protocol_3",
        "protocol_4",
        "protocol_5",
        "python",
        "quantized",
        "sparse",
        "storages",
        "stream",
        "views",
    ] {
        let report = full(FileKind::TorchZip, &torch(name));
        assert_eq!(
            (report.verdict, report.proven),
            (Verdict::Whole, Depth::Full),
            "{name}: {:?}",
            report.findings
        );
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
    }
    assert_eq!(facts(&full(FileKind::TorchZip, &torch("adamw"))).optimizer_steps, [3]);
}

#[test]
fn element_types_are_known() {
    let data = torch("dtypes");
    let inspected = inspect(FileKind::TorchZip, &data, &InspectLimits::default());
    assert_eq!(inspected.inventory.len(), 17);
    for t in &inspected.inventory {
        assert_eq!(t.dtype.map(supervise_checkpoint::Dtype::word), Some(t.name.as_str()));
    }
}

#[test]
fn doubts_about_real_files_are_said() {
    let report = full(FileKind::TorchZip, &torch("not_finite"));
    assert_eq!((report.verdict, codes(&report)), (Verdict::Whole, vec!["non_finite"]));
    assert!(
        report.findings[0].detail.starts_with("2 numbers in 1 storages"),
        "{}",
        report.findings[0]
    );

    // Made by hand: no generator of torch has a state of 16 bytes on the CPU.
    let report = full(FileKind::TorchZip, &torch("extra"));
    assert_eq!((report.verdict, codes(&report)), (Verdict::Whole, vec!["rng_state"]));

    let report = full(FileKind::TorchZip, &torch("module"));
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Unsafe, vec!["unfamiliar_global"])
    );
    assert!(
        report.findings[0].detail.contains("torch.nn.modules.linear.Linear"),
        "{}",
        report.findings[0]
    );

    let report = full(FileKind::TorchZip, &torch("no_checksums"));
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Depth::Full));
    assert_eq!(codes(&report), ["crc_not_written"]);
}

#[test]
fn real_files_that_are_not_whole() {
    for (name, verdict, code) in [
        ("failed", Verdict::Incomplete, "no_data_pkl"),
        ("legacy", Verdict::Unknown, "legacy_torch_file"),
        ("script", Verdict::Unknown, "zip_not_stored"),
    ] {
        let report = structure(FileKind::TorchZip, &torch(name));
        assert_eq!((report.verdict, codes(&report)), (verdict, vec![code]), "{name}");
    }
}

#[test]
fn distributed_tensors_of_torch_2_6_are_read() {
    let data = torch_2_6("dtensor.pt");
    let report = full(FileKind::TorchZip, &data);
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Depth::Full));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((facts(&report).rank, facts(&report).mesh), (Some(3), Some(4)));
    let inspected = inspect(FileKind::TorchZip, &data, &InspectLimits::default());
    let seen: Vec<_> = inspected
        .inventory
        .iter()
        .map(|t| {
            (
                t.name.as_str(),
                t.shape.as_slice(),
                t.placement.as_ref().expect("distributed"),
            )
        })
        .collect();
    assert_eq!((seen[0].0, seen[0].1), ("square", [4, 4].as_slice()));
    assert_eq!(seen[0].2.words, ["Replicate", "Shard(0)"]);
    assert_eq!((seen[0].2.mesh.as_slice(), seen[0].2.rank), ([2, 2].as_slice(), None));
    assert_eq!(
        (seen[1].0, seen[1].1, seen[1].2.rank),
        ("line", [2, 4].as_slice(), Some(3))
    );
}
