//! Output directories of Hugging Face's `Trainer`, whether or not a run of ours wrote them.

use crate::world::{World, copy_fixture};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn world() -> World {
    let world = World::new();
    copy_fixture("hf_trainer_w2", &world.path("out"));
    world
}

#[test]
fn a_root_a_step_and_a_renamed_step_are_judged() {
    let world = world();
    for depth in ["structure", "full"] {
        let told = world.run(&["verify", "out", "-v", "--depth", depth]);
        told.tells(
            0,
            &[
                "checkpoint-2: whole",
                "checkpoint-4: whole",
                &format!("proven: {depth}"),
            ],
        );
    }
    world
        .run(&["verify", "out/checkpoint-4", "-v"])
        .tells(0, &["checkpoint-4", "hf_trainer", "whole"]);
    fs::rename(world.path("out/checkpoint-4"), world.path("best")).unwrap();
    world.run(&["verify", "best"]).tells(0, &["whole"]);
}

#[test]
fn the_interval_that_a_step_holds_is_kept_and_said() {
    let world = world();
    let program = world.path("llamafactory-cli");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(
        world.path("x.yaml"),
        "output_dir: out\nsave_steps: 3\nnum_train_epochs: 1\n",
    )
    .unwrap();
    let plan = |more: &[&str]| world.run(&[&["plan", "--", program.as_str(), "train", "x.yaml"], more].concat());
    plan(&[]).tells(
        0,
        &[
            "would resume from checkpoint-4",
            "goes on saving every 2 steps",
            "not the 3 of the configuration",
        ],
    );
    assert!(plan(&[]).out.contains("every 2 steps are saved") && !plan(&[]).out.contains("every 3 steps"));
    assert!(!plan(&["save_steps=2"]).out.contains("goes on saving"));
    // Where nothing is saved, when it saves is no question.
    let never = plan(&["save_strategy=no", "output_dir=new"]).out;
    assert!(
        never.contains("nothing is saved") && !never.contains("[cadence]"),
        "{never}"
    );
    let epochs = plan(&["save_strategy=epoch", "output_dir=new"]).out;
    assert!(epochs.contains("it saves after each epoch"), "{epochs}");
}

/// What answers makes the trainer follow its flag as well.
#[test]
fn a_plan_says_whether_a_save_can_be_asked_for() {
    let world = world();
    fs::write(world.path("t.py"), "").unwrap();
    let command = "python3 t.py --output_dir out --save_steps 3 --max_steps 9 --logging_steps 1";
    let plan = |more: &[&str]| world.run(&[&["plan"], more, &["--"], &command.split(' ').collect::<Vec<_>>()].concat());
    let asked = plan(&[]);
    asked.tells(
        0,
        &[
            "saves on request: yes (a callback of transformers)",
            "attempts/0001/save-request",
            "[assist.save_requests]",
            "every 3 steps are saved",
        ],
    );
    assert!(!asked.out.contains("goes on saving"), "{}", asked.out);
    for (setting, why) in [
        ("supervisor.assist.save_requests=false", "assist.save_requests is false"),
        ("supervisor.interpreter=plain", "supervisor.interpreter is plain"),
    ] {
        let told = plan(&["--set", setting]);
        told.tells(
            0,
            &[&format!("saves on request: no ({why})"), "goes on saving every 2 steps"],
        );
        assert!(!told.out.contains("save-request"), "{}", told.out);
    }
    let view: serde_json::Value = serde_json::from_str(&plan(&["--json"]).out).unwrap();
    assert_eq!(
        view["save_requests"],
        serde_json::json!({"possible": true, "how": "a callback of transformers"})
    );
    let plain: serde_json::Value =
        serde_json::from_str(&world.run(&["plan", "--json", "--", "sleep", "1"]).out).unwrap();
    assert_eq!(plain["save_requests"]["possible"], false);
    assert!(plain["save_requests"]["why"].is_string());
}

#[test]
fn a_torn_save_is_named_with_the_file_that_is_missing() {
    let world = world();
    fs::remove_file(world.path("out/checkpoint-4/trainer_state.json")).unwrap();
    world
        .run(&["verify", "out/checkpoint-4"])
        .tells(20, &["trainer_state.json", "[unfinished]"]);
    let told = world.run(&["checkpoints", "out", "-v"]);
    told.tells(0, &["the one with the highest number", "incomplete", "whole"]);
    fs::remove_file(world.path("out/checkpoint-2/optimizer.pt")).unwrap();
    world
        .run(&["verify", "out/checkpoint-2"])
        .tells(20, &["optimizer.pt", "a fresh one and say nothing"]);
}

#[test]
fn a_run_is_found_by_the_yaml_that_its_command_was_given() {
    let world = World::new();
    let program = world.path("llamafactory-cli");
    fs::write(&program, "#!/bin/sh\necho given \"$@\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let yaml = "output_dir: out\nsave_steps: 2\nnum_train_epochs: 1\nsupervisor: {retries: 1}\n";
    fs::write(world.path("x.yaml"), yaml).unwrap();
    world
        .run(&["run", "--", program.as_str(), "train", "x.yaml"])
        .tells(0, &["start from scratch", "ended with exit code 0"]);
    let output = world.run(&["logs", "x.yaml"]);
    output.tells(
        0,
        &["given train", "/.supervise/config/", "resume_from_checkpoint=null"],
    );
    world.run(&["status", "x.yaml"]).tells(0, &["trainer      hf"]);
}

#[test]
fn what_could_not_be_resumed_is_refused_before_anything_starts() {
    let world = World::new();
    for (command, next) in [
        (
            "trl sft --output_dir o --resume_from_checkpoint=other/best",
            "rename it",
        ),
        ("swift sft --output_dir o", "--add_version false"),
        ("trl sft --output_dir=~you/o", "whole path"),
    ] {
        let mut words = vec!["plan", "--"];
        words.extend(command.split(' '));
        let said = world.run(&words);
        assert!(said.code == 78 && said.err.contains(next), "{command}: {said:?}");
    }
}

#[test]
fn leading_zeros_in_a_steps_name_are_said_and_never_resumed_from() {
    let world = world();
    let (named, padded) = (world.path("out/checkpoint-4"), world.path("out/checkpoint-0004"));
    let trainer = world.write("bin/trl", "#!/usr/bin/env python3\n");
    fs::set_permissions(&trainer, fs::Permissions::from_mode(0o755)).unwrap();
    let plan = || world.run(&["plan", "--", trainer.as_str(), "sft", "--output_dir", "out"]);
    // Newer than all that a run has written, and beside the step of that number.
    fs::rename(&named, &padded).unwrap();
    let told = [
        "checkpoint-2 is the newest whole step",
        "rename it to checkpoint-4",
        "moved aside: checkpoint-0004",
    ];
    plan().tells(0, &told);
    world
        .run(&["verify", "out/checkpoint-0004"])
        .tells(0, &["checkpoint-0004: whole", "rename it to checkpoint-4"]);
    copy_fixture("hf_trainer_w2/checkpoint-4", &named);
    plan().tells(
        0,
        &[
            "checkpoint-4 is the newest whole step",
            "moved aside: checkpoint-0004 (another name for step 4)",
        ],
    );
    world
        .run(&["checkpoints", "out"])
        .tells(0, &["checkpoint-0004", "rename it to checkpoint-4"]);
    // Alone: what Trainer would resume from is not left for a start from scratch.
    fs::remove_dir_all(&named).unwrap();
    fs::remove_dir_all(world.path("out/checkpoint-2")).unwrap();
    plan().tells(4, &["rename it to checkpoint-4"]);
    assert!(padded.is_dir());
}

#[test]
fn the_room_that_the_next_saves_need_is_told() {
    let world = world();
    let command = "plan -- trl sft --output_dir out --save_total_limit 2";
    let words: Vec<&str> = command.split(' ').collect();
    let trainer = world.write("bin/trl", "#!/usr/bin/env python3\n");
    fs::set_permissions(&trainer, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.path("bin"));
    world
        .run_with(&words, &[("PATH", &path)])
        .tells(0, &["a step takes 50.7 KiB, and up to 5 exist at the same time"]);
}
