//! verl's switches: what each means for a run that is to be resumed.

use crate::bench::{Bench, Plan};
use serde_json::json;
use std::fs;

/// PPO, started by verl's own module, which is given the YAML as overrides.
fn started_by(module: &str) -> Bench {
    let mut bench = Bench::ppo();
    bench.set("supervisor.command", json!(["/bin/true", "-m", module, "{overrides}"]));
    bench
}

/// The value reaches verl unchanged, and says nothing to us.
fn passed_on(key: &str, value: serde_json::Value, word: &str) -> Plan {
    let mut bench = started_by("verl.trainer.main_ppo");
    bench.set(key, value);
    let plan = bench.plan();
    plan.starts_afresh().says(&format!("{key}={word}"));
    plan
}

/// [switch.main_ppo] `verl.trainer.main_ppo` is PPO, v1 unless `use_v1` is false | Known by the module in the command; the YAML is given to it as overrides
#[test]
fn main_ppo() {
    started_by("verl.trainer.main_ppo")
        .plan()
        .starts_afresh()
        .says("\"trainer\": \"verl-ppo\"");
}

/// [switch.megatron_trainer] `--config-name=ppo_megatron_trainer`, or `model_engine=megatron`, chooses Megatron for every role | Either is read, from YAML and command line
#[test]
fn megatron_trainer() {
    let mut bench = started_by("verl.trainer.main_ppo");
    bench.set("actor_rollout_ref", json!({}));
    for word in ["--config-name=ppo_megatron_trainer", "model_engine=megatron"] {
        bench.set(
            "supervisor.command",
            json!(["/bin/true", "-m", "verl.trainer.main_ppo", word, "{overrides}"]),
        );
        bench.plan().finds("schedule_restarts");
    }
}

/// [switch.sft_trainer] `verl.trainer.sft_trainer` runs once for each GPU, under torchrun or without it | The ranks are started here, or torchrun's own number is read and its restarts are switched off
#[test]
fn sft_trainer() {
    let mut bench = Bench::sft();
    bench
        .plan()
        .starts_afresh()
        .says("\"trainer\": \"verl-sft\"")
        .says("\"workers\": 2");
    let torchrun = bench.path("torchrun");
    fs::copy("/bin/true", &torchrun).unwrap();
    bench.set(
        "supervisor.command",
        json!([
            torchrun,
            "--nproc_per_node=2",
            "--max-restarts=3",
            "-m",
            "verl.trainer.sft_trainer",
            "{overrides}"
        ]),
    );
    bench.set("supervisor.gang", json!({"gpus": "none"}));
    bench.plan().says("--max-restarts=0");
}

/// [switch.sft_trainer_ray] `verl.trainer.sft_trainer_ray` starts its ranks through Ray | One driver; the number of ranks is the configuration's
#[test]
fn sft_trainer_ray() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.set(
        "supervisor.command",
        json!(["/bin/true", "-m", "verl.trainer.sft_trainer_ray", "{overrides}"]),
    );
    bench
        .set("supervisor.gang", json!({"gpus": "none"}))
        .set("trainer.n_gpus_per_node", json!(4));
    bench.plan().refuses(3, &["written by 2 ranks and this run has 4"]);
}

/// [switch.one_step_off] `verl.experimental.one_step_off_policy.main_ppo` saves and loads as v0 does | Read as PPO's older trainer: what v0 refuses is refused
#[test]
fn one_step_off() {
    let mut bench = started_by("verl.experimental.one_step_off_policy.main_ppo").with("verl_ppo_fsdp2_w2");
    bench.plan().starts_at(2);
    bench.set("trainer.default_hdfs_dir", json!("hdfs://host/x"));
    bench.plan().refuses(78, &["load from hdfs is not implemented yet"]);
}

/// [switch.fully_async, layout.fully_async, failure.fully_async_step] `verl.experimental.fully_async_policy.fully_async_main`: N in `global_step_N` is the version of the weights, and the counter is one step off after a resume | Steps are compared with steps only, never with the trainer's counter; that samples which wait are lost is told
#[test]
fn fully_async() {
    let bench = started_by("verl.experimental.fully_async_policy.fully_async_main").with("verl_ppo_fsdp2_w2");
    bench.plan().starts_at(2).finds("steps_are_versions");
    // `total_training_steps` counts something else there: two versions are no end of ten steps, nor of two.
    let mut bench = started_by("verl.experimental.fully_async_policy.fully_async_main").with("verl_ppo_fsdp2_w2");
    bench.set("trainer.total_training_steps", json!(2));
    bench.plan().starts_at(2);
}

/// [switch.version] Defaults, keys and layouts differ from release to release | Read from the interpreter that will run verl, or from `supervisor.trainer_version`; where it is not known, only what every release does is relied on, and what differs has to be said
#[test]
fn version() {
    let mut bench = Bench::megatron();
    bench.plan().starts_afresh();
    bench.set("supervisor.trainer_version", json!(null));
    bench.plan().refuses(78, &["use_mbridge", "releases of verl differ"]);
    bench.actor("megatron.use_mbridge", json!(true));
    bench.plan().starts_afresh();
    // A key that 0.4.0 does not know is not given to it.
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench
        .plan()
        .passes("actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']");
    bench.set("supervisor.trainer_version", json!("0.4.0"));
    bench.plan().starts_at(2).leaves("load_contents");
}

/// [switch.remove_previous_ckpt] `remove_previous_ckpt_in_save`, long deprecated, keeps one checkpoint whatever else is set | Told before the launch, with what to set instead
#[test]
fn remove_previous_ckpt() {
    let mut bench = Bench::ppo();
    bench.plan().is_silent_on("removes_previous");
    bench.set("trainer.remove_previous_ckpt_in_save", json!(true));
    bench.plan().finds("removes_previous").says("max_actor_ckpt_to_keep");
}

/// [switch.default_local_dir] The root is relative by default, and means another directory in each Ray process | verl is given the absolute path; `~`, `hdfs://` and the like are refused with 78
#[test]
fn default_local_dir() {
    let mut bench = Bench::ppo();
    bench.set("trainer.default_local_dir", json!("out/${trainer.experiment_name}"));
    let root = format!("trainer.default_local_dir='{}'", bench.path("out/gsm8k").display());
    bench.plan().starts_afresh().finds("relative_root").passes(&root);
    for (path, words) in [
        ("~/out", "does not expand `~`"),
        ("hdfs://host/out", "no path of a file system"),
    ] {
        bench.set("trainer.default_local_dir", json!(path));
        bench.plan().refuses(78, &["trainer.default_local_dir", words]);
    }
}

/// [switch.default_hdfs_dir] v1 ignores it on load; in v0, one-step-off and fully-async every resume raises; Megatron and SFT upload | Refused with 78 only where a resume would raise, a note elsewhere
#[test]
fn default_hdfs_dir() {
    let mut bench = Bench::ppo();
    bench.set("trainer.default_hdfs_dir", json!("hdfs://host/x"));
    bench.plan().starts_afresh().finds("hdfs_ignored");
    bench.set("trainer.use_v1", json!(false));
    bench.plan().refuses(
        78,
        &["trainer.default_hdfs_dir", "load from hdfs is not implemented yet"],
    );
    for mut bench in [Bench::megatron(), Bench::sft()] {
        bench.set("trainer.default_hdfs_dir", json!("hdfs://host/x"));
        bench.plan().starts_afresh().finds("hdfs_copies");
    }
}

/// [switch.save_freq] PPO saves at each multiple and at the last step | What a crash can cost is told in steps
#[test]
fn save_freq() {
    let mut bench = Bench::ppo();
    bench.set("trainer.save_freq", json!(20));
    bench.plan().finds("cadence").says("costs up to 20 steps");
}

/// [switch.val_before_train] True by default: a validation runs again at each relaunch | Told before the launch
#[test]
fn val_before_train() {
    let mut bench = Bench::ppo();
    bench.plan().finds("validates_first");
    bench.set("trainer.val_before_train", json!(false));
    bench.plan().is_silent_on("validates_first");
}

/// [switch.val_only] Trains and saves nothing | Told before the launch
#[test]
fn val_only() {
    let mut bench = Bench::ppo();
    bench.set("trainer.val_only", json!(true));
    bench.plan().finds("validates_only");
}

/// [switch.max_ckpt_to_keep] `max_actor_ckpt_to_keep`, `max_critic_ckpt_to_keep`, SFT's `max_ckpt_to_keep`: verl deletes before the new step is proven | Each that is set is raised by two for verl, and kept by `supervise`, role by role; two whole steps stay; left alone where none is set and where nothing is pruned
#[test]
fn max_ckpt_to_keep() {
    let mut bench = Bench::ppo();
    bench.plan().leaves("to_keep").finds("keep_all");
    bench.set("trainer.max_actor_ckpt_to_keep", json!(3));
    bench.plan().passes("trainer.max_actor_ckpt_to_keep=5");
    bench.set("supervisor.retention", json!({"prune": false}));
    bench.plan().leaves("to_keep");
    let mut bench = Bench::ppo();
    bench
        .set("algorithm.adv_estimator", json!("gae"))
        .set("trainer.max_actor_ckpt_to_keep", json!(3));
    bench
        .plan()
        .passes("trainer.max_actor_ckpt_to_keep=5")
        .leaves("max_critic_ckpt_to_keep")
        .says("max_critic_ckpt_to_keep is not set");
    let mut bench = Bench::sft();
    bench.set("trainer.max_ckpt_to_keep", json!(1));
    bench.plan().passes("trainer.max_ckpt_to_keep=3").finds("keep_two");
}

/// [switch.ulysses] `engine.ulysses_sequence_parallel_size` decides how many data-parallel ranks SFT has, and each has its own `data_R.pt` | A resume with another one is not exact: the data order is lost, which is said
#[test]
fn ulysses() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.plan().starts_at(2).loses(&[]);
    bench.set("engine.ulysses_sequence_parallel_size", json!(2));
    bench.plan().starts_at(2).loses(&["data_order"]);
}

/// [switch.megatron_without_megatron] Megatron's switches in the configuration of an FSDP run | They have no effect, which is said
#[test]
fn megatron_without_megatron() {
    let mut bench = Bench::ppo();
    bench.plan().is_silent_on("no_effect");
    bench.actor("megatron.dist_ckpt_optim_fully_reshardable", json!(true));
    bench.plan().finds("no_effect");
}

/// [switch.total_training_steps] Ends the run at this step, else the epochs do | Its end is proven where it is known; where only the epochs say it, it is read from the trainer's own output
#[test]
fn total_training_steps() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.set("trainer.total_training_steps", json!(2));
    bench.plan().says("finished");
    bench.set("trainer.total_training_steps", json!(3));
    bench.plan().starts_at(2);
    bench.set("trainer.total_training_steps", json!(null));
    bench.script("echo 'Training Progress:  67%|##    | 2/3 [00:01<00:00]'\nexit 0\n");
    bench.run(&[]).tells(3, &["the newest whole step is 2, not 3"]);
}

/// [switch.ranks] `nnodes` times `n_gpus_per_node` is the number of ranks, separate pools aside | Compared with what a step was written by, before the launch
#[test]
fn ranks() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.plan().starts_at(2);
    bench.set("trainer.n_gpus_per_node", json!(1));
    bench.plan().refuses(3, &["written by 2 ranks and this run has 1"]);
    // The actor's pool is configured elsewhere.
    bench.set("trainer.v1.trainer_mode", json!("separate_async"));
    bench.plan().starts_at(2);
}

/// [switch.logger] One name or a list; `file` truncates | A file logger gets a file for each attempt, others are left alone
#[test]
fn logger() {
    let mut bench = Bench::ppo();
    for logger in [json!("file"), json!(["console", "file"])] {
        bench.set("trainer.logger", logger);
        bench.plan().exports("VERL_FILE_LOGGER_PATH", "metrics.jsonl");
    }
}

/// [switch.critic_warmup] v0 saves nothing while the critic warms up | Told before the launch, for v0 only
#[test]
fn critic_warmup() {
    let mut bench = Bench::ppo();
    bench.set("trainer.critic_warmup", json!(5));
    bench.plan().is_silent_on("critic_warmup");
    bench.set("trainer.use_v1", json!(false));
    bench.plan().finds("critic_warmup");
}

/// [switch.critic] A critic is trained where `critic.enable` says so, else where advantages are estimated by GAE, the default | Required in each step exactly then
#[test]
fn critic() {
    for (estimator, enable, wanted) in [
        ("gae", json!(null), true),
        ("grpo", json!(null), false),
        ("grpo", json!(true), true),
        ("gae", json!(false), false),
    ] {
        let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
        bench
            .set("algorithm.adv_estimator", json!(estimator))
            .set("critic.enable", enable);
        if wanted {
            bench.plan().refuses(4, &["critic"]);
        } else {
            bench.plan().starts_at(2);
        }
    }
}

/// [switch.strategy] `fsdp`, `fsdp2` and `megatron` for each role; state written by one is not read by another | A whole step of the other strategy stops the run with 3, and stays where it is
#[test]
fn strategy() {
    let bench = Bench::megatron().with("verl_ppo_fsdp2_w2");
    bench.plan().refuses(3, &["shards of FSDP"]).moves_nothing();
    let bench = Bench::ppo().with("verl_megatron_v2_tp2");
    bench.plan().refuses(3, &["Megatron"]).moves_nothing();
    let mut bench = Bench::ppo().with("verl_ppo_fsdp1_w2");
    bench.actor("strategy", json!("fsdp"));
    bench.plan().starts_at(2);
}

/// [switch.save_contents] Any of `model`, `optimizer`, `extra`, `hf_model`; what is left out is in no checkpoint | What no resume will bring back is told before the launch; without weights, or with a word verl does not know, it is refused with 78
#[test]
fn save_contents() {
    let mut bench = Bench::ppo();
    bench.actor("checkpoint.save_contents", json!(["model", "extra"]));
    bench.plan().finds("not_saved").never_restores("optimizer");
    bench.actor("checkpoint.save_contents", json!(["optimizer", "extra"]));
    bench.plan().refuses(78, &["save_contents", "nothing to resume from"]);
    bench.actor("checkpoint.save_contents", json!(["model", "optimiser"]));
    bench.plan().refuses(78, &["save_contents", "`optimiser`"]);
}

/// [switch.vanilla_mbridge] The older bridge, which cannot carry adapters | Refused with 78 together with adapters, accepted without
#[test]
fn vanilla_mbridge() {
    let mut bench = Bench::megatron();
    bench.actor("megatron.vanilla_mbridge", json!(true));
    bench.plan().starts_afresh();
    bench.set("actor_rollout_ref.model.lora.rank", json!(8));
    bench.plan().refuses(78, &["vanilla_mbridge=False"]);
}

/// [switch.fully_reshardable] `dist_ckpt_optim_fully_reshardable` lets other divisions of the model load the optimizer, and gathers it in one rank's memory at each save | What it allows, and what it costs, is told before the launch
#[test]
fn fully_reshardable() {
    let mut bench = Bench::megatron();
    bench
        .plan()
        .finds("resharding")
        .says("needs the same tensor, pipeline, context and expert");
    bench.actor("megatron.dist_ckpt_optim_fully_reshardable", json!(true));
    bench.plan().finds("resharding").says("watch that memory");
}

/// [switch.parallel_sizes] Tensor, pipeline, context and expert parallel sizes divide the ranks | Ranks that are no multiple are refused with 78; sizes other than a step's stop the run with 3
#[test]
fn parallel_sizes() {
    let mut bench = Bench::megatron();
    bench.actor("megatron.pipeline_model_parallel_size", json!(2));
    bench.plan().refuses(78, &["2 ranks are no multiple of 4"]);
    bench.set("trainer.n_gpus_per_node", json!(4));
    bench.plan().starts_afresh();
}

/// [switch.untouched] Test frequency, callbacks, expiry margins, offloading, types of weights, `strict`, the mbridge's own settings and Gloo gathering mean nothing to a resume | Given to verl as they were written, and nothing is said of them
#[test]
fn untouched() {
    for (key, value, word) in [
        ("trainer.test_freq", json!(7), "7"),
        ("trainer.esi_redundant_time", json!(30), "30"),
        (
            "trainer.checkpoint_callback_class",
            json!("my.Callback"),
            "'my.Callback'",
        ),
        ("trainer.del_local_ckpt_after_load", json!(true), "true"),
        ("trainer.rollout_data_dir", json!("/tmp/rollouts"), "'/tmp/rollouts'"),
        ("actor_rollout_ref.actor.checkpoint.strict", json!(false), "false"),
        ("actor_rollout_ref.actor.fsdp_config.param_offload", json!(true), "true"),
        (
            "actor_rollout_ref.actor.fsdp_config.model_dtype",
            json!("bf16"),
            "'bf16'",
        ),
        (
            "actor_rollout_ref.actor.megatron.distrib_optim_fully_reshardable_mem_efficient",
            json!(true),
            "true",
        ),
    ] {
        passed_on(key, value, word);
    }
}

/// [switch.sft_save_freq] A number, or `after_each_epoch`; 0 divides by zero in the first step | 0 is refused with 78, the epoch's end is warned of
#[test]
fn sft_save_freq() {
    let mut bench = Bench::sft();
    bench.set("trainer.save_freq", json!(0));
    bench.plan().refuses(78, &["trainer.save_freq", "divides by it"]);
    bench.set("trainer.save_freq", json!("after_each_epoch"));
    bench.plan().starts_afresh().finds("epoch_boundary");
}

/// [switch.sft_engine] The engine is a group, `engine=megatron` or `engine.strategy`, and its keys stand at `engine.*` | Read as verl reads it; a step of another strategy does not fit
#[test]
fn sft_engine() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.set("engine", json!("megatron"));
    bench.plan().refuses(3, &["shards of FSDP"]).moves_nothing();
    bench.set("engine", json!({"strategy": "automodel"}));
    bench.plan().refuses(78, &["engine.strategy", "automodel"]);
}

/// [switch.overrides] Hydra's own grammar: an unknown key needs `+`, a quote, a comma or `${` has to be escaped, later ones win | Ours are escaped so that any path survives, stand last, and are refused where the command would undo them
#[test]
fn overrides() {
    let mut bench = Bench::ppo();
    let root = bench.path("it's, {a} = ü");
    fs::create_dir(&root).unwrap();
    bench.set("trainer.default_local_dir", json!(root));
    let text = root.to_str().unwrap().replace('\'', "\\'");
    bench
        .plan()
        .starts_afresh()
        .passes(&format!("trainer.default_local_dir='{text}'"));
    bench.set(
        "supervisor.command",
        json!(["/bin/true", "{overrides}", "trainer.resume_mode=auto"]),
    );
    bench.plan().refuses(78, &["trainer.resume_mode=auto", "would undo"]);
}

/// [switch.fsdp_size] `fsdp_size` shapes the device mesh, and no file says which one a step was written on; FSDP fails on shards of another | The mesh is read from the shards: a step of another one of as many ranks is not moved, and the run stops with 3, with the number that fits
#[test]
fn fsdp_size() {
    let key = "actor_rollout_ref.actor.fsdp_config.fsdp_size";
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    for same in [-1, 2, 8] {
        bench.set(key, json!(same));
        bench.plan().starts_at(2);
    }
    bench.set(key, json!(1));
    bench
        .plan()
        .refuses(3, &["device mesh [2]", "[2, 1]", "fsdp_size=-1"])
        .moves_nothing();
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.plan().starts_at(2);
    bench.set("engine.fsdp_size", json!(1));
    bench.plan().refuses(3, &["device mesh [2]"]);
}

/// [switch.save_lora_only] With `save_lora_only` and adapters the model below them is in no step, and FSDP loads what is there without asking for the rest | Told before the launch: a resume takes that model from its own path, which has to hold what it held
#[test]
fn save_lora_only() {
    let mut bench = Bench::ppo();
    bench.plan().is_silent_on("base_model_not_saved");
    bench.actor("checkpoint.save_lora_only", json!(true));
    bench.plan().starts_afresh().finds("base_model_not_saved");
    let mut bench = Bench::megatron();
    bench.actor("checkpoint.save_lora_only", json!(true));
    bench.plan().is_silent_on("base_model_not_saved");
}
