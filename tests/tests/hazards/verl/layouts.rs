//! What each of verl's layouts is on disk, and when it is whole.

use crate::bench::Bench;
use serde_json::json;
use std::fs;
use supervise_tests::harness::{copy_tree, names};

/// [layout.ppo] A PPO step is `actor/`, perhaps `critic/`, and `data.pt`, which is written after them | Whole with every expected role whole; without `data.pt` the data order is lost, which is said
#[test]
fn ppo() {
    let bench = Bench::ppo().with("verl_ppo_fsdp1_w2");
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2).loses(&[]);
    bench.lose(2, "actor");
    fs::create_dir(bench.step(2, "actor")).unwrap();
    bench.verify("global_step_2").tells(20, &["actor"]);
}

/// [layout.sft] The SFT trainer writes the same files into the step itself, and `data_R.pt` for each data-parallel rank | Told apart by the files, not by the configuration; a step of the other trainer does not fit
#[test]
fn sft() {
    let bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2).loses(&[]);
    let bench = Bench::ppo().with("verl_sft_fsdp2_w2");
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().refuses(3, &["SFT"]).moves_nothing();
}

/// [layout.sft_ray] Over Ray the SFT trainer writes only `data_0.pt`, however many ranks there are | One part is as complete as one for each rank; fewer than the run's other steps have is a killed save
#[test]
fn sft_ray() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.lose(1, "data_1.pt").lose(2, "data_1.pt");
    bench.set(
        "supervisor.command",
        json!(["/bin/true", "-m", "verl.trainer.sft_trainer_ray", "{overrides}"]),
    );
    bench.set("supervisor.gang", json!({"launcher": "driver", "gpus": "none"}));
    bench.plan().starts_at(2).loses(&[]);
}

/// [layout.fsdp] `model`, `optim` and `extra_state` of each rank, `fsdp_config.json` with the number of ranks, `huggingface/` with configuration and tokenizer | All shards of all ranks, proven; a rank's missing part is named
#[test]
fn fsdp() {
    for set in ["verl_ppo_fsdp1_w2", "verl_ppo_fsdp2_w2"] {
        let bench = Bench::ppo().with(set);
        let files = ["model", "optim", "extra_state"].map(|part| format!("actor/{part}_world_size_2_rank_1.pt"));
        for file in files
            .iter()
            .map(String::as_str)
            .chain(["actor/fsdp_config.json", "actor/huggingface/config.json"])
        {
            let bench = Bench::ppo().with(set);
            bench.lose(2, file);
            bench
                .verify("global_step_2")
                .tells(20, &[file.rsplit('/').next().unwrap()]);
        }
        bench.verify("global_step_2").tells(0, &[]);
    }
}

/// [layout.fsdp_old] verl 0.4.0 writes no `fsdp_config.json`, and configuration and tokenizer into the role itself | The number of ranks is taken from the names, which have to agree; the tracker says which saves were finished
#[test]
fn fsdp_old() {
    let mut bench = Bench::ppo().with("verl_ppo_0_4_0_w2");
    bench.set("supervisor.trainer_version", json!("0.4.0"));
    bench
        .verify("global_step_2")
        .tells(0, &["fsdp_config_not_written", "names step 2"]);
    bench.plan().starts_at(2).loses(&[]);
    bench.lose(2, "actor/model_world_size_2_rank_1.pt");
    bench
        .verify("global_step_2")
        .tells(20, &["model_world_size_2_rank_1.pt"]);
    bench.plan().starts_at(1);
}

/// [layout.unmarked] EasyR1 writes no `fsdp_config.json` either, and is no release of verl's | Where no step of the root has the file, names and tracker decide: a step above the tracker was not finished, and of verl 0.4.1 and later the file is required
#[test]
fn unmarked() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(1, "actor/fsdp_config.json");
    bench.verify("global_step_1").tells(20, &["fsdp_config_missing"]);
    bench.lose(2, "actor/fsdp_config.json");
    bench.verify("global_step_2").tells(0, &["EasyR1", "names step 2"]);
    fs::write(bench.root().join("latest_checkpointed_iteration.txt"), "1").unwrap();
    bench.verify("global_step_1").tells(0, &[]);
    bench.verify("global_step_2").tells(20, &["was not finished"]);
    bench.set("supervisor.trainer_version", json!("0.4.0"));
    bench.plan().starts_at(1);
}

/// [layout.mixed_world_sizes] A save with another number of ranks into the same directory leaves the older shards there | `fsdp_config.json` says which count; the others are mentioned
#[test]
fn mixed_world_sizes() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let (old, new) = (
        "actor/model_world_size_2_rank_0.pt",
        "actor/model_world_size_4_rank_0.pt",
    );
    fs::copy(bench.step(2, old), bench.step(2, new)).unwrap();
    bench.verify("global_step_2").tells(0, &["other_world_sizes"]);
    bench.lose(2, "actor/fsdp_config.json");
    let said = bench.verify("global_step_2");
    assert_ne!(said.code, 0, "{said:#?}");
}

/// [layout.exported] With `hf_model`, `huggingface/` also holds the weights, the index last | Checked part by part, and never resumed from with FSDP
#[test]
fn exported_weights() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let from = crate::bench::fixtures().join("verl_megatron_v2_hf/global_step_2/actor/model/huggingface");
    copy_tree(&from, &bench.step(2, "actor/huggingface")).unwrap();
    bench.verify("global_step_2").tells(0, &[]);
    bench.lose(2, "actor/huggingface/model-00002-of-00002.safetensors");
    bench
        .verify("global_step_2")
        .tells(20, &["hf_weights_missing", "1 of 2"]);
}

/// [layout.lora] LoRA models add `lora_train_meta.json` after `fsdp_config.json`, older releases a `lora_adapter/` | Neither is a mark of completion, and neither is in the way
#[test]
fn lora() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(
        bench.step(2, "actor/lora_train_meta.json"),
        r#"{"r": 8, "lora_alpha": 16, "task_type": "CAUSAL_LM"}"#,
    )
    .unwrap();
    fs::create_dir(bench.step(2, "actor/lora_adapter")).unwrap();
    fs::write(bench.step(2, "actor/lora_adapter/adapter_config.json"), "{}").unwrap();
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2);
    bench.lose(2, "actor/model_world_size_2_rank_1.pt");
    bench.plan().starts_at(1);
}

/// [layout.critic] `critic/` is a role like the actor, with files of its own | Required where the run trains one, or where another finished step has one
#[test]
fn critic() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    copy_tree(&bench.step(1, "actor"), &bench.step(1, "critic")).unwrap();
    bench.verify("").tells(20, &["role_missing"]);
    bench.plan().starts_at(2);
    bench.set("critic.enable", json!(true));
    bench.plan().starts_at(1).moves_aside(2);
}

/// [layout.transfer_queue] v1's asynchronous modes save `transfer_queue/`, built under another name and renamed | Proven as a whole: each unit that its list names, each value beside a unit by its size, pickles read without running them; a queue that was begun and not finished costs the rollouts in it
#[test]
fn transfer_queue() {
    let queue = |kind: &str| {
        let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
        let from = crate::bench::fixtures().join(format!("verl_transfer_queue/{kind}/transfer_queue"));
        copy_tree(&from, &bench.step(2, "transfer_queue")).unwrap();
        bench
    };
    for kind in ["memory", "ssd"] {
        queue(kind).verify("global_step_2").tells(0, &["restores all"]);
        let bench = queue(kind);
        let dir = bench.step(2, "transfer_queue/simple_storage");
        for name in names(&dir) {
            let (path, bench) = (format!("transfer_queue/simple_storage/{name}"), queue(kind));
            bench.lose(2, &path);
            bench.verify("global_step_2").tells(20, &["transfer_queue"]);
            if !name.ends_with(".blobs") {
                let bench = queue(kind);
                bench.cut(2, &path);
                let said = bench.verify("global_step_2");
                assert!(matches!(said.code, 20 | 21), "{path}: {said:#?}");
            }
        }
        for path in ["simple_storage", "metadata.json", "controller_state.pkl"] {
            let bench = queue(kind);
            bench.lose(2, &format!("transfer_queue/{path}"));
            bench.verify("global_step_2").tells(20, &["transfer_queue_missing"]);
        }
        let bench = queue(kind);
        let state = bench.step(2, "transfer_queue/controller_state.pkl");
        fs::write(state, b"cos\nsystem\n(S'id'\ntR.").unwrap();
        bench.verify("global_step_2").tells(22, &["os.system"]);
        let bench = queue(kind);
        bench.edit(
            2,
            "transfer_queue/metadata.json",
            "\"global_steps\": 2",
            "\"global_steps\": 1",
        );
        bench.verify("global_step_2").tells(21, &["saved at step 1"]);
    }
    let bench = queue("ssd");
    let dir = bench.step(2, "transfer_queue/simple_storage");
    let beside = names(&dir).into_iter().find(|name| name.ends_with(".blobs")).unwrap();
    let value = names(&dir.join(&beside)).into_iter().next().unwrap();
    bench.cut(2, &format!("transfer_queue/simple_storage/{beside}/{value}"));
    bench.verify("global_step_2").tells(20, &["transfer_queue_size"]);
    for left in ["transfer_queue.tmp", "transfer_queue.old"] {
        let bench = queue("memory");
        fs::rename(bench.step(2, "transfer_queue"), bench.step(2, left)).unwrap();
        bench.verify("global_step_2").tells(0, &["transfer_queue_unfinished"]);
    }
}

/// [layout.husk] Retention leaves a step with nothing but `data.pt` | No checkpoint and no damage: it is passed over in peace
#[test]
fn husk() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(1, "actor");
    bench.verify("").tells(0, &["husk"]);
    bench.plan().starts_at(2).moves_nothing();
}

/// [layout.node_local] On disks of its own each machine sees only the files of its own ranks | Told as `not_a_shared_file_system`, not as damage; ranks that are missing in another way are missing
#[test]
fn node_local() {
    for rank in [0, 1] {
        let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
        for part in ["model", "optim", "extra_state"] {
            bench.lose(2, &format!("actor/{part}_world_size_2_rank_{rank}.pt"));
        }
        // Rank 0 writes these.
        if rank == 0 {
            bench.lose(2, "actor/fsdp_config.json").lose(2, "data.pt");
        }
        bench.verify("global_step_2").tells(20, &["not_a_shared_file_system"]);
    }
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(2, "actor/extra_state_world_size_2_rank_1.pt");
    let said = bench.verify("global_step_2");
    said.tells(20, &["shards_missing"]);
    assert!(!said.out.contains("not_a_shared_file_system"), "{said:#?}");
}

/// [layout.megatron] Layout v2: `ckpt_contents.json` names every part, three directories hold Megatron's own shards | Every entry of the manifest is proven, down to each byte range that `.metadata` refers to
#[test]
fn megatron() {
    let bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
    bench.verify("global_step_2").tells(0, &[]);
    bench.plan().starts_at(2);
    for set in [
        "verl_megatron_v2_dp_reshardable",
        "verl_megatron_v2_fully_reshardable",
        "verl_megatron_v2_flattened",
    ] {
        Bench::megatron().with(set).verify("").tells(0, &[]);
    }
    bench.edit(
        2,
        "actor/ckpt_contents.json",
        "\"optimizer/dist_ckpt\"",
        "\"../../global_step_1/actor/optimizer/dist_ckpt\"",
    );
    let said = bench.verify("global_step_2");
    assert!([20, 21, 22].contains(&said.code), "{said:#?}");
    bench.plan().starts_at(1);
}

/// [layout.megatron_bridge] With the bridge the model is a tree of Hugging Face's under `model/huggingface` | Configuration, index and every part of it are proven
#[test]
fn megatron_bridge() {
    let bench = Bench::megatron().with("verl_megatron_v2_hf");
    bench.verify("global_step_2").tells(0, &[]);
    for file in [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    ] {
        let bench = Bench::megatron().with("verl_megatron_v2_hf");
        bench.lose(2, &format!("actor/model/huggingface/{file}"));
        bench.verify("global_step_2").tells(20, &[file]);
    }
}

/// [layout.megatron_fsdp] Megatron's own FSDP writes one combined checkpoint into `model/dist_ckpt`, and the manifest points at empty directories | Such a configuration is refused with 78: no run is resumed from such steps
#[test]
fn megatron_fsdp() {
    let mut bench = Bench::megatron();
    bench.actor("megatron.use_megatron_fsdp", json!(true));
    bench.plan().refuses(78, &["use_megatron_fsdp", "no run is resumed"]);
}

/// [layout.megatron_old] Before v2 one `dist_ckpt/` and `huggingface/` stood in the role itself, without a manifest; 0.9 refuses to load it | Named as what it is and not taken for FSDP's `huggingface/`; never moved aside, never begun over
#[test]
fn megatron_old() {
    for set in ["verl_megatron_v1_tp2", "verl_megatron_v1_hf"] {
        let bench = Bench::megatron_shards().with(set);
        bench
            .verify("")
            .tells(0, &["Megatron's first layout", "supervise migrate"]);
        bench.lose(1, "actor/transformer_config.json");
        bench.verify("").tells(20, &["transformer_config_missing"]);
    }
    let bench = Bench::megatron_shards().with("verl_megatron_v1_tp2");
    bench.lose(1, "actor/dist_ckpt/__1_0.distcp");
    bench.plan().refuses(4, &[]).moves_nothing();
}

/// [layout.migrated] verl's migration script writes no manifest, and takes what it has half done for finished | Not whole without the manifest, and said so; `supervise migrate` finishes it
#[test]
fn migrated() {
    let bench = Bench::megatron_shards().with("verl_megatron_v1_tp2");
    let at = |name: &str| bench.step(1, &format!("actor/{name}"));
    for part in ["optimizer", "extra", "model"] {
        copy_tree(&at("dist_ckpt"), &at(&format!("{part}/dist_ckpt"))).unwrap();
    }
    fs::rename(at("huggingface"), at("model/huggingface")).unwrap();
    bench.verify("").tells(20, &["migration_unfinished"]);
    bench
        .ask(&["migrate", "--checkpoint", bench.step(1, "").to_str().unwrap()])
        .tells(0, &[]);
    bench.verify("").tells(0, &[]);
    assert!(at("ckpt_contents.json").exists());
}

/// [layout.megatron_ancient] 0.3 wrote `mp_rank_TT/`, 0.4 `model/`, `optim/` and `rng_states/` per rank | Not known, and said so: never whole, never resumed from
#[test]
fn megatron_ancient() {
    for part in ["mp_rank_00/model_states.pt", "model/mp_rank_00.pt"] {
        let bench = Bench::megatron();
        let path = bench.step(2, &format!("actor/{part}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(
            crate::bench::fixtures().join("verl_ppo_fsdp2_w2/global_step_1/data.pt"),
            path,
        )
        .unwrap();
        let said = bench.verify("global_step_2");
        assert!([20, 23].contains(&said.code), "{said:#?}");
    }
}

/// [layout.other_engines] VeOmni, TorchTitan and Automodel: trees of their own, in part beside the role | Refused with 78 by name, unless the run is started with `--no-recovery`
#[test]
fn other_engines() {
    for engine in ["torchtitan", "automodel"] {
        let mut bench = Bench::ppo();
        bench.actor("strategy", json!(engine));
        bench.plan().refuses(78, &[engine, "not known"]);
        bench.set("supervisor.recovery", json!(false));
        bench.plan().finds("layout_unknown");
    }
}

/// [layout.pointer] `latest_checkpointed_iteration.txt` holds a number and no newline; SFT writes it to a temporary file first | Read as verl reads it, believed only where the step is proven; a left temporary file is mentioned
#[test]
fn pointer() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(bench.root().join("latest_checkpointed_iteration.txt.tmp"), "2").unwrap();
    let root = bench.root();
    bench
        .ask(&["checkpoints", root.to_str().unwrap()])
        .tells(0, &["latest_checkpointed_iteration.txt.tmp is left over"]);
    bench.plan().starts_at(2);
    // A person rolled back by more than one save: a question, not a choice.
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(bench.tracker(), "0").unwrap();
    bench.plan().refuses(4, &["--from"]);
}

/// [layout.swapped_data] A `data.pt` of another step makes the order of the data wrong, and nothing says so | Once a step was proven, a file of another step in it is found, whatever its times say; the run goes on from the step before
#[test]
fn data_of_another_step() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    std::thread::sleep(std::time::Duration::from_millis(30));
    bench.script("exit 1\n").set("supervisor.retries", json!(0));
    bench.run(&[]).tells(6, &["resume from global_step_2"]);
    fs::copy(bench.step(1, "data.pt"), bench.step(2, "data.pt")).unwrap();
    bench
        .run(&["--again"])
        .tells(6, &["data.pt", "resume from global_step_1"]);
}
