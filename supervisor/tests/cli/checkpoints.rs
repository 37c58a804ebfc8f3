//! `verify` and `checkpoints` on genuine checkpoints and on damaged copies of them.

use crate::world::{World, copy_fixture};
use camino::Utf8Path;
use std::fs::{self, OpenOptions};

const MODEL: &str = "global_step_2/actor/model_world_size_2_rank_0.pt";

fn ppo() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world
}

fn cut(path: &Utf8Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn whole_checkpoints_of_both_trainers_are_whole_at_both_depths() {
    let world = ppo();
    copy_fixture("verl_sft_fsdp2_w2", &world.path("sft"));
    for depth in ["structure", "full"] {
        let said = world.run(&["verify", "ckpt", "sft", "-v", "--depth", depth]);
        said.tells(0, &["ckpt (root): whole", "sft (root): whole", "a resume restores all"]);
        assert!(said.out.contains(&format!("proven: {depth}")), "{}", said.out);
    }
}

/// Turns one bit of the first tensor's bytes.
fn flip(path: &Utf8Path) {
    let mut bytes = fs::read(path).unwrap();
    let name = b"/data/0";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
    // torch aligns the bytes of a tensor to 64.
    bytes[at.next_multiple_of(64) + 4] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_cut_file_is_incomplete_with_its_place() {
    let world = ppo();
    cut(&world.path(&format!("ckpt/{MODEL}")), 9000);
    let said = world.run(&["verify", "ckpt", "-v"]);
    let parts = [
        "ckpt (root): incomplete",
        MODEL,
        "at byte 9000",
        "zip_truncated",
        "no resume from it",
        "global_step_1: whole",
    ];
    said.tells(20, &parts);
    let json = world.run(&["verify", "ckpt/global_step_2", "--json"]).json();
    assert_eq!(
        (json["exit_code"].as_u64(), json["verdict"].as_str()),
        (Some(20), Some("incomplete"))
    );
    let files = json["paths"][0]["files"].as_array().unwrap();
    let file = files
        .iter()
        .find(|f| f["path"] == "actor/model_world_size_2_rank_0.pt")
        .unwrap();
    assert_eq!(file["findings"][0]["offset"], 9000);
    let alone = world.run(&["verify", &format!("ckpt/{MODEL}")]);
    alone.tells(20, &["(file): incomplete", "not resumed from"]);
}

#[test]
fn a_flipped_bit_is_found_by_reading_every_byte() {
    let world = ppo();
    flip(&world.path(&format!("ckpt/{MODEL}")));
    let full = world.run(&["verify", "ckpt", "-v", "--depth", "full"]);
    full.tells(
        21,
        &[
            "ckpt (root): damaged",
            MODEL,
            "crc_mismatch",
            "at byte",
            "global_step_1: whole",
        ],
    );
    world
        .run(&["verify", "ckpt/global_step_1", "-v", "--depth", "full"])
        .tells(0, &["proven: full"]);
}

#[test]
fn a_missing_shard_is_incomplete_and_missing_data_state_is_only_told() {
    let world = ppo();
    fs::remove_file(world.path("ckpt/global_step_2/actor/optim_world_size_2_rank_1.pt")).unwrap();
    world
        .run(&["verify", "ckpt/global_step_2"])
        .tells(20, &["incomplete", "shards_missing"]);
    fs::remove_file(world.path("ckpt/global_step_1/data.pt")).unwrap();
    let said = world.run(&["verify", "ckpt/global_step_1", "-v"]);
    said.tells(0, &["whole", "no_data_state", "loses: data order"]);
}

#[test]
fn a_role_a_renamed_step_and_a_single_file_are_judged() {
    let world = ppo();
    world
        .run(&["verify", "ckpt/global_step_2/actor"])
        .tells(0, &["(role): whole", "one role of a step"]);
    cut(&world.path("ckpt/global_step_2/actor/fsdp_config.json"), 5);
    let role = world.run(&["verify", "ckpt/global_step_2/actor"]);
    role.tells(20, &["(role): incomplete", "fsdp_config.json", "json_truncated"]);
    fs::rename(world.path("ckpt/global_step_1"), world.path("best")).unwrap();
    world
        .run(&["verify", "best"])
        .tells(0, &["best (step): whole", "best: whole"]);
    world
        .run(&["verify", "best/data.pt"])
        .tells(0, &["data.pt (file): whole"]);
}

#[test]
fn what_is_no_checkpoint_is_unknown() {
    let world = World::new();
    world.write("notes/readme.txt", "hello");
    world
        .run(&["verify", "notes"])
        .tells(23, &["notes (directory): unknown"]);
    // `.bin` promises no format, and text has none.
    for name in ["x.dat", "random.bin", "notes.yaml"] {
        world.write(name, "a: hello");
        world
            .run(&["verify", name])
            .tells(23, &["unknown_format", "no trainer that is known here loads"]);
    }
    fs::create_dir(world.path("empty")).unwrap();
    world
        .run(&["verify", "empty"])
        .tells(20, &["nothing was saved here yet"]);
}

/// A zip of stored entries, as torch.save writes them.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let crc = crc32fast::hash(bytes).to_le_bytes();
        let (len, name_len) = ((bytes.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        let sizes = [crc, len, len].concat();
        let offset = (out.len() as u32).to_le_bytes();
        out.extend(
            [
                &b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0"[..],
                &sizes,
                &name_len,
                &[0, 0],
                name.as_bytes(),
                bytes,
            ]
            .concat(),
        );
        let head = b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0";
        directory.extend([&head[..], &sizes, &name_len, &[0; 12], &offset, name.as_bytes()].concat());
    }
    let (n, size, at) = (entries.len() as u16, directory.len() as u32, out.len() as u32);
    out.extend(directory);
    let counts = [n.to_le_bytes(), n.to_le_bytes()].concat();
    out.extend(
        [
            &b"PK\x05\x06\0\0\0\0"[..],
            &counts,
            &size.to_le_bytes(),
            &at.to_le_bytes(),
            &[0, 0],
        ]
        .concat(),
    );
    out
}

#[test]
fn a_file_that_runs_something_when_it_is_loaded_is_unsafe() {
    let world = ppo();
    let pickle = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.";
    let path = world.path("ckpt/global_step_2/data.pt");
    let bytes = zip(&[
        ("data/data.pkl", pickle),
        ("data/byteorder", b"little"),
        ("data/version", b"3\n"),
    ]);
    fs::write(&path, bytes).unwrap();
    world
        .run(&["verify", path.as_str()])
        .tells(22, &["(file): unsafe", "system", "it is not loaded"]);
    world
        .run(&["verify", "ckpt/global_step_2", "-v"])
        .tells(22, &["global_step_2: unsafe", "no resume from it"]);
}

#[test]
fn steps_are_listed_with_their_verdicts() {
    let world = ppo();
    flip(&world.path(&format!("ckpt/{MODEL}")));
    let said = world.run(&["checkpoints", "ckpt", "-v", "--depth", "full"]);
    said.tells(
        0,
        &[
            "the tracker file names step 2",
            "STEP",
            "damaged",
            "whole",
            "exact",
            "full",
            "crc_mismatch",
        ],
    );
    let json = world.run(&["checkpoints", "ckpt", "--json", "--depth", "full"]).json();
    assert_eq!(json["newest_proven"], 1);
    assert_eq!(json["tracker"]["step"], 2);
    assert_eq!(json["steps"][0]["verdict"], "damaged");
    assert_eq!(json["steps"][1]["proven"], "full");
    fs::remove_file(world.path("ckpt/latest_checkpointed_iteration.txt")).unwrap();
    world.run(&["checkpoints", "ckpt"]).tells(0, &["no tracker file"]);
}

#[test]
fn a_configuration_names_its_root_before_anything_was_started() {
    let world = ppo();
    let yaml =
        "algorithm: {adv_estimator: grpo}\ntrainer: {default_local_dir: ckpt, save_freq: 1, n_gpus_per_node: 2}\n";
    world.write("ppo.yaml", yaml);
    world
        .run(&["checkpoints", "ppo.yaml", "-v"])
        .tells(0, &["whole", "exact"]);
}

#[test]
fn a_plan_resumes_from_the_newest_whole_step_and_touches_nothing() {
    let world = ppo();
    cut(&world.path(&format!("ckpt/{MODEL}")), 9000);
    let yaml = "algorithm: {adv_estimator: grpo}\ntrainer: {default_local_dir: ckpt, save_freq: 1, n_gpus_per_node: 2, total_training_steps: 9}\nsupervisor: {command: [/bin/true, '{overrides}']}\n";
    world.write("ppo.yaml", yaml);
    let said = world.run(&["plan", "ppo.yaml"]);
    said.tells(
        0,
        &[
            "would resume from global_step_1",
            "global_step_2 is incomplete",
            "moved aside: global_step_2 (incomplete: actor/model",
            "trainer.resume_mode=resume_path",
            "never restored by this trainer",
            "a crash costs",
        ],
    );
    let json = world.run(&["plan", "ppo.yaml", "--json"]).json();
    assert_eq!(json["would"], "launch");
    assert_eq!(json["from"]["step"]["step"], 1);
    assert!(!world.path("ckpt/.supervise").exists() && world.path("ckpt/global_step_2").exists());
    assert!(!world.path("state").exists());
    let gone = yaml.replace("total_training_steps: 9", "total_training_steps: 1");
    world.write("ppo.yaml", &gone);
    world.run(&["plan", "ppo.yaml"]).tells(0, &["the run is finished"]);
}
