//! What users of verl have reported.

use crate::bench::{Bench, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::names;

/// A resumed attempt that ends with this exception, again and again: its class, and how often it was launched.
fn raises(exception: &str) -> (String, usize) {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let text = format!("Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n{exception}\n");
    fs::write(bench.path("printed"), text).unwrap();
    bench.script("cat printed\nexit 1\n");
    bench.run(&[]).tells(3, &[]);
    (bench.diagnosis().0, bench.attempts())
}

/// [failure.async_save_fsdp] A resume ignores the checkpoints and starts at 0, because an asynchronous save of FSDP writes no pointer | Steps are found without a pointer, and asynchronous saves are switched off
#[test]
fn async_save_fsdp() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::remove_file(bench.tracker()).unwrap();
    bench.actor("checkpoint.async_save", json!(true));
    bench
        .plan()
        .starts_at(2)
        .passes("actor_rollout_ref.actor.checkpoint.async_save=False");
}

/// [failure.async_save_megatron] Megatron's asynchronous saves are never finalized: shards without index and manifest | Incomplete, named, never resumed from; switched off at the launch
#[test]
fn async_save_megatron() {
    let mut bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
    bench.lose(2, "actor/ckpt_contents.json");
    for part in ["model", "optimizer", "extra"] {
        bench.lose(2, &format!("actor/{part}/dist_ckpt/.metadata"));
        bench.lose(2, &format!("actor/{part}/dist_ckpt/metadata.json"));
    }
    fs::write(bench.tracker(), "1").unwrap();
    bench.actor("checkpoint.async_save", json!(true));
    bench.verify("global_step_2").tells(20, &["manifest_missing"]);
    bench
        .plan()
        .starts_at(1)
        .passes("actor_rollout_ref.actor.checkpoint.async_save=False");
}

/// [failure.sft_epoch_boundary] An SFT run resumed at an epoch's end trains nothing and ends with 0 | Not taken for an end: the last planned step is not there, and the run stops with 3
#[test]
fn sft_epoch_boundary() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.script("exit 0\n");
    bench
        .run(&[])
        .tells(3, &["exit code 0", "the newest whole step is 2, not 10"]);
    assert_eq!(bench.attempts(), 1);
}

/// [failure.ppo_epoch_boundary] The same in older releases of PPO | The same
#[test]
fn ppo_epoch_boundary() {
    let mut scene = scene();
    scene.fault("exit0_early", 5, true);
    scene.run(&[]).expect(3).says("exit code 0");
    assert_eq!(scene.resumed(2), Some(4));
}

/// [failure.stop_iteration] Restoring the dataloader raises StopIteration | Launched once more, then once from an older checkpoint, then the run stops with 3 instead of repeating it until morning
#[test]
fn stop_iteration() {
    let (class, attempts) = raises("StopIteration");
    assert_eq!((class.as_str(), attempts), ("code.exception", 3));
}

/// [failure.schedule_restarts] The learning-rate schedule starts anew with Megatron | Told at preflight until `use_checkpoint_opt_param_scheduler` is set; then it is part of what has to be there
#[test]
fn schedule_restarts() {
    let mut bench = Bench::megatron();
    bench.plan().finds("schedule_restarts").says("set it to True");
    bench.actor("optim.use_checkpoint_opt_param_scheduler", json!(true));
    bench.plan().is_silent_on("schedule_restarts");
}

/// [failure.async_warmup] After a resume the asynchronous modes skip prompts that were in flight | Told with all that no resume brings back
#[test]
fn async_warmup() {
    let mut bench = Bench::ppo();
    bench.set("trainer.v1.trainer_mode", json!("separate_async"));
    bench.plan().never_restores("rollout");
}

/// [failure.keep_one] With one checkpoint to keep, a save that failed lost all of them | Two more are kept until a newer one is proven: a save that is killed costs the steps since the last, and no more
#[test]
fn keep_one() {
    let mut scene = scene();
    scene
        .set("trainer.max_actor_ckpt_to_keep", json!(1))
        .fault("kill_all_mid_save", 8, false);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
}

/// [failure.keep_actor_alone] With a critic and a number for the actor alone, verl deletes every older actor before the newest step is proven, and leaves each step's critic | The actor's number is raised for verl; two whole steps stay, older actors go, the step that an attempt resumed from among them, and the critic of every step stays, which is said
#[test]
fn keep_actor_alone() {
    let mut scene = scene();
    scene
        .set("critic.enable", json!(true))
        .set("trainer.max_actor_ckpt_to_keep", json!(1))
        .set("supervisor.proof", json!({"depth": "full"}))
        .fault("flip_byte", 8, false);
    let expected = scene.expected_digest();
    scene
        .ask(&["plan", scene.write_config().to_str().unwrap()])
        .says("max_actor_ckpt_to_keep is raised from 1 to 3 for the trainer; the supervisor keeps the newest 2")
        .says("max_actor_ckpt_to_keep=1: two steps are kept, because the newest may turn out not to be whole")
        .says("max_critic_ckpt_to_keep is not set: the critic of every step stays on disk");
    scene.run(&[]).expect(0);
    // The newest step was damaged, and the one before it was whole.
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
    let holding = |role: &str| -> Vec<u64> { (2..=12).filter(|step| scene.step(*step).join(role).exists()).collect() };
    assert_eq!(holding("actor"), [10, 12]);
    assert_eq!(holding("critic"), [2, 4, 6, 8, 10, 12]);
}

/// [failure.old_steps_pile_up] After each restart older checkpoints stay for ever | Pruned by `supervise`, which remembers: the number to keep holds over all attempts
#[test]
fn old_steps_pile_up() {
    let mut scene = scene();
    let kill = |step: u64| json!({"kind": "kill_rank", "step": step});
    scene
        .set("trainer.max_actor_ckpt_to_keep", json!(2))
        .set("demo.faults", [5, 7, 9].map(kill).into_iter().collect());
    scene.run(&[]).expect(0);
    assert_eq!(scene.attempts(), 4);
    let steps: Vec<_> = names(&scene.root())
        .into_iter()
        .filter(|n| n.starts_with("global_step_"))
        .collect();
    // The last attempt's resume point went, too: two newer steps are proven.
    assert_eq!(steps, ["global_step_10", "global_step_12"]);
}

/// [failure.node_local_disks] Only one machine's ranks are on disk, and a resume does not find the others' files | Told as a file system that is not shared; nothing is moved or called damaged
#[test]
fn node_local_disks() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    for step in [1, 2] {
        for part in ["model", "optim", "extra_state"] {
            bench.lose(step, &format!("actor/{part}_world_size_2_rank_1.pt"));
        }
    }
    bench.verify("").tells(20, &["not_a_shared_file_system"]);
    bench.plan().refuses(4, &["another machine's own disk"]).moves_nothing();
}

/// [failure.other_node_count] Another number of nodes, and the files of that number of ranks are not there | Stopped with 3 before the launch, with the number that fits; nothing is moved
#[test]
fn other_node_count() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.set("trainer.n_gpus_per_node", json!(4));
    bench
        .plan()
        .refuses(3, &["this run has 4", "trainer.nnodes"])
        .moves_nothing();
}

/// [failure.ray_package_directory] Checkpoints vanish into Ray's package directory, because the root is relative | verl is always given the absolute root
#[test]
fn ray_package_directory() {
    let mut bench = Bench::ppo();
    bench.set("trainer.default_local_dir", json!("checkpoints"));
    let root = format!("trainer.default_local_dir='{}'", bench.root().display());
    bench.plan().passes(&root).finds("relative_root");
}

/// [failure.megatron_resume] Megatron fails while it resumes: no optimizer, weights not loaded, a key of a model it does not know | A mistake before the first step repeats: one launch, then the run stops with 3
#[test]
fn megatron_resume() {
    for exception in [
        "AttributeError: 'NoneType' object has no attribute 'load_state_dict'",
        "KeyError: 'rng_state'",
    ] {
        let (class, attempts) = raises(exception);
        assert_eq!((class.as_str(), attempts), ("code.type_key", 1), "{exception}");
    }
    let (class, attempts) =
        raises("RuntimeError: Error(s) in loading state_dict for Model: Missing key(s) in state_dict: \"a\"");
    assert_eq!((class.as_str(), attempts), ("ckpt.mismatch", 1));
}

/// [failure.invalid_argument] A resume with the optimizer on the CPU ends with CUDA's `invalid argument`, each time | Launched once more, then the run stops with 3
#[test]
fn invalid_argument() {
    let (_, attempts) = raises("RuntimeError: CUDA error: invalid argument");
    assert_eq!(attempts, 2);
}

/// [failure.host_memory] The host's memory is used up: the kernel or Ray's monitor kills workers | Told as such from the line; launched once more at the same step, then it stops
#[test]
fn host_memory() {
    let (class, attempts) =
        raises("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.");
    assert_eq!((class.as_str(), attempts), ("mem.ray_oom", 2));
}

/// [failure.tied_embeddings] Every rank loads a model with tied embeddings into the host's memory, and the kernel kills one | Not foreseen before the launch; told as `mem.host_oom` from the kernel's words (its log, `memory.events` of our control group, or a line of the output), launched once more, then it stops
#[test]
fn tied_embeddings() {
    let (class, attempts) = raises("Memory cgroup out of memory: Killed process 4711 (ray::WorkerDict)");
    assert_eq!((class.as_str(), attempts), ("mem.host_oom", 2));
}

/// [failure.slurm_registration] Under Slurm, Ray cannot register its workers unless `ray_kwargs.ray_init.num_cpus` is set | That setting reaches verl as it was written
#[test]
fn slurm_registration() {
    let mut bench = Bench::ppo();
    bench
        .set(
            "supervisor.command",
            json!(["/bin/true", "-m", "verl.trainer.main_ppo", "{overrides}"]),
        )
        .set("ray_kwargs.ray_init.num_cpus", json!(8));
    bench.plan().says("ray_kwargs.ray_init.num_cpus=8");
}

/// [failure.hang] A rank hangs and the others wait for it, ten minutes until NCCL gives up, hours in the SFT trainer | A stall is measured by the run's own steps, and the gang is ended and launched again
#[test]
fn hang() {
    let mut scene = scene();
    scene
        .fault("hang", 5, false)
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let expected = scene.expected_digest();
    scene.start(&[]).wait_long().expect(0).says("stuck");
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
}

/// [failure.no_fault_tolerance] verl recovers from nothing by itself: a rank that dies ends the run | Brought back from the newest proven step, with the weights of an undisturbed run in the end
#[test]
fn no_fault_tolerance() {
    let mut scene = scene();
    scene.fault("kill_rank", 7, false);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
    scene.assert_alone();
}

/// [failure.deterministic] The same exception at the same step, again and again | Twice without progress, once more from an older checkpoint where it came before the first new step, and the run stops with 3; with progress between, it is taken for an accident
#[test]
fn deterministic() {
    let (_, attempts) = raises("RuntimeError: something of the user's");
    assert_eq!(attempts, 3);
}

/// [failure.wandb_run] W&B and SwanLab begin a new run at each resume | All attempts go on in one run: its id is given to each of them, unless the user gave an id or a mode
#[test]
fn wandb_run() {
    let mut bench = Bench::ppo();
    bench.set("trainer.logger", json!(["console", "wandb", "swanlab"]));
    bench
        .plan()
        .exports("WANDB_RESUME", "allow")
        .exports("WANDB_RUN_ID", "")
        .exports("SWANLAB_RESUME", "allow")
        .exports("SWANLAB_RUN_ID", "");
}

/// [failure.data_order] Releases before 0.7 may resume with another order of the data, or in another epoch | Told before the launch, and named with all that a resume does not bring back
#[test]
fn data_order() {
    for mut bench in [Bench::ppo(), Bench::sft()] {
        bench.set("supervisor.trainer_version", json!("0.6.1"));
        bench.plan().finds("data_order").never_restores("data_order");
        bench.set("supervisor.trainer_version", json!("0.7.0"));
        bench.plan().is_silent_on("data_order");
    }
}
