//! `supervise trainer`, and `supervise verify` of trainers that a TOML file declares.

use crate::world::{World, copy_fixture};
use camino::Utf8Path;
use std::fs;

const MINE: &str = r#"format = 1
[trainer]
name = "mine"
[steps]
dir = "global_step_{step}"
[[part]]
name = "model"
files = "policy/model_world_size_{world}_rank_{rank}.pt"
format = "torch"
[finish]
by = "all"
"#;

/// A checkpoint of a declared trainer.
fn copy(name: &str, to: &Utf8Path) {
    copy_fixture(&format!("../../supervisor/tests/declared/{name}"), to);
}

fn skyrl() -> World {
    let world = World::new();
    copy("skyrl_w2", &world.path("out"));
    world
}

#[test]
fn a_root_is_judged_by_the_declaration_that_fits() {
    let world = skyrl();
    for depth in ["structure", "full"] {
        let said = world.run(&["verify", "out", "--depth", depth]);
        said.tells(
            0,
            &[
                "SkyRL (latest_ckpt_global_step.txt)",
                "global_step_2: whole",
                "global_step_4: whole",
            ],
        );
        assert!(!said.out.contains("verl"), "{said:#?}");
    }
    let json = world.run(&["verify", "out", "--json"]).json();
    assert_eq!(json["paths"][0]["what"], "root", "{json:#}");
    assert_eq!(json["paths"][0]["steps"][0]["layout"], "skyrl");
    world
        .run(&["verify", "out/global_step_4"])
        .tells(0, &["(step): whole", "SkyRL"]);
    world
        .run(&["verify", "out", "--as", "skyrl"])
        .tells(0, &["global_step_4: whole"]);
    fs::remove_file(world.path("out/global_step_4/policy/optim_world_size_2_rank_1.pt")).unwrap();
    world.run(&["verify", "out"]).tells(
        20,
        &[
            "optimizer of policy: 1 of 2 files are missing, rank 1",
            "global_step_2: whole",
            "checked the structure; --depth full reads every byte",
        ],
    );
}

#[test]
fn a_trainer_that_is_named_is_the_one_that_judges() {
    let world = skyrl();
    world
        .run(&["verify", "out", "--as", "verl"])
        .tells(23, &["another trainer saved this step"]);
    let mine = world.write("supervise.trainers/mine.toml", MINE);
    world
        .run(&["verify", "out", "--as", "mine"])
        .tells(0, &["global_step_4: whole"]);
    world
        .run(&["verify", "out", "--as", mine.as_str()])
        .tells(0, &["global_step_4: whole"]);
    // Users' files are asked before presets.
    world.run(&["verify", "out"]).tells(0, &["a checkpoint of mine"]);
    world
        .run(&["verify", "out", "--as", "nobody"])
        .refuses(64, &["`nobody`", "skyrl", "mine"]);
    world
        .run(&["verify", "out/global_step_2/data.pt", "--as", "skyrl"])
        .tells(0, &["--as is for directories"]);
    world
        .run(&["verify", "out", "--as", "none.toml"])
        .refuses(64, &["no such file"]);
}

#[test]
fn two_declarations_that_fit_are_both_named() {
    let world = World::new();
    copy("torchtitan_w2", &world.path("out"));
    world.run(&["verify", "out"]).tells(0, &["--as torchtitan", "--as dcp"]);
    // By default the last step of torchtitan cannot be resumed from: only its own declaration knows.
    world
        .run(&["verify", "out", "--as", "torchtitan"])
        .tells(20, &["step-2: whole", "step-4: incomplete", "holds no `lr_scheduler`"]);
    world
        .run(&["verify", "out/step-2", "--as", "torchtitan"])
        .tells(0, &["step-2: whole"]);
    world
        .run(&["verify", "out", "--as", "dcp"])
        .tells(20, &["step-2: whole", "was not saved for a resume"]);
}

#[test]
fn a_checkpoint_that_is_one_file_is_judged() {
    let world = World::new();
    copy("nanogpt", &world.path("out"));
    world
        .run(&["verify", "out"])
        .tells(0, &["nanoGPT (ckpt.pt)", "ckpt.pt: whole"]);
    let json = world.run(&["verify", "out", "--json"]).json();
    assert_eq!(json["paths"][0]["steps"][0]["step"], 4, "{json:#}");
    let file = world.path("out/ckpt.pt");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let said = world.run(&["verify", "out"]);
    assert!([20, 21].contains(&said.code), "{said:#?}");
}

#[test]
fn a_declaration_with_mistakes_names_them_all() {
    let world = skyrl();
    let broken = MINE.replace("{rank}", "{ranks}").replace("\"torch\"", "\"zip\"");
    world.write("supervise.trainers/mine.toml", &broken);
    for args in [
        &["verify", "out", "--as", "mine"][..],
        &["verify", "out", "--as", "supervise.trainers/mine.toml"],
        &["trainer", "show", "mine"],
        &["trainer", "check", "supervise.trainers/mine.toml", "out"],
    ] {
        world.run(args).refuses(
            78,
            &[
                "2 mistakes",
                "supervise.trainers/mine.toml:8: [[part]] model files: {ranks} is no placeholder here; did you mean {rank}?",
                "supervise.trainers/mine.toml:9: [[part]] model format: `zip` is not known; use torch",
            ],
        );
    }
    // Another trainer claims the root: it is judged, and the file is named.
    world.run(&["verify", "out"]).tells(
        0,
        &["global_step_4: whole", "supervise.trainers/mine.toml", "does not load"],
    );
    world.run(&["trainer", "list"]).tells(0, &["skyrl", "2 mistakes"]);
    let json = world.run(&["verify", "out", "--as", "mine", "--json"]);
    assert_eq!(json.code, 78);
    assert!(
        json.err.contains("\"exit_code\": 78") || json.err.contains("\"exit_code\":78"),
        "{json:#?}"
    );
}

#[test]
fn presets_are_listed_and_can_be_copied() {
    let world = skyrl();
    world
        .run(&["trainer", "list"])
        .tells(0, &["skyrl", "torchtitan", "dcp", "nanogpt", "0.4.0"]);
    let json = world.run(&["trainer", "list", "--json"]).json();
    assert_eq!(json["trainers"].as_array().unwrap().len(), 4, "{json:#}");
    let shown = world.run(&["trainer", "show", "skyrl"]);
    assert_eq!(shown.code, 0);
    world.write("copy.toml", &shown.out);
    world
        .run(&["verify", "out", "--as", "copy.toml"])
        .tells(0, &["global_step_4: whole"]);
    world
        .run(&["trainer", "show", "nobody"])
        .refuses(64, &["nobody", "skyrl"]);
}

#[test]
fn a_check_plays_every_damage() {
    let world = skyrl();
    let log = "Resuming from global_step: 4\nsomething else\n";
    world.write("train.log", log);
    world.run(&["trainer", "check", "skyrl", "out"]).tells(
        0,
        &["out as SkyRL: whole", "model of policy (2)", "huggingface/config.json"],
    );
    fs::write(world.path("out/global_step_4/notes.txt"), "mine").unwrap();
    let said = world.run(&["trainer", "check", "skyrl", "out", "--log", "train.log"]);
    said.tells(
        0,
        &[
            "global_step_4/notes.txt",
            "names step 4",
            "trainer.resume_path=",
            "fresh start: trainer.resume_mode=none",
            "line resumed: 1 time, step 4",
            "line end: never",
            "not noticed if missing: ",
        ],
    );
    let json = world.run(&["trainer", "check", "skyrl", "out", "--json"]).json();
    let damages = json["damages"].as_array().unwrap();
    assert!(damages.len() > 15, "{json:#}");
    for row in damages {
        let file = row["file"].as_str().unwrap();
        let is_read = file.ends_with(".pt");
        assert_eq!((&row["gone"], &row["cut"]), (&is_read.into(), &is_read.into()), "{row}");
    }
    for row in json["tracker_damages"].as_array().unwrap() {
        assert_eq!(row["noticed"], true, "{row}");
    }
}

#[test]
fn a_check_of_nothing_says_what_was_looked_for() {
    let world = World::new();
    fs::create_dir(world.path("empty")).unwrap();
    world
        .run(&["trainer", "check", "skyrl", "empty"])
        .tells(23, &["no step is here", "global_step_{step}"]);
    world.run(&["trainer", "check", "skyrl", "none"]).refuses(64, &["none"]);
    world
        .run(&["trainer", "check", "nobody", "empty"])
        .refuses(64, &["nobody"]);
    let file = world.write("file", "x");
    world
        .run(&["trainer", "check", "skyrl", file.as_str()])
        .refuses(64, &["not a directory"]);
}

#[test]
fn every_file_of_a_distributed_checkpoint_is_missed() {
    let world = World::new();
    copy("torchtitan_w2", &world.path("out"));
    let json = world.run(&["trainer", "check", "torchtitan", "out", "--json"]).json();
    let damages = json["damages"].as_array().unwrap();
    // Step 4 cannot be resumed from anyway.
    assert_eq!(damages.len(), 3, "{json:#}");
    for row in damages {
        assert_eq!((&row["gone"], &row["cut"]), (&true.into(), &true.into()), "{row}");
    }
}

/// `supervise plan` of a command.
fn plan(world: &World, set: &[&str], command: &[&str]) -> crate::world::Said {
    let set = set.iter().flat_map(|set| ["--set", set]);
    let words: Vec<&str> = ["plan"]
        .into_iter()
        .chain(set)
        .chain(["--"])
        .chain(command.iter().copied())
        .collect();
    world.run(&words)
}

#[test]
fn a_plan_resumes_a_declared_trainer() {
    let world = skyrl();
    let root = world.path("out").canonicalize_utf8().unwrap();
    let key = format!("trainer.ckpt_path={root}");
    let command = [
        "true",
        "-m",
        "skyrl.train.entrypoints.main_base",
        &key,
        "trainer.max_ckpts_to_keep=3",
    ];
    let path = format!("trainer.resume_path={root}/global_step_4");
    plan(&world, &[], &command).tells(
        0,
        &["trainer.resume_mode=from_path", &path, "trainer.max_ckpts_to_keep=5"],
    );
    plan(&world, &["supervisor.trainer=skyrl"], &["true", &key]).tells(0, &["trainer.resume_mode=from_path", &path]);
    // A required setting is refused before a GPU is used, and doubted if it may be said elsewhere.
    let command = ["true", "-m", "torchtitan.train"];
    plan(&world, &[], &command).tells(0, &["--checkpoint.enable", "nothing is saved"]);
    let off = ["true", "-m", "torchtitan.train", "--checkpoint.enable=false"];
    plan(&world, &[], &off).refuses(78, &["--checkpoint.enable", "nothing is saved"]);
    plan(&world, &["supervisor.trainer=skyr"], &command).refuses(78, &["plain, skyrl", "trainer_file"]);
}

#[test]
fn the_file_that_declares_a_trainer_is_named_or_found() {
    let world = skyrl();
    let mine = MINE.replace(
        "[steps]",
        "[command]\nany = [\"*loop.py\"]\n[settings]\nroot = [{ key = \"--out\" }]\n[steps]",
    );
    let command = ["true", "loop.py", "--out", "out"];
    let file = world.write("elsewhere.toml", &mine);
    let set = format!("supervisor.trainer_file={file}");
    plan(&world, &[&set], &command).tells(0, &["global_step_4"]);
    plan(&world, &[&set, "supervisor.trainer=skyrl"], &command).refuses(78, &["elsewhere.toml declares mine"]);
    plan(&world, &["supervisor.trainer_file=gone.toml"], &command).refuses(78, &["gone.toml"]);
    plan(&world, &[], &command).tells(0, &["NOT protected"]);
    world.write("supervise.trainers/a.toml", &mine);
    plan(&world, &[], &command).tells(0, &["global_step_4"]);
    world.write("supervise.trainers/b.toml", &mine.replace("\"mine\"", "\"other\""));
    plan(&world, &[], &command).refuses(78, &["mine (", "other (", "supervisor.trainer=mine"]);
    plan(&world, &["supervisor.trainer=mine"], &command).tells(0, &["global_step_4"]);
    // All mistakes of all files at once, and never a plain command instead.
    world.write(
        "supervise.trainers/a.toml",
        &mine.replace("by = \"all\"", "by = \"al\"\nx = 1"),
    );
    world.write("supervise.trainers/b.toml", &mine.replace("format = 1", "format = 2"));
    let said = plan(&world, &[], &command);
    said.refuses(78, &["a.toml:", "`al` is not known", "no such key", "b.toml:1: format"]);
    plan(&world, &["supervisor.trainer=plain"], &command).tells(0, &["NOT protected"]);
}

#[test]
fn a_file_that_others_can_write_does_not_count() {
    use std::os::unix::fs::PermissionsExt;
    let world = skyrl();
    let mine = MINE.replace("[steps]", "[settings]\nroot = [{ key = \"--out\" }]\n[steps]");
    let mine = world.write("supervise.trainers/mine.toml", &mine);
    let set = format!("supervisor.trainer_file={mine}");
    let command = ["true", "loop.py", "--out", "out"];
    for (mode, who) in [(0o666, "everybody"), (0o664, "its group")] {
        fs::set_permissions(&mine, fs::Permissions::from_mode(mode)).unwrap();
        let chmod = "chmod go-w supervise.trainers/mine.toml";
        world
            .run(&["verify", "out"])
            .tells(0, &["a checkpoint of SkyRL", "does not load"]);
        for args in [
            &["verify", "out", "--as", "mine"][..],
            &["trainer", "check", "mine", "out"],
        ] {
            world.run(args).refuses(78, &[who, "may write this declaration", chmod]);
        }
        plan(&world, &["supervisor.trainer=mine"], &command).refuses(78, &[who, chmod]);
        let absolute = format!("chmod go-w {mine}");
        world
            .run(&["verify", "out", "--as", mine.as_str()])
            .refuses(78, &[who, &absolute]);
        plan(&world, &[&set], &command).refuses(78, &[who, &absolute]);
    }
    // The hint works.
    let ended = std::process::Command::new("chmod")
        .args(["go-w", mine.as_str()])
        .status();
    assert!(ended.unwrap().success());
    plan(&world, &[&set], &command).tells(0, &["global_step_4"]);
    world
        .run(&["verify", "out", "--as", "mine"])
        .tells(0, &["global_step_4: whole"]);
}

#[test]
fn a_tracker_with_the_name_of_another_trainers_is_the_declarations() {
    let world = skyrl();
    let mine = MINE.replace("global_step_", "save-").replace(
        "[finish]",
        "[tracker]\nfile = \"LATEST\"\ntext = \"{step}\"\nmissing = \"fresh\"\n[finish]",
    );
    world.write("supervise.trainers/mine.toml", &mine);
    fs::rename(world.path("out/global_step_2"), world.path("out/save-2")).unwrap();
    fs::remove_dir_all(world.path("out/global_step_4")).unwrap();
    fs::remove_file(world.path("out/latest_ckpt_global_step.txt")).unwrap();
    world.write("out/LATEST", "2");
    world
        .run(&["verify", "out"])
        .tells(0, &["a checkpoint of mine (LATEST)", "save-2: whole"]);
    let json = world.run(&["checkpoints", "out", "--json"]).json();
    assert_eq!(json["steps"][0]["verdict"], "whole", "{json:#}");
}

#[test]
fn a_broken_file_is_not_passed_over_for_the_preset_that_it_may_replace() {
    let world = skyrl();
    // No name of a file says that it declares this one.
    let broken = MINE.replace("\"mine\"", "\"skyrl\"").replace("\"torch\"", "\"zip\"");
    world.write("supervise.trainers/a.toml", &broken);
    for args in [
        &["trainer", "check", "skyrl", "out"][..],
        &["trainer", "show", "skyrl"],
        &["verify", "out", "--as", "skyrl"],
        &["trainer", "check", "other", "out"],
    ] {
        world.run(args).refuses(78, &["a.toml:9", "`zip` is not known"]);
    }
    world
        .run(&["trainer", "check", "nanogpt", "out"])
        .tells(23, &["no step is here"]);
}

#[test]
fn a_linked_file_of_a_step_is_called_a_link() {
    let world = skyrl();
    let step = world.path("out/global_step_4");
    let model = step.join("policy/model_world_size_2_rank_1.pt");
    let elsewhere = world.path("model.pt");
    fs::rename(&model, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &model).unwrap();
    let said = world.run(&["verify", "out/global_step_4", "--as", "skyrl"]);
    said.tells(23, &["rank_1.pt: a symbolic link"]);
    assert!(!said.out.contains("are missing"), "{said:#?}");
    let key = format!("trainer.ckpt_path={}", world.path("out"));
    plan(&world, &["supervisor.trainer=skyrl"], &["true", &key]).tells(
        4,
        &[
            "would refuse to start (exit code 4): no provable checkpoint",
            "rank_1.pt in global_step_4 is a symbolic link or special file",
        ],
    );
}

#[test]
fn a_flag_without_a_value_is_no_checkpoint_root() {
    let world = skyrl();
    let mine = MINE.replace(
        "[steps]",
        "[settings]\nroot = [{ key = \"--out\" }]\nlast = [{ key = \"--steps\" }]\n[steps]",
    );
    world.write("supervise.trainers/mine.toml", &mine);
    let set = ["supervisor.trainer=mine"];
    for command in [
        &["true", "loop.py", "--out"][..],
        &["true", "loop.py", "--out", "--steps", "4"],
        &["true", "loop.py", "--out", "out", "--steps"],
    ] {
        plan(&world, &set, command).refuses(78, &["the command gives it no value", "write the value after it"]);
    }
    // A declaration without a key for the root is not told to set the same thing twice.
    world.write("supervise.trainers/mine.toml", MINE);
    let said = plan(&world, &set, &["true", "loop.py"]);
    said.refuses(78, &["supervisor.root is not set", "--set supervisor.root=DIR"]);
}

#[test]
fn a_trainer_that_is_not_told_its_step_says_so_with_one_sentence() {
    let world = skyrl();
    let mine = MINE.replace(
        "[steps]",
        "[settings]\nroot = [{ key = \"--out\" }]\n[steps]\npick = \"given\"",
    );
    world.write("supervise.trainers/mine.toml", &mine);
    let sentence = "[resume] in its declaration has no words for a step: it starts as it was written";
    let said = plan(
        &world,
        &["supervisor.trainer=mine"],
        &["true", "loop.py", "--out", "out"],
    );
    said.tells(0, &["would run the command as written", sentence]);
    assert_eq!(said.out.matches(sentence).count(), 2, "{said:#?}");
    world.run(&["trainer", "check", "mine", "out"]).tells(0, &[sentence]);
}

#[test]
fn odd_files_in_place_of_a_declaration_are_answered() {
    let world = skyrl();
    fs::write(world.path("bytes.toml"), [0xff, 0xfe, 0x00]).unwrap();
    world.write("large.toml", &"#".repeat(300 << 10));
    fs::create_dir(world.path("folder.toml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", world.path("zero.toml")).unwrap();
    for (file, code) in [
        ("bytes.toml", 78),
        ("large.toml", 78),
        ("folder.toml", 69),
        ("zero.toml", 69),
    ] {
        let said = world.run(&["verify", "out", "--as", file]);
        said.refuses(code, &[file]);
    }
}
