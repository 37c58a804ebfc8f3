//! The same bytes get the same verdict from `verify`, `merge` and `reshard`.

use super::World;
use std::fs;
use std::os::unix::fs::symlink;

const ROLE: &str = "ppo/global_step_2/actor";
const STEP: &str = "ppo/global_step_2";

/// Exit codes of `verify` of the role, and of `merge` and `reshard`, with all that was said.
fn verdicts(world: &World) -> (i32, i32, i32, String) {
    let verify = world.run(&["verify", ROLE]);
    let merge = world.run(&["merge", ROLE, "--target", "model"]);
    fs::create_dir_all(world.path("new")).unwrap();
    let reshard = ["reshard", STEP, "--world-size", "1", "--target", "new/global_step_2"];
    let reshard = world.run(&reshard);
    let _ = fs::remove_dir_all(world.path("model"));
    fs::remove_dir_all(world.path("new")).unwrap();
    let said = format!("{verify:#?}\n{merge:#?}\n{reshard:#?}");
    (verify.code, merge.code, reshard.code, said)
}

#[test]
fn a_configuration_of_fsdp_that_verify_refuses_is_refused_by_merge_and_reshard() {
    let world = World::with_step();
    let config = format!("{ROLE}/fsdp_config.json");
    let before = fs::read(world.path(&config)).unwrap();
    assert_eq!(verdicts(&world).0, 0);
    for size in [
        "-1",
        "1.5",
        "\"2\"",
        "4611686018427387904",
        "0",
        "null",
        "true",
        "[2]",
        "1e1",
        "2.0",
    ] {
        world.write(
            &config,
            format!("{{\"FSDP_version\": 2, \"world_size\": {size}}}").as_bytes(),
        );
        let (verify, merge, reshard, said) = verdicts(&world);
        assert_eq!((verify, merge, reshard), (21, 21, 21), "{size}: {said}");
    }
    for text in [
        "{\"FSDP_version\": 3, \"world_size\": 2}",
        "{\"FSDP_version\": \"2\", \"world_size\": 2}",
        "{\"world_size\": 2}",
        "[]",
        "nothing",
        "{\"FSDP_version\": 2, \"world_size\": 2} more",
    ] {
        world.write(&config, text.as_bytes());
        let (verify, merge, reshard, said) = verdicts(&world);
        assert_eq!((verify, merge, reshard), (21, 21, 21), "{text}: {said}");
    }
    // Cut short, or of another number of ranks: incomplete.
    for text in [
        "",
        "{\"FSDP_version\": 2, \"wor",
        "{\"FSDP_version\": 2, \"world_size\": 3}",
    ] {
        world.write(&config, text.as_bytes());
        let (verify, merge, reshard, said) = verdicts(&world);
        assert_eq!((verify, merge, reshard), (20, 20, 20), "{text}: {said}");
    }
    // A number of so many digits that Python does not read it.
    let long = format!(
        "{{\"FSDP_version\": 2, \"world_size\": 2, \"more\": {}}}",
        "1".repeat(4301)
    );
    world.write(&config, long.as_bytes());
    let (verify, merge, reshard, said) = verdicts(&world);
    assert_eq!((verify, merge, reshard), (21, 21, 21), "{said}");
    world.write(&config, &before);
    let (verify, merge, reshard, said) = verdicts(&world);
    assert_eq!((verify, merge, reshard), (0, 0, 0), "{said}");
    let path = world.path(&config);
    fs::rename(&path, path.with_extension("real")).unwrap();
    symlink("fsdp_config.real", &path).unwrap();
    let (verify, merge, reshard, said) = verdicts(&world);
    // A step with any link in it is not cut.
    assert_eq!((verify, merge, reshard), (20, 20, 23), "{said}");
}

#[test]
fn a_directory_or_a_fifo_in_the_place_of_a_file_is_not_whole() {
    let world = World::new();
    for name in [
        "data.pt",
        "actor/fsdp_config.json",
        "actor/huggingface/config.json",
        "actor/model_world_size_2_rank_1.pt",
        "actor/extra_state_world_size_2_rank_0.pt",
        "actor/huggingface/tokenizer.json",
    ] {
        let _ = fs::remove_dir_all(world.path("ppo"));
        super::copy_fixture("verl_ppo_fsdp2_w2", &world.path("ppo"));
        let path = world.path(STEP).join(name);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let says = |said: super::Said| {
            // What is missing by that is incomplete.
            assert!(matches!(said.code, 20 | 21), "{name}: {said:#?}");
            assert!(said.out.contains("[not_a_file]"), "{name}: {said:#?}");
        };
        says(world.run(&["verify", STEP, "-v"]));
        fs::remove_dir(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        says(world.run(&["verify", STEP, "-v"]));
    }
    super::copy_fixture("hf_trainer_w2", &world.path("hf"));
    let step = world.path("hf").read_dir_utf8().unwrap().map(Result::unwrap);
    let step = step
        .map(|e| e.path().to_owned())
        .find(|p| p.file_name().unwrap().starts_with("checkpoint-"))
        .unwrap();
    for name in ["optimizer.pt", "scheduler.pt", "trainer_state.json"] {
        let path = step.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let said = world.run(&["verify", step.as_str(), "-v"]);
        assert!(matches!(said.code, 20 | 21), "{name}: {said:#?}");
        assert!(said.out.contains("[not_a_file]"), "{name}: {said:#?}");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    world.run(&["verify", step.as_str()]).is(0);
    // And in a model.
    super::copy_fixture("verl_ppo_fsdp2_w2", &world.path("again"));
    world.run(&["merge", "again", "--target", "model"]).is(0);
    fs::remove_file(world.path("model/tokenizer.json")).unwrap();
    fs::create_dir(world.path("model/tokenizer.json")).unwrap();
    let said = world.run(&["verify", "model", "-v"]).is(21);
    assert!(said.out.contains("tokenizer.json"), "{said:#?}");
    fs::remove_dir(world.path("model/tokenizer.json")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("model/tokenizer.json")).unwrap();
    world.run(&["verify", "model"]).is(21);
}
