//! `supervise migrate` as a person uses it: what it refuses, what it says, and what a run makes of a step that shares files.

use crate::world::{World, copy_fixture};
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::fs;

/// Everything below a directory but what is ours: bytes by name.
fn tree(dir: &Utf8Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in at.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            match path.is_dir() {
                true if path.file_name() == Some(".supervise") => {}
                true => waiting.push(path),
                false => drop(out.insert(path.to_string(), fs::read(&path).unwrap())),
            }
        }
    }
    out
}

/// One of the roles in the JSON.
fn role(said: &crate::world::Said, at: usize) -> (String, String, i64) {
    let role = &said.json()["roles"][at];
    let word = |key: &str| role[key].as_str().unwrap_or_default().to_owned();
    (word("path"), word("status"), role["exit_code"].as_i64().unwrap())
}

#[test]
fn what_fsdp_wrote_is_left_alone_whichever_trainer_it_was() {
    for (fixture, first) in [
        ("verl_ppo_fsdp2_w2", "global_step_1/actor"),
        ("verl_sft_fsdp2_w2", "global_step_1"),
    ] {
        let world = World::new();
        let root = world.path("ckpt");
        copy_fixture(fixture, &root);
        let before = tree(&root);
        for dry in [&["--dry-run"][..], &[]] {
            let said = world.run(&[&["migrate", "--checkpoint-root", "ckpt", "--all-steps", "--json"], dry].concat());
            said.tells(64, &["FSDP's manager wrote it"]);
            assert_eq!(role(&said, 0), (root.join(first).to_string(), "fsdp".to_owned(), 64));
            assert_eq!(said.json()["roles"].as_array().unwrap().len(), 2);
        }
        assert_eq!(tree(&root), before);
    }
}

#[test]
fn a_critic_is_converted_with_its_actor_and_what_is_torn_is_not() {
    let world = World::new();
    let root = world.path("ckpt");
    copy_fixture("verl_megatron_v1_tp2", &root);
    let step = root.join("global_step_1");
    for name in ["critic", "torn"] {
        copy_fixture("verl_megatron_v1_tp2/global_step_1/actor", &step.join(name));
    }
    fs::rename(step.join("torn"), root.join("torn")).unwrap();
    let said = world.run(&["migrate", "--checkpoint", "ckpt/global_step_1", "--dry-run", "--json"]);
    said.tells(0, &["write .supervise-hard-links"]);
    assert_eq!(
        (role(&said, 0).1, role(&said, 1).1),
        ("planned".to_owned(), "planned".to_owned())
    );
    let said = world.run(&["migrate", "--checkpoint", "ckpt/global_step_1", "--json"]);
    said.tells(0, &["\"migrated\""]);
    for name in ["actor", "critic"] {
        assert!(step.join(name).join("ckpt_contents.json").exists(), "{name}");
    }
    // Once more: nothing to do.
    let again = world.run(&["migrate", "--checkpoint", "ckpt/global_step_1", "--json"]);
    assert_eq!(
        (
            again.json()["exit_code"].as_i64(),
            role(&again, 0).1.as_str() == "migrated"
        ),
        (Some(0), false)
    );
    // A shard that is missing: named, and nothing is changed.
    let torn = root.join("global_step_2/actor");
    fs::create_dir_all(torn.parent().unwrap()).unwrap();
    fs::rename(root.join("torn"), &torn).unwrap();
    fs::remove_file(torn.join("dist_ckpt/__0_1.distcp")).unwrap();
    let before = tree(&torn);
    world
        .run(&["migrate", "--checkpoint", "ckpt/global_step_2/actor"])
        .tells(20, &["__0_1.distcp"]);
    assert_eq!(tree(&torn), before);
}

#[test]
fn what_is_not_there_is_said() {
    let world = World::new();
    world
        .run(&["migrate", "--checkpoint", "nowhere"])
        .refuses(64, &["there is no such directory"]);
    world
        .run(&["migrate", "--checkpoint-root", "."])
        .refuses(64, &["--all-steps"]);
}

#[test]
fn a_step_whose_files_share_their_bytes_goes_aside_before_it_is_saved_again() {
    let world = World::new();
    let root = world.path("ckpt");
    copy_fixture("verl_megatron_v1_tp2", &root);
    world
        .run(&["migrate", "--checkpoint", "ckpt/global_step_1"])
        .tells(0, &[]);
    let step = root.join("global_step_1");
    assert!(step.join("actor/.supervise-hard-links").exists());
    let before: Vec<Vec<u8>> = tree(&step.join("actor")).into_values().collect();
    // A trainer that saves step 1 again, over the files that it finds: each write would reach every name of a file.
    let save = "mkdir -p ckpt/global_step_1/actor/optimizer/dist_ckpt; echo new > ckpt/global_step_1/actor/optimizer/dist_ckpt/common.pt; exit 1";
    world.write(
        "ppo.yaml",
        &format!(
            "model_engine: megatron\nalgorithm: {{adv_estimator: grpo}}\ntrainer: {{default_local_dir: {root}, save_freq: 1, n_gpus_per_node: 2, total_training_steps: 4}}\nactor_rollout_ref: {{actor: {{megatron: {{tensor_model_parallel_size: 2}}}}}}\nsupervisor: {{trainer: verl, trainer_version: \"0.9.1\", retries: 0, command: [/bin/sh, -c, \"{save}\", x, \"{{overrides}}\"]}}\n"
        ),
    );
    let said = world.run(&["run", "ppo.yaml", "--fresh", "--yes"]);
    assert!(said.out.contains("moved aside: global_step_1"), "{said:#?}");
    let aside = tree(&root.join(".supervise/aside"));
    let kept: Vec<Vec<u8>> = aside
        .into_iter()
        .filter(|(name, _)| name.contains("/actor/"))
        .map(|(_, b)| b)
        .collect();
    assert_eq!(kept, before, "what went aside was written over");
    assert_eq!(
        fs::read(step.join("actor/optimizer/dist_ckpt/common.pt")).unwrap(),
        b"new\n"
    );
}
