//! Megatron's checkpoints, in AReaL's directories: `common.pt` is written first, `metadata.json` last.

use crate::bench::fixtures;
use crate::stage::{Stage, generations, live, put_back};
use std::fs::{self, File, FileTimes};
use std::time::{Duration, SystemTime};
use supervise_core::checkpoint::Verdict;
use supervise_core::id::Step;
use supervise_tests::harness::copy_tree;

const CHECKPOINT: &str = "default/recover_checkpoint";
const SHARDS: [&str; 4] = ["__0_0.distcp", "__0_1.distcp", "__1_0.distcp", "__1_1.distcp"];

/// The counters of step 1, beside what Megatron saved at step 1.
fn saved() -> Stage {
    let mut stage = Stage::new();
    for role in &mut stage.spec.roles {
        role.load_contents = vec!["model".to_owned()];
    }
    stage.save(1);
    fs::remove_dir_all(stage.root.join(CHECKPOINT)).unwrap();
    copy_tree(&megatron(1), stage.root.join(CHECKPOINT).as_std_path()).unwrap();
    stage.forget_times();
    stage
}

/// What Megatron's own writer saved of the optimizer at that step.
fn megatron(step: u64) -> std::path::PathBuf {
    fixtures().join(format!(
        "verl_megatron_v2_tp2/global_step_{step}/actor/optimizer/dist_ckpt"
    ))
}

/// Writes these files of step 2 over those of step 1.
fn overwrite(stage: &Stage, names: &[&str]) {
    for name in names {
        fs::copy(megatron(2).join(name), stage.root.join(CHECKPOINT).join(name)).unwrap();
    }
}

/// Gives a file a time that is so many seconds after that of all others.
fn later(stage: &Stage, name: &str, seconds: u64) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    let file = File::options()
        .write(true)
        .open(stage.root.join(CHECKPOINT).join(name))
        .unwrap();
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

/// It is not whole, for this reason.
#[track_caller]
fn is_found_out(stage: &Stage, code: &str) {
    let c = live(&stage.look()).clone();
    assert_ne!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    assert_eq!(c.why().unwrap().code, code, "{:?}", c.findings);
}

#[track_caller]
fn is_whole(stage: &Stage) {
    let c = live(&stage.look()).clone();
    assert_eq!((c.step, c.verdict), (Step(1), Verdict::Whole), "{:?}", c.findings);
}

/// [crash.megatron_sync] `common.pt` is written first: weights of one save, the schedule of another | It belongs to the save like a shard: compared with the copy of its save, and by its time; what was kept is put back
#[test]
fn after_the_common_file() {
    let stage = saved();
    is_whole(&stage);
    stage.io_worker().keep_live().unwrap();
    overwrite(&stage, &["common.pt"]);
    stage.forget_times();
    is_found_out(&stage, "mixed_generations");
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let from = generations(&report)[0].id.clone();
    io_worker.edit(put_back(&report, &from)).unwrap();
    is_whole(&stage);

    // Nobody saw the save before.
    let stage = saved();
    overwrite(&stage, &["common.pt"]);
    later(&stage, "common.pt", 60);
    is_found_out(&stage, "shard_after_metadata");
}

/// [crash.megatron_async] `recover_info` is written before the data of the save is on disk | Proven, and copied, only when the data has come: nothing of two saves is whole
#[test]
fn counters_before_their_data() {
    let mut stage = saved();
    stage.say(|live| live.async_save = true);
    stage.io_worker().keep_live().unwrap();
    for arrived in 1..SHARDS.len() {
        overwrite(&stage, &SHARDS[..arrived]);
        stage.forget_times();
        is_found_out(&stage, "mixed_generations");
    }
}

/// [rule.megatron_times] `metadata.json` of the save before stays there while the next one is written | That it is there says nothing: in a save in the background it has to be the newest
#[test]
fn the_last_file_of_the_save_before() {
    let mut stage = saved();
    stage.say(|live| live.async_save = true);
    later(&stage, ".metadata", 60);
    is_found_out(&stage, "background_save");
    later(&stage, "metadata.json", 61);
    is_whole(&stage);
}
