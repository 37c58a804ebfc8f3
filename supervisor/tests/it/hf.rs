//! Output directories of Hugging Face's `Trainer`, whether or not a run of ours wrote them.

use crate::world::{World, copy_fixture};
use std::fs;

fn world() -> World {
    let world = World::new();
    copy_fixture("hf_trainer_w2", &world.path("out"));
    world
}

#[test]
fn a_root_a_step_and_a_renamed_step_are_judged() {
    let world = world();
    for depth in ["structure", "full"] {
        let told = world.run(&["verify", "out", "--depth", depth]);
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
        .run(&["verify", "out/checkpoint-4"])
        .tells(0, &["checkpoint-4", "hf_trainer", "whole"]);
    fs::rename(world.path("out/checkpoint-4"), world.path("best")).unwrap();
    world.run(&["verify", "best"]).tells(0, &["whole"]);
}

#[test]
fn a_torn_save_is_named_with_the_file_that_is_missing() {
    let world = world();
    fs::remove_file(world.path("out/checkpoint-4/trainer_state.json")).unwrap();
    world
        .run(&["verify", "out/checkpoint-4"])
        .tells(20, &["trainer_state.json", "[unfinished]"]);
    let told = world.run(&["checkpoints", "out"]);
    told.tells(0, &["the one with the highest number", "incomplete", "whole"]);
    fs::remove_file(world.path("out/checkpoint-2/optimizer.pt")).unwrap();
    world
        .run(&["verify", "out/checkpoint-2"])
        .tells(20, &["optimizer.pt", "a fresh one and say nothing"]);
}
