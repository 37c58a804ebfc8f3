//! `verify` on files that belong together, and what it can be asked beyond a verdict.

use crate::world::{World, copy_fixture};
use camino::Utf8Path;
use std::fs;

const DCP: &str = "dcp/step_2";

fn with(fixture: &str, name: &str) -> World {
    let world = World::new();
    copy_fixture(fixture, &world.path(name));
    world
}

fn change(path: &Utf8Path, at: usize, to: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = to(bytes[at]);
    fs::write(path, bytes).unwrap();
}

#[test]
fn distributed_checkpoints_are_whole_alone_and_side_by_side() {
    let world = with("torch_dcp_fsdp2_w2", "dcp");
    for depth in ["structure", "full"] {
        world.run(&["verify", DCP, "--depth", depth]).tells(
            0,
            &[
                "(dcp): whole",
                &format!("proven: {depth}"),
                "all that belongs together is here",
            ],
        );
    }
    world
        .run(&["verify", "dcp"])
        .tells(0, &["dcp (directory): whole", "step_1: whole", "step_2: whole"]);
    let alone = world.run(&["verify", "dcp/step_2/__0_0.distcp", "--depth", "full"]);
    alone.tells(0, &["(file): whole", "every byte, CRC-32"]);
}

#[test]
fn what_is_missing_or_wrong_in_a_distributed_checkpoint_is_named() {
    for (what, exit, words) in [
        ("flip", 21, ["__1_0.distcp", "crc_mismatch"]),
        ("part", 20, ["__1_0.distcp", "missing"]),
        ("table", 20, [".metadata", "missing"]),
    ] {
        let world = with("torch_dcp_fsdp2_w2", "dcp");
        let part = world.path("dcp/step_2/__1_0.distcp");
        match what {
            "flip" => {
                let name = b"archive/data/0";
                let bytes = fs::read(&part).unwrap();
                let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
                // The bytes begin less than 64 behind the name: torch aligns them.
                change(&part, at + 70, |b| b ^ 4);
            }
            "part" => fs::remove_file(&part).unwrap(),
            _ => fs::remove_file(world.path("dcp/step_2/.metadata")).unwrap(),
        }
        let said = world.run(&["verify", DCP, "--depth", "full"]);
        said.tells(exit, &words);
        let both = world.run(&["verify", "dcp", "--depth", "full"]);
        both.tells(exit, &["step_1: whole", words[0]]);
    }
}

#[test]
fn megatron_steps_and_areal_roots_are_judged_as_what_they_are() {
    let world = with("verl_megatron_v2_tp2", "ckpt");
    world
        .run(&["verify", "ckpt", "--depth", "full"])
        .tells(0, &["verl_megatron_ppo", "global_step_2: whole (proven: full"]);
    let role = world.run(&["verify", "ckpt/global_step_2/actor", "--depth", "full"]);
    role.tells(0, &["(role): whole"]);
    let dist = world.run(&["verify", "ckpt/global_step_2/actor/model/dist_ckpt"]);
    dist.tells(0, &["(megatron_dist): whole"]);
    fs::rename(world.path("ckpt/global_step_1"), world.path("best")).unwrap();
    world.run(&["verify", "best"]).tells(0, &["best: whole"]);
    fs::rename(world.path("best"), world.path("ckpt/global_step_3")).unwrap();
    world
        .run(&["verify", "ckpt/global_step_3"])
        .tells(21, &["step_differs", "it speaks of step 1"]);
    fs::remove_file(world.path("ckpt/global_step_2/actor/optimizer/dist_ckpt/common.pt")).unwrap();
    world
        .run(&["verify", "ckpt/global_step_2"])
        .tells(20, &["common.pt", "incomplete"]);

    let world = with("areal_sft_w2", "areal");
    let said = world.run(&["verify", "areal", "--json"]).json();
    let kinds: Vec<_> = said["paths"][0]["sets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"dcp") && kinds.contains(&"weights"), "{kinds:?}");
}

#[test]
fn tensors_are_listed_with_their_place_among_the_ranks() {
    let world = with("verl_ppo_fsdp2_w2", "ckpt");
    let shard = "ckpt/global_step_1/actor/model_world_size_2_rank_1.pt";
    let said = world.run(&["verify", shard, "--tensors"]);
    said.tells(0, &["float32", "float32 [32, 8] of [64, 8], Shard(0)"]);
    let json = world.run(&["verify", shard, "--tensors", "--json"]).json();
    let tensors = json["paths"][0]["files"][0]["tensors"].as_array().unwrap().clone();
    assert!(tensors.len() > 10);
    assert!(tensors.iter().all(|t| t["dtype"].is_string() && t["global"].is_array()));
}

/// safetensors has no checksums, so the number is legal bytes: only looking at it tells.
#[test]
fn numbers_that_are_not_finite_are_counted_where_asked() {
    let world = with("areal_sft_w2", "areal");
    let export = walk(&world.path("areal"), "model.safetensors");
    let whole = world.run(&["verify", export.as_str(), "--finite"]);
    whole.tells(0, &["every byte"]);
    assert!(!whole.out.contains("non_finite"), "{}", whole.out);
    let bytes = fs::read(&export).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    // 0x7fff is NaN in float16, and the upper half of a NaN in bfloat16 and float32.
    for at in 8 + header..8 + header + 16 {
        change(&export, at, |_| if at % 2 == header % 2 { 0xff } else { 0x7f });
    }
    world
        .run(&["verify", export.as_str(), "--depth", "full"])
        .tells(0, &["whole"]);
    let said = world.run(&["verify", export.as_str(), "--finite"]);
    said.tells(0, &["non_finite", "not a number"]);
}

#[test]
fn a_scrub_without_a_record_says_so() {
    let world = with("verl_ppo_fsdp2_w2", "ckpt");
    let said = world.run(&["verify", "ckpt", "--scrub"]);
    assert!(
        said.code == 64 && said.err.contains("no record of what was proven"),
        "{said:?}"
    );
}

fn walk(dir: &Utf8Path, name: &str) -> camino::Utf8PathBuf {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in dir.read_dir_utf8().unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == name {
                return entry.into_path();
            }
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.into_path());
            }
        }
    }
    panic!("no {name} below {dir}");
}
