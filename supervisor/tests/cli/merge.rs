//! `supervise merge` as a person uses it: what it finds, what it refuses, and that nothing half done stands under the target's name.

use crate::world::{World, copy_fixture};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};

const ACTOR: &str = "ckpt/global_step_2/actor";

fn world() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world
}

/// Changes a byte in the middle of a shard: weights, no structure.
fn rot(world: &World, shard: &str) {
    let path = world.path(shard);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_root_gives_its_newest_proven_step_or_the_one_that_is_named() {
    let world = world();
    let said = world.run(&["merge", "ckpt", "--target", "model", "--json"]);
    said.tells(0, &[]);
    let view = said.json();
    assert_eq!((&view["step"], &view["role"]), (&2.into(), &"actor".into()), "{view}");
    assert!(
        view["bytes_checked"].as_u64() > view["bytes_written"].as_u64(),
        "{view}"
    );
    let mut names: Vec<String> = fs::read_dir(world.path("model"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let want = [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names, want);
    world.run(&["verify", "model", "--depth", "full"]).tells(0, &["whole"]);
    world
        .run(&["merge", "ckpt", "--step", "1", "--target", "one"])
        .tells(0, &["from step 1 of"]);
    assert_ne!(
        fs::read(world.path("model/model.safetensors")).unwrap(),
        fs::read(world.path("one/model.safetensors")).unwrap()
    );
    // A step of SFT has no roles.
    copy_fixture("verl_sft_fsdp2_w2", &world.path("sft"));
    world
        .run(&["merge", "sft/global_step_1", "--target", "sft-model", "--dtype", "keep"])
        .tells(0, &["sft/global_step_1"]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(world.path("sft-model/config.json")).unwrap()).unwrap();
    assert_eq!(config["dtype"], "float32");
}

/// verl 0.4.0 keeps configuration and tokenizer beside the shards; EasyR1 only leaves the file out.
#[test]
fn steps_without_fsdp_config_are_merged_from_their_root_and_by_number() {
    let world = world();
    copy_fixture("verl_ppo_0_4_0_w2", &world.path("old"));
    for step in [1, 2] {
        fs::remove_file(world.path(&format!("ckpt/global_step_{step}/actor/fsdp_config.json"))).unwrap();
    }
    for root in ["old", "ckpt"] {
        let said = world.run(&["verify", root, "-v", "--depth", "full"]);
        said.tells(0, &["taken for a save of verl 0.4.0 or older", "names step 2"]);
        for (args, target) in [(vec![root], "newest"), (vec![root, "--step", "1"], "first")] {
            let target = format!("{root}-{target}");
            let said = world.run(&[&["merge"], args.as_slice(), &["--target", &target]].concat());
            said.tells(0, &[]);
            for name in ["config.json", "tokenizer.json", "model.safetensors"] {
                assert!(world.path(&target).join(name).is_file(), "{target}/{name}");
            }
        }
    }
    fs::write(world.path("ckpt/latest_checkpointed_iteration.txt"), "1").unwrap();
    world
        .run(&["verify", "ckpt/global_step_2"])
        .tells(20, &["names step 1: the save of this one was not finished"]);
    world
        .run(&["merge", "ckpt", "--target", "finished"])
        .tells(0, &["from step 1 of"]);
}

#[test]
fn bytes_that_rotted_end_it_before_anything_has_its_name() {
    let world = world();
    rot(&world, &format!("{ACTOR}/model_world_size_2_rank_1.pt"));
    for source in ["ckpt/global_step_2", ACTOR] {
        let said = world.run(&["merge", source, "--target", "model"]);
        said.refuses(21, &["error (damaged)", "rank_1.pt", "do not fit their checksum"]);
    }
    // What torch keeps for the optimizer is no part of the model.
    fs::write(
        world.path("ckpt/global_step_1/actor/optim_world_size_2_rank_0.pt"),
        "torn",
    )
    .unwrap();
    world
        .run(&["merge", "ckpt/global_step_1", "--target", "one"])
        .tells(0, &[]);
    let left: Vec<_> = fs::read_dir(world.dir())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(left.iter().all(|n| !n.to_string_lossy().contains("model")), "{left:?}");
}

#[test]
fn a_step_that_is_not_whole_is_no_source() {
    let world = world();
    fs::remove_file(world.path(ACTOR).join("model_world_size_2_rank_0.pt")).unwrap();
    world
        .run(&["merge", ACTOR, "--target", "model"])
        .refuses(20, &["model_world_size_2_rank_0.pt is missing"]);
    world
        .run(&["merge", "ckpt", "--step", "2", "--target", "model"])
        .refuses(20, &["global_step_2", "incomplete"]);
    world
        .run(&["merge", "ckpt", "--target", "model"])
        .tells(0, &["from step 1 of"]);
    world
        .run(&["merge", "ckpt", "--step", "7", "--target", "other"])
        .refuses(64, &["there is no step 7", "supervise checkpoints"]);
    fs::remove_dir_all(world.path("ckpt/global_step_1")).unwrap();
    world
        .run(&["merge", "ckpt", "--target", "other"])
        .refuses(4, &["no step in it is proven"]);
    // Another save of the same step, with more ranks.
    let other = world.path(ACTOR).join("model_world_size_3_rank_0.pt");
    fs::copy(world.path(ACTOR).join("model_world_size_2_rank_1.pt"), &other).unwrap();
    fs::remove_file(world.path(ACTOR).join("fsdp_config.json")).unwrap();
    world
        .run(&["merge", ACTOR, "--target", "other"])
        .refuses(23, &["several world sizes ({2, 3})"]);
}

#[test]
fn a_target_is_never_written_over_and_never_inside_the_checkpoint() {
    let world = world();
    world.write("there/file", "mine");
    let merge = |target: &str| world.run(&["merge", "ckpt", "--target", target]);
    merge("there").refuses(64, &["exists", "nothing is written over"]);
    merge("there/file").refuses(64, &["exists"]);
    merge("none/model").refuses(69, &["there is no directory none", "mkdir -p none"]);
    merge("").refuses(64, &["--target is empty"]);
    merge("ckpt/global_step_2/merged").refuses(64, &["inside of the checkpoint"]);
    merge("ckpt/global_step_2/actor/merged").refuses(64, &["inside of the checkpoint"]);
    assert_eq!(fs::read_to_string(world.path("there/file")).unwrap(), "mine");
    fs::create_dir(world.path("empty")).unwrap();
    merge("empty").tells(0, &["empty: 15 tensors"]);
    merge("empty").refuses(64, &["exists"]);
    // Only the newest proven step of a run is looked for: what is no checkpoint says so.
    world
        .run(&["merge", "there", "--target", "model"])
        .refuses(4, &["no step in it is proven"]);
    world
        .run(&["merge", "nowhere", "--target", "model"])
        .refuses(64, &["no such directory"]);
    world
        .run(&["merge", ACTOR, "--step", "1", "--target", "model"])
        .refuses(64, &["not step 1"]);
    world
        .run(&["merge", "ckpt", "--role", "critic", "--target", "model"])
        .refuses(64, &["no role critic", "its roles are actor"]);
}

#[test]
fn a_model_that_is_not_known_is_named_and_written_as_it_is_on_demand() {
    let world = world();
    let config = world.path(ACTOR).join("huggingface/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"qwen2\"", "\"warp9\"")).unwrap();
    let merge = |more: &[&str]| world.run(&[&["merge", ACTOR, "--target", "model"][..], more].concat());
    merge(&[]).refuses(23, &["the model type warp9", "--keep-names"]);
    fs::write(&config, "{}").unwrap();
    merge(&[]).refuses(23, &["model_type"]);
    fs::write(
        &config,
        text.replace("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2"),
    )
    .unwrap();
    merge(&[]).refuses(21, &["speaks of 2 layers and no tensor is of layer 1"]);
    fs::remove_file(&config).unwrap();
    merge(&[]).refuses(20, &["config.json is missing", "--like DIR"]);
    fs::write(&config, text.replace("\"qwen2\"", "\"warp9\"")).unwrap();
    merge(&["--keep-names"]).tells(0, &["15 tensors"]);
}

#[test]
fn the_model_that_was_trained_gives_what_is_missing_and_is_compared() {
    let world = world();
    world
        .run(&["merge", "ckpt", "--target", "base", "--step", "1"])
        .tells(0, &[]);
    fs::remove_dir_all(world.path(ACTOR).join("huggingface")).unwrap();
    let merge = |target: &str, like: &str| world.run(&["merge", ACTOR, "--target", target, "--like", like]);
    merge("model", "base").tells(0, &[]);
    assert!(world.path("model/tokenizer.json").is_file());
    merge("other", "nowhere").refuses(64, &["--like nowhere"]);
    copy_fixture("torch_dcp_hf/consolidated", &world.path("stranger"));
    fs::copy(world.path("base/config.json"), world.path("stranger/config.json")).unwrap();
    merge("other", "stranger").refuses(21, &["the tensors are not those of stranger", "is missing"]);
    assert!(!world.path("other").exists());
}

#[test]
fn a_tokenizer_that_is_missing_is_said_and_taken_from_the_model_that_was_trained() {
    let world = world();
    let none = "there is no tokenizer";
    world
        .run(&["merge", "ckpt", "--target", "base", "--step", "1"])
        .tells(0, &[]);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::remove_file(world.path(ACTOR).join("huggingface").join(name)).unwrap();
    }
    let said = world.run(&["merge", ACTOR, "--target", "model", "--json"]);
    said.tells(0, &[none]);
    assert!(!world.path("model/tokenizer.json").exists());
    let said = world.run(&["merge", ACTOR, "--target", "other", "--like", "base", "--json"]);
    assert!(!said.out.contains(none), "{said:#?}");
    assert!(world.path("other/tokenizer.json").is_file());
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
    let world = world();
    fs::create_dir(world.path("small")).unwrap();
    let program = world.command().get_program().to_owned();
    let made = std::process::Command::new("unshare")
        .args(["-Urm", "sh", "-c"])
        .arg("mount -t tmpfs -o size=4k none small || exit 99; \"$0\" merge ckpt --target small/model; code=$?; ls -A small; exit $code")
        .arg(program)
        .current_dir(world.dir())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr),
    );
    assert_eq!(made.status.code(), Some(69), "{err}");
    assert!(
        out.is_empty() && err.contains("it takes 5.5 KiB and 4.0 KiB are free there"),
        "{out}{err}"
    );
}

#[test]
fn an_upload_is_the_users_own_command() {
    let world = world();
    let refused = world.run(&["merge", "ckpt", "--target", "model", "--upload", "no-slash"]);
    refused.refuses(64, &["expected ORG/NAME"]);
    let path = format!("{}:/usr/bin:/bin", world.path("bin"));
    let merge = |target: &str| {
        let args = ["merge", "ckpt", "--target", target, "--upload", "org/name", "--private"];
        world.run_with(&args, &[("PATH", &path)])
    };
    let script = "#!/bin/sh\necho \"$@\" >> asked\n[ \"$1\" = version ] || [ ! -e fail ]\n";
    let hf = world.write("bin/hf", script);
    fs::set_permissions(&hf, fs::Permissions::from_mode(0o755)).unwrap();
    merge("model").tells(0, &["model: 15 tensors"]);
    let asked = fs::read_to_string(world.path("asked")).unwrap();
    assert_eq!(asked, "version\nupload --repo-type model --private -- org/name model\n");
    world.write("fail", "");
    merge("again").refuses(69, &["hf ended with", "the model is whole in again"]);
    assert!(world.path("again/model.safetensors").is_file());
    fs::remove_file(&hf).unwrap();
    merge("third").refuses(69, &["hf cannot be started", "pip install"]);
    assert!(!world.path("third").exists());
}

#[test]
fn replicas_are_asked_of_shards_only() {
    let world = world();
    world
        .run(&["merge", ACTOR, "--target", "model", "--check-replicas"])
        .tells(0, &[]);
    let said = world.run(&["merge", ACTOR, "--target", "other", "--check-replicas", "--json"]);
    assert!(
        said.json()["notes"].to_string().contains("no replicas to compare"),
        "{said:#?}"
    );
    world
        .run(&["compare", "ckpt", "model", "--as", "bfloat16", "--check-replicas"])
        .tells(0, &["equal"]);
    world
        .run(&["compare", "model", "model", "--check-replicas"])
        .refuses(64, &["--check-replicas", "neither"]);
    copy_fixture("areal_sft_w2", &world.path("areal"));
    world
        .run(&[
            "merge",
            "areal/checkpoints/trainer/real/t0",
            "--target",
            "never",
            "--check-replicas",
        ])
        .refuses(64, &["--check-replicas", "not made of shards of FSDP"]);
}
