//! verl at its edges: its own files copied, releases and forks in no table, modules that are not there.

use crate::world::World;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const CALL: [&str; 2] = ["-m", "verl.trainer.main_ppo"];
const SAYS: &str = "trainer: {save_freq: 2, default_local_dir: ckpt, n_gpus_per_node: 2}\n";

/// An interpreter with this release of verl, which does this where it is to compose.
fn python(world: &World, verl: &str, does: &str) -> String {
    let answer = format!(
        r#"{{"program":"/fake/python","python":"3.11.9","packages":{{}},"verl":{{"at":"/fake/verl","version":"{verl}"}}}}"#
    );
    let text =
        format!("#!/bin/sh\ncase \"$*\" in *'--cfg job') {does};; *) echo 'supervise-interpreter:{answer}';; esac\n");
    let path = world.write("venv/bin/python3", &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.into_string()
}

#[test]
fn what_verls_own_file_names_beside_it_is_verls_own() {
    let world = World::new();
    let python = python(&world, "0.9.1", "exit 3");
    for named in ["legacy_reward_impl", "reward_manager"] {
        let yaml = format!(
            "defaults:\n  - model_engine: dp\n  - {named}\n  - actor@actor_rollout_ref.actor: dp_actor\n  - _self_\n{SAYS}"
        );
        world.write("ppo.yaml", &yaml);
        let view = world
            .run(&["plan", "ppo.yaml", "--json", "--", &python, CALL[0], CALL[1]])
            .json();
        let argv = view["argv"].to_string();
        assert!(argv.contains("hydra.searchpath=[pkg://verl.trainer.config]"), "{argv}");
    }
}

#[test]
fn a_search_path_of_the_file_stays_beside_that_of_verl() {
    let world = World::new();
    let python = python(&world, "0.9.1", "exit 3");
    let yaml =
        format!("hydra: {{searchpath: ['file://verl/trainer/config']}}\ndefaults: [ppo_trainer, _self_]\n{SAYS}");
    world.write("ppo.yaml", &yaml);
    let view = world
        .run(&["plan", "ppo.yaml", "--json", "--", &python, CALL[0], CALL[1]])
        .json();
    let argv = view["argv"].to_string();
    assert!(
        argv.contains("hydra.searchpath=[file://verl/trainer/config,pkg://verl.trainer.config]"),
        "{argv}"
    );
}

#[test]
fn a_configuration_that_no_table_has_is_asked_of_verl() {
    let world = World::new();
    world.write("composed.yaml", "trainer: {save_freq: 7, default_local_dir: mine, resume_mode: auto, n_gpus_per_node: 2}\nactor_rollout_ref: {actor: {strategy: fsdp}}\nalgorithm: {adv_estimator: grpo}\n");
    let yaml = format!("defaults:\n  - ppo_trainer\n  - later_impl\n  - _self_\n{SAYS}");
    world.write("ppo.yaml", &yaml);
    let knows = python(&world, "0.9.1", "cat composed.yaml");
    let call = |more: &'static str, python: &str| {
        world.run(&["plan", "ppo.yaml", "--json", more, "--", python, CALL[0], CALL[1]])
    };
    call("--color=never", &knows).refuses(
        78,
        &[
            "ppo.yaml:3",
            "there is no configuration 'later_impl'",
            "supervise plan --learn",
        ],
    );
    let view = call("--learn", &knows).json();
    assert_eq!(view["root"], world.path("mine").as_str(), "{view:#}");
    let refuses = "printf \"In 'ppo': Could not load 'later_impl'.\\n\\nConfig search path:\\n\\tprovider=hydra, path=pkg://hydra.conf\\n\" >&2; exit 1";
    let lacks = python(&world, "0.9.0", refuses);
    call("--learn", &lacks).refuses(78, &["exit code 1: In 'ppo': Could not load 'later_impl'."]);
    // One who wants no resume leaves it to verl.
    let told = world.run(&[
        "plan",
        "ppo.yaml",
        "--no-recovery",
        "--learn",
        "--",
        &lacks,
        CALL[0],
        CALL[1],
    ]);
    told.tells(0, &["Could not load 'later_impl'"]);
}

#[test]
fn a_question_that_failed_is_an_answer_for_every_entry_point() {
    let world = World::new();
    let python = python(
        &world,
        "0.1",
        "echo 'ModuleNotFoundError: no module openai' >&2; exit 1",
    );
    let words = [
        "trainer.default_local_dir=ckpt",
        "trainer.n_gpus_per_node=2",
        "trainer.save_freq=2",
    ];
    for module in [
        "verl.trainer.main_ppo",
        "verl.trainer.sft_trainer",
        "verl.trainer.main_other",
    ] {
        let call = [&["--", &python, "-m", module], words.as_slice()].concat();
        for command in [&["plan", "--learn"][..], &["run"]] {
            world.run(&[command, &call].concat()).refuses(
                78,
                &[
                    "does not compose its configuration: exit code 1: ModuleNotFoundError: no module openai",
                    "to try it:",
                    "verl 0.1 is not known here: it was asked itself",
                ][..if module.ends_with("other") { 2 } else { 3 }],
            );
        }
        let watched = [&["plan", "--learn", "--no-recovery"], call.as_slice()].concat();
        world.run(&watched).tells(0, &["ModuleNotFoundError: no module openai"]);
    }
}

#[test]
fn a_module_that_the_package_does_not_have_is_named_before_a_launch() {
    let world = World::new();
    world.write("verl/__init__.py", "");
    world.write("verl/version/version", "0.9.1\n");
    world.write("verl/trainer/main_ppo.py", "");
    let call = |module: &str| {
        let words = [
            "trainer.default_local_dir=ckpt",
            "trainer.n_gpus_per_node=2",
            "trainer.save_freq=2",
        ];
        world.run(&[&["plan", "--", "python3", "-m", module], words.as_slice()].concat())
    };
    call("verl.trainer.main_ppo").tells(0, &["would"]);
    call("verl.trainer.main_ppo_sync").refuses(
        78,
        &["verl 0.9.1, which lies in", "has no module verl.trainer.main_ppo_sync"],
    );
}

#[test]
fn easyr1_is_named_and_nothing_of_it_is_launched() {
    let world = World::new();
    let python = python(&world, "0.3.3.dev0", "exit 3");
    world.write("easyr1.yaml", "trainer: {save_freq: 2, save_limit: 3, max_steps: 8}\n");
    let hint = "supervise run --set supervisor.trainer=plain -- python3 -m verl.trainer.main config=";
    world
        .run(&["plan", "easyr1.yaml"])
        .refuses(78, &["easyr1.yaml:1", "trainer.save_limit is a key of EasyR1", hint]);
    let call = [
        &python,
        "-m",
        "verl.trainer.main",
        "config=easyr1.yaml",
        "trainer.experiment_name=e",
    ];
    for command in [&["plan"][..], &["plan", "--learn"], &["run"], &["run", "--no-recovery"]] {
        let hint = format!("supervise run --set supervisor.trainer=plain -- {}", call.join(" "));
        world
            .run(&[command, &["--"], call.as_slice()].concat())
            .refuses(78, &["`verl.trainer.main` is the entry point of EasyR1", &hint]);
    }
    // The hint.
    let plain = [&["plan", "--set", "supervisor.trainer=plain", "--"], call.as_slice()].concat();
    world.run(&plain).tells(0, &["NOT protected"]);
    assert!(!world.path("checkpoints").exists());
}

#[test]
fn a_file_of_another_trainer_of_verls_does_not_start_ppo() {
    let world = World::new();
    for (keys, module) in [
        (
            "async_training: {staleness_threshold: 0.1}",
            "verl.experimental.fully_async_policy.fully_async_main",
        ),
        (
            "rollout: {nnodes: 1, n_gpus_per_node: 8}",
            "verl.experimental.one_step_off_policy.main_ppo",
        ),
    ] {
        world.write("my.yaml", &format!("defaults: [ppo_trainer, _self_]\n{SAYS}{keys}\n"));
        let hint = format!("my.yaml -- python3 -m {module}");
        world.run(&["plan", "my.yaml"]).refuses(78, &[&hint]);
        let python = python(&world, "0.9.1", "exit 3");
        world
            .run(&["plan", "my.yaml", "--", &python, "-m", module])
            .tells(0, &["would"]);
    }
}

#[test]
fn the_examples_for_fsdp_start_verl_by_themselves() {
    let world = World::new();
    let python = python(&world, "0.9.1", "exit 3");
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configs");
    for (file, critic) in [("verl_fsdp_grpo.yaml", false), ("verl_fsdp_ppo.yaml", true)] {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        world.write(file, &text);
        let call = ["plan", file, "--json", "--", &python, CALL[0], CALL[1]];
        let view = world.run(&call).json();
        let argv = view["argv"].to_string();
        assert!(argv.contains("++actor_rollout_ref.actor.strategy='fsdp2'"), "{argv}");
        assert_eq!(argv.contains("critic.checkpoint.save_contents"), critic, "{argv}");
        let findings = view["findings"].as_array().unwrap().iter();
        let warned: Vec<_> = findings.filter(|f| f["level"] == "warning").collect();
        assert!(warned.is_empty(), "{warned:#?}");
    }
}
