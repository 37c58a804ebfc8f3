//! What a crash leaves behind, by the moment it came at.

use crate::bench::Bench;
use std::fs;

/// A PPO run of which the second step's save was interrupted.
fn interrupted() -> Bench {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(bench.tracker(), "1").unwrap();
    bench
}

/// [crash.shards] In the shards: some are missing, one is cut, `fsdp_config.json` may be there | Incomplete, and the step before is taken
#[test]
fn in_the_shards() {
    let bench = interrupted();
    bench
        .lose(2, "data.pt")
        .lose(2, "actor/extra_state_world_size_2_rank_0.pt");
    bench.lose(2, "actor/extra_state_world_size_2_rank_1.pt");
    bench.cut(2, "actor/optim_world_size_2_rank_1.pt");
    bench
        .verify("global_step_2")
        .tells(20, &["optim_world_size_2_rank_1.pt"]);
    bench.plan().starts_at(1).moves_aside(2);
}

/// [crash.critic] In the critic: the actor is complete, the critic is not | Incomplete where the run has a critic
#[test]
fn in_the_critic() {
    let mut bench = interrupted();
    bench.set("algorithm.adv_estimator", serde_json::json!("gae"));
    for step in [1, 2] {
        let (actor, critic) = (bench.step(step, "actor"), bench.step(step, "critic"));
        supervise_tests::harness::copy_tree(&actor, &critic).unwrap();
    }
    bench.plan().starts_at(2);
    bench.lose(2, "critic/model_world_size_2_rank_1.pt").lose(2, "data.pt");
    bench.plan().starts_at(1).moves_aside(2);
    bench.lose(2, "critic");
    bench.plan().starts_at(1).moves_aside(2);
}

/// [crash.data] Before or in `data.pt`: every role is complete | Whole; the lost data order is told. A torn `data.pt` makes the step incomplete
#[test]
fn in_the_dataloaders_state() {
    let bench = interrupted();
    bench.cut(2, "data.pt");
    bench.plan().starts_at(1);
    bench.lose(2, "data.pt");
    bench.verify("global_step_2").tells(0, &["no_data_state"]);
}

/// [crash.pointer] Between truncating the pointer and writing it: it is empty, the step is complete | The step is resumed from
#[test]
fn in_the_pointer() {
    let bench = interrupted();
    fs::write(bench.tracker(), "").unwrap();
    bench.plan().starts_at(2);
}

/// [crash.retention] While the older step is deleted, with one to keep: the pointer names what is half gone | What is left is no checkpoint; the new step is resumed from
#[test]
fn in_the_retention() {
    let bench = interrupted();
    bench
        .lose(1, "actor/model_world_size_2_rank_0.pt")
        .lose(1, "actor/fsdp_config.json");
    bench.plan().starts_at(2);
}

/// [crash.power] Power is lost soon after: shards that were never flushed are short or hold zeros | Found by the end records, the directory of the archive and zero blocks
#[test]
fn by_a_power_failure() {
    for empty in [false, true] {
        let bench = interrupted();
        let shard = bench.step(2, "actor/model_world_size_2_rank_1.pt");
        let length = fs::metadata(&shard).unwrap().len() as usize;
        let mut bytes = fs::read(&shard).unwrap();
        if empty {
            bytes.clear();
        } else {
            bytes[length / 2..].fill(0);
        }
        fs::write(&shard, bytes).unwrap();
        bench.plan().starts_at(1).moves_aside(2);
    }
}

/// [crash.disk_full] The disk fills up: a rank's shard is cut, or torch closes the archive of the failed save as if it were whole | The storages that the pickle names are looked for: an archive without one of them is not whole
#[test]
fn by_a_full_disk() {
    let bench = interrupted();
    let shard = bench.step(2, "actor/optim_world_size_2_rank_0.pt");
    let mut bytes = fs::read(&shard).unwrap();
    // The entry goes under another name, in its header and in the directory: all else stays valid.
    let (name, other) = (b"_rank_0/data/1", b"_rank_0/dat_/1");
    let places: Vec<usize> = (0..bytes.len() - name.len())
        .filter(|at| bytes[*at..].starts_with(name))
        .collect();
    for at in &places {
        bytes[*at..at + name.len()].copy_from_slice(other);
    }
    assert!(places.len() > 1, "{places:?}");
    fs::write(&shard, bytes).unwrap();
    let said = bench.verify("global_step_2");
    assert!([20, 21].contains(&said.code), "{said:#?}");
    said.tells(said.code, &["optim_world_size_2_rank_0.pt"]);
    bench.lose(2, "data.pt");
    bench.plan().starts_at(1).moves_aside(2);
}

/// [crash.megatron] In a save of Megatron's: the manifest is written last, from a temporary file | No manifest, no checkpoint, whatever else is there
#[test]
fn before_the_manifest() {
    let bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
    fs::write(bench.tracker(), "1").unwrap();
    let manifest = bench.step(2, "actor/ckpt_contents.json");
    fs::rename(&manifest, bench.step(2, "actor/ckpt_contents.json.tmp")).unwrap();
    bench.verify("global_step_2").tells(20, &["manifest_missing"]);
    bench.plan().starts_at(1).moves_aside(2);
}

/// [crash.sft] The SFT trainer may write its pointer before other ranks have written their `data_R.pt` | A step with fewer of them than the run's other steps is incomplete
#[test]
fn of_the_sft_trainer() {
    let bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.lose(2, "data_1.pt");
    bench.verify("global_step_2").tells(20, &["data_1.pt"]);
    bench.plan().starts_at(1).moves_aside(2);
}
