//! What a person reads of a run on their own machine: times of the place, causes in full.

use crate::world::{World, copy_fixture};
use std::fs;

/// East of Greenwich by an offset that no machine has by chance.
const ZONE: (&str, &str) = ("TZ", "<+0545>-5:45");

/// A run that failed with a long error.
fn failed() -> (World, String) {
    let world = World::new();
    let error = format!("RuntimeError: {}end of the error", "a long error ".repeat(12));
    world.write(
        "train.sh",
        &format!("echo 'Traceback (most recent call last):'\necho '{error}'\nexit 1\n"),
    );
    let settings = ["supervisor.trainer=plain", "supervisor.retries=0"];
    let said = world.run(&[
        "run",
        "--set",
        settings[0],
        "--set",
        settings[1],
        "--",
        "/bin/sh",
        "train.sh",
    ]);
    assert_ne!(said.code, 0, "{said:#?}");
    (world, error)
}

#[test]
fn times_are_local_in_text_and_utc_in_json() {
    let (world, _) = failed();
    for command in [["status"], ["history"]] {
        world.run_with(&command, &[ZONE]).tells(0, &["+05:45"]);
    }
    world
        .run_with(&["explain", "-v"], &[ZONE])
        .tells(0, &["+05:45 attempt 1: "]);
    let json = world.run_with(&["explain", "--json"], &[ZONE]);
    assert!(!json.out.contains("+05:45"), "{json:#?}");
    let said = json.json()["attempts"][1]["told"][0]["text"].to_string();
    assert!(said.contains("Z attempt 1: "), "{said}");
}

#[test]
fn a_cause_is_cut_on_a_terminal_only() {
    let (world, error) = failed();
    world.run(&["history"]).tells(0, &[&error]);
}

#[test]
fn a_step_is_one_line_and_files_come_when_asked_for() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    let shard = "global_step_2/actor/model_world_size_2_rank_0.pt";
    let whole = world.run(&["verify", "ckpt"]);
    whole.tells(
        0,
        &[
            "ckpt (root): whole\n  global_step_2: whole, ",
            "--depth full reads every byte",
        ],
    );
    assert_eq!(whole.out.lines().count(), 4, "{whole:#?}");
    world.run(&["verify", "ckpt", "--files"]).tells(0, &[shard]);
    world
        .run(&["verify", "ckpt", "-v"])
        .tells(0, &[shard, "proven: structure", "restores all"]);
    fs::write(world.path("ckpt").join(shard), "torn").unwrap();
    let said = world.run(&["verify", "ckpt"]);
    assert_eq!((said.code, said.out.lines().count()), (21, 3), "{said:#?}");
    let line = said.out.lines().find(|l| l.contains("global_step_2")).unwrap();
    assert!(
        line.contains("damaged, ") && line.contains("model_world_size_2_rank_0.pt: "),
        "{line}"
    );
}

#[test]
fn a_step_leads_to_its_root() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    let said = world.run(&["checkpoints", "ckpt/global_step_1"]);
    said.tells(0, &["/ckpt: step 2 is the newest whole step\nSTEP  VERDICT  SIZE"]);
    assert!(
        said.err
            .contains("ckpt/global_step_1 is a step; these are all steps of "),
        "{said:#?}"
    );
    world
        .run(&["checkpoints", "ckpt", "-v"])
        .tells(0, &["PROVEN", "exact", "the tracker file names step 2"]);
}
