//! `supervise merge` and `compare` of what DeepSpeed saved, as a person uses them.

use crate::world::World;
use std::fs;
use std::path::{Path, PathBuf};

/// A checkpoint of DeepSpeed, and the numbers that its own converter makes of it.
fn saved(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("weights/tests/deepspeed")
        .join(name)
}

/// A checkpoint of Trainer, and the model that is expected of it.
fn world(case: &str) -> World {
    let world = World::new();
    let step = world.path("out/checkpoint-2/global_step2");
    fs::create_dir_all(&step).unwrap();
    for name in ["config.json", "latest"] {
        fs::copy(saved(case).join(name), world.path("out/checkpoint-2").join(name)).unwrap();
    }
    for entry in fs::read_dir(saved(case).join("global_step2")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        fs::copy(entry.path(), step.join(name)).unwrap();
    }
    fs::copy(saved(&format!("{case}.safetensors")), world.path("want.safetensors")).unwrap();
    world
}

#[test]
fn the_model_is_what_its_own_converter_makes() {
    for case in ["two", "three"] {
        let world = world(case);
        for source in ["out/checkpoint-2", "out/checkpoint-2/global_step2"] {
            world
                .run(&["compare", source, "want.safetensors"])
                .tells(0, &["equal: 15 tensors"]);
        }
        world
            .run(&["merge", "out/checkpoint-2", "--target", "model", "--dtype", "keep"])
            .tells(0, &["model: 1"]);
        world.run(&["verify", "model", "--depth", "full"]).tells(0, &["whole"]);
    }
}

#[test]
fn files_of_other_kinds_of_parallelism_are_named() {
    let world = world("two");
    let step = world.path("out/checkpoint-2/global_step2");
    let merge = || world.run(&["merge", "out/checkpoint-2", "--target", "never"]);
    for name in [
        "mp_rank_01_model_states.pt",
        "layer_00-model_00-model_states.pt",
        "layer_1_expert_0_mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_01_optim_states.pt",
    ] {
        fs::write(step.join(name), "").unwrap();
        merge().refuses(23, &[name, "not put together here"]);
        fs::remove_file(step.join(name)).unwrap();
    }
    // A pointer to what is not there is no checkpoint.
    world.write("out/checkpoint-2/latest", "global_step4");
    merge().refuses(4, &["no step in it is proven"]);
    world.write("out/checkpoint-2/latest", "global_step2");
    fs::remove_file(step.join("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")).unwrap();
    merge().refuses(20, &["optimizer states of rank 0 are missing"]);
    assert!(!world.path("never").exists());
}
