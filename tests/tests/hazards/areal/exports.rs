//! What stands beside the checkpoint, and is none.

use crate::areal_bench::Areal;
use crate::stage::{Stage, files, generations, live};
use std::fs;
use supervise_core::checkpoint::Verdict;

/// [export.not_resumed] An export holds no optimizer and cannot be resumed from | Listed for itself, as nothing to resume from; where only exports are left, a run begins anew and leaves them
#[test]
fn exports_are_no_checkpoints() {
    let bench = Areal::genuine();
    let export = "default/epoch0epochstep1globalstep1";
    let listed = bench.checkpoints();
    assert_eq!(listed["exports"][0]["path"], export, "{listed:#}");
    assert_eq!(listed["exports"][0]["resumable"], false, "{listed:#}");
    assert_eq!(listed["steps"].as_array().unwrap().len(), 1, "{listed:#}");
    fs::remove_dir_all(bench.trial("recover_info")).unwrap();
    fs::remove_dir_all(bench.trial("default/recover_checkpoint")).unwrap();
    bench.plan().begins_anew().is_silent_on("globalstep1");
    assert!(bench.trial(export).join("model.safetensors").exists());
}

/// [export.weight_update] Weights for the inference engines that a crash leaves behind are never removed | Neither a set nor an export: not resumed from, and not copied; they stay
#[test]
fn weights_on_their_way_to_the_rollout() {
    let left = "default/weight_update_v3/model.safetensors";
    let bench = Areal::genuine();
    fs::create_dir_all(bench.trial("default/weight_update_v3")).unwrap();
    fs::write(bench.trial(left), "cut sho").unwrap();
    bench.plan().resumes();
    let listed = bench.checkpoints();
    assert!(!listed.to_string().contains("weight_update"), "{listed:#}");

    let stage = Stage::new();
    stage.save(4);
    fs::create_dir_all(stage.root.join("default/weight_update_v3")).unwrap();
    fs::write(stage.root.join(left), "cut sho").unwrap();
    let mut io_worker = stage.io_worker();
    io_worker.keep_live().unwrap();
    let report = io_worker.scan();
    assert_eq!(live(&report).verdict, Verdict::Whole);
    let kept = stage.store.join("protected").join(&generations(&report)[0].id.0);
    let copied = files(&kept);
    assert!(
        copied.len() > 6 && copied.keys().all(|p| !p.as_str().contains("weight_update")),
        "{kept}"
    );
    assert!(stage.root.join(left).exists());
}
