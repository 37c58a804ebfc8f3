//! Checkpoints of trainers that are known by name only: none is called a broken step of another trainer.

use crate::world::{Said, World, copy_fixture};
use std::fs;

fn verify(world: &World, path: &str) -> Said {
    let said = world.run(&["verify", path]);
    let json = world.run(&["verify", path, "--json"]).json();
    assert_eq!(json["verdict"], "unknown", "{json:#}");
    assert!(!said.out.contains("verl"), "{said:#?}");
    said
}

#[test]
fn a_step_of_skyrl_is_no_remnant_of_another_trainers_step() {
    let world = World::new();
    copy_fixture("skyrl_w2", &world.path("out"));
    for (path, mark) in [
        ("out", "SkyRL (latest_ckpt_global_step.txt)"),
        ("out/global_step_2", "SkyRL (trainer_state.pt)"),
    ] {
        let said = verify(&world, path);
        said.tells(23, &[mark]);
        assert!(!said.out.contains("only data.pt is left"), "{said:#?}");
    }
    // Without the role there is still a file that only SkyRL writes.
    fs::remove_dir_all(world.path("out/global_step_2/policy")).unwrap();
    verify(&world, "out").tells(23, &["SkyRL"]);
}

#[test]
fn checkpoints_of_others_are_named_after_them() {
    for (trainer, path, files) in [
        (
            "DeepSpeed",
            "out",
            &["latest", "global_step2/mp_rank_00_model_states.pt", "zero_to_fp32.py"][..],
        ),
        (
            "DeepSpeed",
            "out/global_step2",
            &["latest", "global_step2/mp_rank_00_model_states.pt"],
        ),
        (
            "OpenRLHF",
            "out",
            &["_actor/latest", "_actor/global_step2/mp_rank_00_model_states.pt"],
        ),
        ("Lightning", "out", &["ckpts/epoch=0-step=2.ckpt", "ckpts/last.ckpt"]),
        ("Lightning", "out/ckpts", &["ckpts/epoch=0-step=2.ckpt"]),
        ("nanoGPT", "out", &["ckpt.pt"]),
        ("Megatron-LM", "out", &["iter_0000002/mp_rank_00/model_optim_rng.pt"]),
    ] {
        let world = World::new();
        for file in files {
            world.write(&format!("out/{file}"), "a few bytes");
        }
        verify(&world, path).tells(23, &[trainer, "does not judge its steps"]);
    }
}

#[test]
fn a_directory_of_other_things_is_not_judged_as_a_checkpoint() {
    let world = World::new();
    world.write("out/notes/today.md", "read");
    world.write("out/table.csv", "1,2");
    verify(&world, "out").tells(23, &["no trainer that is known here"]);
    // Two trainers' trackers: the steps are judged, and the other one is named.
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("both"));
    world.write("both/latest_ckpt_global_step.txt", "4");
    world.run(&["verify", "both"]).tells(
        0,
        &["also looks like a checkpoint of SkyRL (latest_ckpt_global_step.txt)"],
    );
}
