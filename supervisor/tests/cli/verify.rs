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
        world.run(&["verify", DCP, "-v", "--depth", depth]).tells(
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
        .run(&["verify", "ckpt", "-v", "--depth", "full"])
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

/// A step that is looked at alone has steps beside it: what they hold tells what it should.
#[test]
fn a_step_that_is_looked_at_alone_is_compared_with_those_beside_it() {
    let world = with("verl_sft_fsdp2_w2", "ckpt");
    let lost = world.path("ckpt/global_step_1/data_1.pt");
    assert!(lost.is_file());
    world
        .run(&["verify", "ckpt/global_step_1", "-v"])
        .tells(0, &["restores all"]);
    fs::remove_file(&lost).unwrap();
    for named in ["ckpt", "ckpt/global_step_1"] {
        let said = world.run(&["verify", named]);
        said.tells(20, &["data_state_missing", "dataloader state of 1 ranks is missing: 1"]);
    }
    // The other one is not judged with it, and alone it is whole.
    world
        .run(&["verify", "ckpt/global_step_2"])
        .tells(0, &["global_step_2: whole"]);
    assert!(
        !world
            .run(&["verify", "ckpt/global_step_2"])
            .out
            .contains("global_step_1")
    );
}

#[test]
fn digests_of_megatron_are_compared_with_the_bytes() {
    let world = with("megatron_core_0_19", "dist");
    for depth in ["structure", "full"] {
        let said = world.run(&["verify", "dist/step_2", "-v", "--depth", depth]);
        said.tells(0, &["(megatron_dist): whole", &format!("proven: {depth}")]);
    }
    // A byte between two archives, which nothing else covers: only the digest tells.
    let part = world.path("dist/step_2/metadata.json");
    let text = fs::read_to_string(&part).unwrap();
    fs::write(&part, text.replace(": ", ":  ")).unwrap();
    world.run(&["verify", "dist/step_2"]).tells(0, &["whole"]);
    let said = world.run(&["verify", "dist/step_2", "--depth", "full"]);
    said.tells(21, &["metadata.json", "integrity_mismatch"]);
}

/// Weights carry no step: what can be told without a record is a doubt, and what cannot be told is said.
#[test]
fn a_file_of_another_save_is_doubted_and_what_cannot_be_told_is_said() {
    let doubt = "mixed_save_suspected";
    for (fixture, step, file) in [
        (
            "verl_ppo_fsdp2_w2",
            "global_step_2",
            "actor/model_world_size_2_rank_1.pt",
        ),
        (
            "verl_megatron_v2_tp2",
            "global_step_2",
            "actor/model/dist_ckpt/__1_0.distcp",
        ),
        (
            "verl_megatron_v2_tp2",
            "global_step_2",
            "actor/model/dist_ckpt/.metadata",
        ),
        ("torch_dcp_fsdp2_w2", "step_2", "__1_0.distcp"),
    ] {
        let world = with(fixture, "ckpt");
        let named = format!("ckpt/{step}");
        let whole = world.run(&["verify", &named, "-v"]);
        whole.tells(
            0,
            &["not provable from this directory alone: that all files are of one save"],
        );
        assert!(!whole.out.contains(doubt), "{}", whole.out);
        let other = format!("ckpt/{}/{file}", step.replace('2', "1"));
        fs::copy(world.path(&other), world.path(&format!("{named}/{file}"))).unwrap();
        let said = world.run(&["verify", &named]);
        // Some are told by what they count.
        if said.code == 0 {
            said.tells(0, &[doubt, file.rsplit('/').next().unwrap()]);
        }
    }
    let world = with("verl_ppo_fsdp2_w2", "ckpt");
    let json = world.run(&["verify", "ckpt/global_step_1", "--json"]).json();
    let limits = json["paths"][0]["not_provable"].as_array().unwrap();
    assert!(
        limits.iter().any(|l| l.as_str().unwrap().contains("one save")),
        "{limits:?}"
    );
}

#[test]
fn a_time_far_from_all_others_is_a_doubt_and_a_copy_is_none() {
    let world = with("verl_ppo_fsdp2_w2", "ckpt");
    let shard = world.path("ckpt/global_step_2/actor/model_world_size_2_rank_0.pt");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    let file = fs::File::options().write(true).open(&shard).unwrap();
    file.set_modified(old).unwrap();
    let said = world.run(&["verify", "ckpt/global_step_2"]);
    said.tells(
        0,
        &[
            "mixed_save_suspected",
            "older than all other files",
            "model_world_size_2_rank_0.pt",
        ],
    );
}

/// If each value has a file of its own, much is the same in every save: that is no doubt.
#[test]
fn many_files_that_are_the_same_in_two_saves_are_no_doubt() {
    let world = with("torch_dcp_fsdp2_w2", "ckpt");
    for n in 2..8 {
        for step in ["step_1", "step_2"] {
            let path = world.path(&format!("ckpt/{step}/__{n}_0.distcp"));
            fs::write(path, "the same in both".repeat(100)).unwrap();
        }
    }
    let said = world.run(&["verify", "ckpt/step_2"]);
    assert!(!said.out.contains("mixed_save_suspected"), "{}", said.out);
}

#[test]
fn memory_for_proofs_is_the_setting_unless_it_is_said() {
    let world = with("torch_dcp_fsdp2_w2", "dcp");
    // Lists inside each other that take far more memory than bytes.
    let pickle: Vec<u8> = [&b"\x80\x04]\x94("[..], &[b']'; 200_000], b"e."].concat();
    fs::write(world.path("state.pkl"), pickle).unwrap();
    let told =
        |args: &[&str], env: &[(&str, &str)]| world.run_with(&[&["verify", "state.pkl"], args].concat(), env).code;
    let small = [("SUPERVISE_PROOF__MEMORY", "4MiB")];
    let enough = told(&[], &[]);
    assert_ne!(enough, 24);
    assert_eq!(told(&["--memory", "4MiB"], &[]), 24);
    assert_eq!(told(&[], &small), 24);
    assert_eq!(told(&["--memory", "64MiB"], &small), enough);
    world.write("config/supervise/config.yaml", "proof: {memory: 4MiB}\n");
    assert_eq!(told(&[], &[]), 24);
    assert_eq!(told(&[], &[("SUPERVISE_PROOF__MEMORY", "64MiB")]), enough);
    world.write("config/supervise/config.yaml", "proof: {memori: 4MiB}\n");
    world
        .run(&["verify", "state.pkl"])
        .refuses(78, &["memori", "config.yaml"]);
    assert_eq!(told(&["--memory", "64MiB"], &[]), enough);
}

/// The part common to ranks of Megatron counts updates, so that of another save is told; in place of weights it is the same in all.
#[test]
fn counts_of_another_save_are_doubted() {
    let world = with("verl_megatron_v2_tp2", "ckpt");
    let common =
        |step: u32, part: &str| world.path(&format!("ckpt/global_step_{step}/actor/{part}/dist_ckpt/common.pt"));
    let clean = world.run(&["verify", "ckpt/global_step_2"]);
    assert!(!clean.out.contains("mixed_save_suspected"), "{}", clean.out);
    fs::copy(common(1, "optimizer"), common(2, "optimizer")).unwrap();
    let said = world.run(&["verify", "ckpt/global_step_2"]);
    said.tells(0, &["mixed_save_suspected", "common.pt", "counts updates"]);
}

#[test]
fn a_save_that_is_another_one_is_doubted() {
    let world = with("torch_dcp_fsdp2_w2", "ckpt");
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        let of = |step: u32| world.path(&format!("ckpt/step_{step}/{name}"));
        fs::copy(of(1), of(2)).unwrap();
    }
    let said = world.run(&["verify", "ckpt/step_2"]);
    said.tells(0, &["mixed_save_suspected", "nothing was trained between"]);
}
