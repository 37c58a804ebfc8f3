//! The facts that break whoever trusts verl's files and words.

use crate::bench::{Bench, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{names, snapshot};

/// [fact.01] Step directories are called `global_step_N`; the documentation writes `global_steps_N`, which no release creates or reads | Only the exact name is a step; one that merely looks like it is mentioned, never resumed from and never touched
#[test]
fn fact_01_step_directories_are_singular() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::rename(bench.step(2, ""), bench.root().join("global_steps_2")).unwrap();
    fs::write(bench.tracker(), "1").unwrap();
    bench.plan().starts_at(1).moves_nothing();
    let root = bench.root();
    bench
        .ask(&["checkpoints", root.to_str().unwrap()])
        .tells(0, &["global_steps_2 is ignored"]);
    for name in ["global_step_0002", "global_step_2.bak"] {
        fs::rename(bench.root().join("global_steps_2"), bench.root().join(name)).unwrap();
        bench.plan().starts_at(1).moves_nothing();
        fs::rename(bench.root().join(name), bench.root().join("global_steps_2")).unwrap();
    }
}

/// [fact.02] `resume_mode=auto` trusts one text file: missing or astray, training starts again at step 0 with exit code 0; empty, torn or naming a damaged step, every relaunch fails | The directory is scanned and each step proven; the newest proven one is given to verl by path, whatever the file says
#[test]
fn fact_02_one_text_file_decides_where_verl_resumes() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    for text in [None, Some("7"), Some(""), Some("two"), Some("2\n")] {
        match text {
            Some(text) => fs::write(bench.tracker(), text).unwrap(),
            None => fs::remove_file(bench.tracker()).unwrap(),
        }
        bench.plan().starts_at(2).moves_nothing();
    }
    // It names a step that is not whole.
    fs::write(bench.tracker(), "2").unwrap();
    bench.lose(2, "actor/optim_world_size_2_rank_1.pt");
    bench.plan().starts_at(1).moves_aside(2);
}

/// [fact.03] The PPO trainer truncates its pointer before it writes it: a crash there leaves it empty, and each relaunch fails on it | The pointer is no proof and no condition; the run goes on from the step it should have named, and the pointer is mended
#[test]
fn fact_03_the_pointer_is_truncated_before_it_is_written() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(bench.tracker(), "").unwrap();
    bench.plan().starts_at(2).says("write_tracker");
    // The same in a run: all ranks die in a save, and the pointer is empty.
    let mut scene = scene();
    scene.fault("kill_all_mid_save", 8, false);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
}

/// [fact.04] Rank 0 writes `fsdp_config.json` before the other ranks are done with their shards | It marks nothing: each rank's shard of each part is needed and proven, and a missing one is named with its rank
#[test]
fn fact_04_fsdp_config_is_no_mark_of_completion() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(2, "actor/extra_state_world_size_2_rank_1.pt");
    bench.lose(2, "data.pt");
    assert!(bench.step(2, "actor/fsdp_config.json").exists());
    bench
        .verify("global_step_2")
        .tells(20, &["shards_missing", "extra_state_world_size_2_rank_1.pt"]);
    bench.plan().starts_at(1).moves_aside(2);
}

/// [fact.05] A relaunch from step M saves into the directories of later steps that a dead attempt left: old marks stand beside shards that are half rewritten | Every later step goes aside before the launch, as it is; nothing is saved over it
#[test]
fn fact_05_later_steps_are_saved_over() {
    let scene = scene();
    let expected = scene.expected_digest();
    scene.train(&["trainer.total_training_steps=8"]);
    let before = snapshot(&scene.step(8)).len();
    scene.run(&["--from", "4"]).expect(0);
    let aside = scene.aside();
    let kept = |n: u64| {
        aside
            .iter()
            .find(|a| a.contains(&format!("global_step_{n}")))
            .unwrap()
            .clone()
    };
    let eighth = scene.root().join(".supervise/aside").join(kept(8));
    assert_eq!((scene.resumed(1), snapshot(&eighth).len()), (Some(4), before));
    kept(6);
    assert_eq!(scene.digest(), Some(expected));
}

/// [fact.06] With one checkpoint to keep, the older one is deleted while the pointer still names it; only `actor` and `critic` are deleted, never the step; what a process did not save it forgets | The number is raised for verl and kept by `supervise`, over restarts too, after a newer step is proven; what is left of a step is no checkpoint
#[test]
fn fact_06_retention_deletes_too_early_in_part_and_forgets() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.set("trainer.max_actor_ckpt_to_keep", json!(1));
    bench.plan().passes("trainer.max_actor_ckpt_to_keep=3");
    // The pointer names a step of which only data.pt is left.
    bench.lose(2, "actor");
    bench.plan().starts_at(1);
    bench.verify("").tells(0, &["husk"]);
    // Two attempts, neither of which knows of the other's steps.
    let mut scene = scene();
    scene
        .set("trainer.max_actor_ckpt_to_keep", json!(2))
        .fault("kill_rank", 7, false);
    scene.run(&[]).expect(0);
    assert_eq!(scene.attempts(), 2);
    let steps: Vec<_> = names(&scene.root())
        .into_iter()
        .filter(|n| n.starts_with("global_step_"))
        .collect();
    // The second attempt's resume point went, too: two newer steps are proven.
    assert_eq!(steps, ["global_step_10", "global_step_12"]);
}

/// [fact.07] `async_save` never completes in 0.9.1: FSDP saves but the pointer is not written, Megatron's saves are never made whole | It is switched off at every launch, and that is said
#[test]
fn fact_07_asynchronous_saves_never_complete() {
    let mut bench = Bench::ppo();
    let key = "actor_rollout_ref.actor.checkpoint.async_save";
    bench.set(key, json!(true));
    bench
        .plan()
        .starts_afresh()
        .finds("async_save")
        .passes(&format!("{key}=False"));
    let mut bench = Bench::megatron();
    bench.set(key, json!(true));
    bench.plan().finds("async_save").passes(&format!("{key}=False"));
    let mut bench = Bench::sft();
    bench.set("checkpoint.async_save", json!(true));
    bench.plan().finds("async_save").passes("++checkpoint.async_save=False");
    Bench::ppo().plan().is_silent_on("async_save").leaves("async_save");
}

/// [fact.08] `save_freq=-1` means no checkpoint at all in PPO, not even of the last step; the SFT trainer saves its last step | PPO is refused with 78 unless it is started with `--no-recovery`; for SFT the cost of a crash is told
#[test]
fn fact_08_a_save_frequency_of_minus_one_saves_nothing() {
    let mut bench = Bench::ppo();
    for never in [-1, 0] {
        bench.set("trainer.save_freq", json!(never));
        bench.plan().refuses(78, &["trainer.save_freq", "no checkpoint at all"]);
    }
    bench.set("supervisor.recovery", json!(false));
    bench.plan().finds("never_saves");
    let mut bench = Bench::sft();
    bench.set("trainer.save_freq", json!(-1));
    bench.plan().starts_afresh().finds("cadence").says("only the last step");
}

/// [fact.09] FSDP that saves only `hf_model` resumes without loading anything, and counts on from the step with fresh weights | Refused with 78 before a GPU is touched; a step without shards is never resumed from
#[test]
fn fact_09_exported_weights_alone_are_not_loaded_by_fsdp() {
    let mut bench = Bench::ppo();
    bench.actor("checkpoint.save_contents", json!(["hf_model"]));
    bench
        .plan()
        .refuses(78, &["checkpoint.save_contents", "FSDP loads weights only from shards"]);
    bench.actor(
        "checkpoint.save_contents",
        json!(["model", "hf_model", "optimizer", "extra"]),
    );
    bench.actor("checkpoint.load_contents", json!(["hf_model"]));
    bench.plan().refuses(78, &["checkpoint.load_contents", "fresh weights"]);
    // A step that was saved that way, and a configuration that was mended since.
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    for step in [1, 2] {
        for rank in 0..2 {
            bench.lose(step, &format!("actor/model_world_size_2_rank_{rank}.pt"));
        }
    }
    let plan = bench.plan();
    plan.refuses(3, &["no complete set of model shards"]).moves_nothing();
}

/// [fact.10] In `ckpt_contents.json` the note of `hf_model` is a list of one string, where all other notes are strings | Either is read, and notes decide nothing
#[test]
fn fact_10_a_note_of_the_manifest_is_a_list() {
    let bench = Bench::megatron().with("verl_megatron_v2_hf");
    let entry = |note: &str| {
        format!(
            "\"contents\": {{\"hf_model\": {{\"format\": \"huggingface\", \"note\": {note}, \"path\": \"model/huggingface\"}},"
        )
    };
    bench.edit(
        2,
        "actor/ckpt_contents.json",
        "\"contents\": {",
        &entry("[\"weights\"]"),
    );
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2);
    bench.edit(2, "actor/ckpt_contents.json", "[\"weights\"]", "\"weights\"");
    bench.verify("global_step_2").tells(0, &[]);
}

/// [fact.11] A save creates all of its directories first, and so does looking for one | An empty directory proves nothing: what the manifest promises has to be in it
#[test]
fn fact_11_empty_directories_prove_nothing() {
    let parts = ["model/dist_ckpt", "optimizer/dist_ckpt", "extra/dist_ckpt"];
    for part in parts {
        let bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
        bench.lose(2, &format!("actor/{part}"));
        fs::create_dir(bench.step(2, &format!("actor/{part}"))).unwrap();
        bench.verify("global_step_2").tells(20, &[part]);
        bench.plan().starts_at(1);
    }
    // Nothing but directories.
    let bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
    bench.lose(2, "actor");
    for part in parts {
        fs::create_dir_all(bench.step(2, &format!("actor/{part}"))).unwrap();
    }
    bench.verify("global_step_2").tells(20, &[]);
    bench.plan().starts_at(1);
}

/// [fact.12] verl's migration script takes any directory with a `huggingface/` in it for an old one of Megatron's: run over FSDP's steps it moves that directory away | `supervise migrate` knows whose files they are, says so and touches nothing
#[test]
fn fact_12_migration_takes_fsdp_for_megatron() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let root = bench.root();
    let steps = || [1, 2].map(|n| snapshot(&bench.step(n, "")));
    let before = steps();
    let said = bench.ask(&["migrate", "--checkpoint-root", root.to_str().unwrap(), "--all-steps"]);
    said.tells(64, &["FSDP's manager wrote it"]);
    assert_eq!(steps(), before);
}

/// [fact.13] With Megatron's defaults the weights are in Hugging Face's format already, and verl's merger, which reads Megatron's own shards, fails on them | The step is whole and resumed from as it is; a run that would look for shards instead is stopped, and told which switch to change
#[test]
fn fact_13_weights_through_the_bridge_are_no_shards() {
    let mut bench = Bench::megatron().with("verl_megatron_v2_hf");
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2);
    bench.actor("megatron.use_dist_checkpointing", json!(true));
    bench
        .plan()
        .refuses(3, &["use_dist_checkpointing=False", "model/huggingface"])
        .moves_nothing();
}

/// [fact.14] Megatron starts the learning-rate schedule anew at every resume unless `use_checkpoint_opt_param_scheduler` is set | Said before the launch, and listed as never restored; silent where it is set
#[test]
fn fact_14_megatron_starts_the_schedule_anew() {
    let mut bench = Bench::megatron().with("verl_megatron_v2_hf");
    bench
        .plan()
        .starts_at(2)
        .finds("schedule_restarts")
        .never_restores("lr_schedule");
    bench.actor("optim.use_checkpoint_opt_param_scheduler", json!(true));
    bench.plan().starts_at(2).is_silent_on("schedule_restarts");
}

/// [fact.15] Starting a finished run again is not always harmless: v0 and the SFT trainer may train and save one step more; and exit code 0 does not prove an end | A run whose last step is proven is not launched; an end before that step is an early end, whatever the exit code
#[test]
fn fact_15_a_finished_run_is_trained_on() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench
        .set("trainer.total_training_steps", json!(2))
        .script("touch launched\n");
    bench.plan().refuses(0, &[]).says("finished");
    bench.run(&[]).tells(0, &["finished"]);
    assert!(!bench.path("launched").exists());
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.set("trainer.total_training_steps", json!(2));
    bench.plan().refuses(0, &[]).says("finished").finds("finished_run");
    // It ends well, and has done nothing.
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.script("exit 0\n");
    bench
        .run(&[])
        .tells(3, &["exit code 0", "the newest whole step is 2, not 10"]);
}

/// [fact.16] The file logger truncates its file at each start: a relaunch erases the metrics of the attempt before | Each attempt gets a file of its own in the run's directory
#[test]
fn fact_16_the_file_logger_erases_what_was_logged() {
    let mut bench = Bench::ppo();
    bench.set("trainer.logger", json!(["console", "file"]));
    bench
        .plan()
        .exports("VERL_FILE_LOGGER_PATH", "attempts/0001/metrics.jsonl");
    bench
        .script("echo \"$VERL_FILE_LOGGER_PATH\" >>paths; exit 1\n")
        .set("supervisor.retries", json!(1));
    bench.run(&[]);
    let paths = fs::read_to_string(bench.path("paths")).unwrap();
    let paths: std::collections::BTreeSet<_> = paths.lines().collect();
    assert_eq!(paths.len(), bench.attempts(), "{paths:?}");
    assert!(bench.attempts() > 1);
}
