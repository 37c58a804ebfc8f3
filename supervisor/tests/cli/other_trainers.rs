//! Checkpoints of trainers that are known by name only: none is called a broken step of another trainer.

use crate::world::{Said, World, copy_fixture};

fn verify(world: &World, path: &str) -> Said {
    let said = world.run(&["verify", path]);
    let json = world.run(&["verify", path, "--json"]).json();
    assert_eq!(json["verdict"], "unknown", "{json:#}");
    assert!(!said.out.contains("verl"), "{said:#?}");
    said
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
    world
        .run(&["verify", "both"])
        .tells(0, &["latest_ckpt_global_step.txt", "`--as skyrl`"]);
}
