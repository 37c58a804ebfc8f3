//! `supervise reshard` as a person uses it: for more and fewer ranks, and what it refuses.

use crate::world::{World, copy_fixture};
use std::fs;
use std::os::unix::fs::FileExt;

fn world() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ppo"));
    copy_fixture("verl_sft_fsdp2_w2", &world.path("sft"));
    for dir in ["small", "large", "odd"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    world
}

#[test]
fn a_step_for_more_and_for_fewer_ranks_is_whole_and_the_same_model() {
    let world = world();
    for (source, ranks, target) in [
        ("sft/global_step_2", "1", "small/global_step_2"),
        ("sft", "4", "large/global_step_2"),
        ("ppo", "3", "odd/global_step_2"),
    ] {
        let said = world.run(&["reshard", source, "--world-size", ranks, "--target", target, "--json"]);
        said.tells(0, &[]);
        let view = said.json();
        assert_eq!(
            (
                &view["step"],
                &view["world_size_before"],
                view["world_size"].to_string().as_str()
            ),
            (&2.into(), &2.into(), ranks),
            "{view}"
        );
        assert!(view["bytes_checked"].as_u64() > Some(0), "{view}");
        world.run(&["verify", target, "--depth", "full"]).tells(0, &["whole"]);
        world.run(&["compare", source, target]).tells(0, &["equal: 15 tensors"]);
    }
    let config = fs::read_to_string(world.path("odd/global_step_2/actor/fsdp_config.json")).unwrap();
    assert!(config.contains("\"world_size\": 3"), "{config}");
    // And back from one rank.
    let back = world.run(&[
        "reshard",
        "small/global_step_2",
        "--world-size",
        "2",
        "--target",
        "back",
    ]);
    back.tells(0, &["of 1 rank for 2"]);
    world.run(&["compare", "sft", "back"]).tells(0, &["equal"]);
    // More than there are rows: the last ranks hold nothing of some tensors.
    fs::create_dir(world.path("many")).unwrap();
    world
        .run(&["reshard", "ppo", "--world-size", "37", "--target", "many/global_step_2"])
        .tells(0, &["of 2 ranks for 37"]);
    world.run(&["verify", "many/global_step_2"]).tells(0, &["whole"]);
    world
        .run(&["compare", "ppo", "many/global_step_2"])
        .tells(0, &["equal"]);
}

#[test]
fn what_cannot_be_carried_over_is_named() {
    let world = world();
    let said = world.run(&["reshard", "sft", "--world-size", "4", "--target", "copy"]);
    said.tells(0, &[]);
    for note in [
        "the last 2 of 4 ranks begin with random states",
        "the place in the data is kept for as many batches",
        "the name global_step_2",
    ] {
        assert!(said.err.contains(note), "{said:#?}");
    }
    world
        .run(&["reshard", "sft", "--world-size", "3", "--target", "three"])
        .refuses(23, &["2 ranks have drawn 16 samples each", "no whole number for 3"]);
    assert!(!world.path("three").exists());
}

#[test]
fn what_is_not_whole_or_of_another_kind_is_refused() {
    let world = world();
    let reshard = |source: &str, more: &[&str]| {
        world.run(&[&["reshard", source, "--target", "out", "--world-size"][..], more].concat())
    };
    reshard("sft", &["0"]).refuses(64, &["--world-size"]);
    reshard("nowhere", &["2"]).refuses(64, &["no such directory"]);
    reshard("sft/global_step_1", &["2", "--step", "2"]).refuses(64, &["not step 2"]);
    let inside = world.run(&[
        "reshard",
        "sft",
        "--world-size",
        "1",
        "--target",
        "sft/global_step_2/out",
    ]);
    inside.refuses(64, &["inside of the checkpoint"]);
    copy_fixture("verl_megatron_v2_tp2", &world.path("megatron"));
    reshard("megatron", &["2"]).refuses(23, &["no shards of FSDP", "any number of ranks"]);
    let shard = world.path("ppo/global_step_2/actor/optim_world_size_2_rank_1.pt");
    let file = fs::OpenOptions::new().write(true).open(&shard).unwrap();
    // The first storage's first bytes: 64 bytes are the alignment of them all.
    let bytes = fs::read(&shard).unwrap();
    let name = b"/data/0";
    let header = bytes.windows(name.len()).position(|w| w == name).unwrap();
    let data = (header + name.len()).next_multiple_of(64);
    file.write_all_at(&[bytes[data] ^ 1], data as u64).unwrap();
    reshard("ppo/global_step_2", &["1"]).refuses(21, &["optim_world_size_2_rank_1.pt"]);
    fs::remove_file(&shard).unwrap();
    reshard("ppo/global_step_2", &["1"]).refuses(20, &["optim_world_size_2_rank_1.pt is missing"]);
    assert!(!world.path("out").exists());
}
