//! Links beside a model, and among its weights: what they lead to comes into the target only from where the user pointed.

use super::{World, copy_dir};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const BESIDE: &str = "ppo/global_step_2/actor/huggingface";
const SECRET: &str = "BEGIN PRIVATE KEY of somebody";

/// Everything below a directory: names and contents.
fn contents(dir: &Utf8Path) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in dir.read_dir_utf8().unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => out.extend(contents(entry.path())),
            false => out.push((entry.path().to_string(), fs::read(entry.path()).unwrap())),
        }
    }
    out
}

fn holds(dir: &Utf8Path, text: &str) -> Vec<String> {
    let found = contents(dir).into_iter();
    found
        .filter(|(_, bytes)| bytes.windows(text.len()).any(|w| w == text.as_bytes()))
        .map(|(name, _)| name)
        .collect()
}

/// Puts a secret outside of a model's directory, and links of many sorts to it into that.
fn plant(world: &World, beside: &str) {
    let dir = world.path(beside);
    let secret = world.write("home/id_rsa", SECRET.as_bytes());
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    world.write("home/templates/deep.jinja", SECRET.as_bytes());
    symlink(&secret, dir.join("LICENSE")).unwrap();
    let mut up = Utf8PathBuf::new();
    (0..Utf8Path::new(beside).components().count()).for_each(|_| up.push(".."));
    symlink(up.join("home/id_rsa"), dir.join("merges.txt")).unwrap();
    symlink("merges.txt", dir.join("vocab.txt")).unwrap();
    symlink(
        "/proc/self/root".to_owned() + secret.as_str(),
        dir.join("by_handle.txt"),
    )
    .unwrap();
    symlink(world.path("home/templates"), dir.join("additional_chat_templates")).unwrap();
    symlink("no/such/place", dir.join("notes.txt")).unwrap();
    symlink("/dev/zero", dir.join("endless.txt")).unwrap();
}

/// Names of these links, all of which are left out, each said with its reason.
const LEFT_OUT: [(&str, &str); 7] = [
    ("LICENSE", "outside of"),
    ("merges.txt", "outside of"),
    ("vocab.txt", "outside of"),
    ("by_handle.txt", "outside of"),
    ("additional_chat_templates", "a symbolic link to a directory"),
    ("notes.txt", "leads to nothing"),
    ("endless.txt", "outside of"),
];

#[test]
fn nothing_outside_of_what_was_named_comes_into_a_merged_model() {
    let world = World::with_step();
    plant(&world, BESIDE);
    for (source, target) in [
        ("ppo", "of-root"),
        ("ppo/global_step_2", "of-step"),
        (BESIDE_ROLE, "of-role"),
    ] {
        let said = world.run(&["merge", source, "--target", target, "--json"]).is(0);
        let view = said.json();
        assert!(holds(&world.path(target), SECRET).is_empty(), "{said:#?}");
        let notes = view["notes"].to_string();
        for (name, why) in LEFT_OUT {
            assert!(!world.path(target).join(name).exists(), "{name}: {said:#?}");
            let line = notes
                .split("\",\"")
                .find(|n| n.contains(&format!("{name} is left out")));
            assert!(line.is_some_and(|l| l.contains(why)), "{name}: {why}: {notes}");
            assert!(said.err.contains(name), "{name}: {said:#?}");
        }
        assert_eq!(view["through_links"], serde_json::json!([]), "{view}");
    }
}

const BESIDE_ROLE: &str = "ppo/global_step_2/actor";

#[test]
fn nothing_outside_of_the_model_comes_into_a_converted_one_or_from_one_that_is_like_it() {
    let world = World::with_step();
    world.run(&["merge", "ppo", "--target", "model"]).is(0);
    plant(&world, "model");
    let said = world.run(&["convert", "hf-to-megatron", "model", "--target", "megatron", "--json"]);
    let said = said.is(0);
    assert!(holds(&world.path("megatron"), SECRET).is_empty(), "{said:#?}");
    let notes = said.json()["notes"].to_string();
    for (name, _) in LEFT_OUT {
        assert!(notes.contains(&format!("{name} is left out")), "{name}: {notes}");
    }
    let said = world
        .run(&["merge", "ppo", "--like", "model", "--target", "like", "--json"])
        .is(0);
    assert!(holds(&world.path("like"), SECRET).is_empty(), "{said:#?}");
    assert!(
        said.json()["notes"].to_string().contains("LICENSE is left out"),
        "{said:#?}"
    );
}

#[test]
fn a_configuration_that_leads_outside_is_refused_by_name() {
    let world = World::with_step();
    let config = world.path(BESIDE).join("config.json");
    let elsewhere = world.path("home/config.json");
    fs::create_dir(world.path("home")).unwrap();
    fs::rename(&config, &elsewhere).unwrap();
    symlink(&elsewhere, &config).unwrap();
    let said = world.run(&["merge", BESIDE_ROLE, "--target", "model"]).is(23);
    assert!(said.err.contains("config.json is a symbolic link to"), "{said:#?}");
    assert!(!world.path("model").exists());
    // The hint says what to do.
    fs::create_dir(world.path("base")).unwrap();
    fs::copy(&elsewhere, world.path("base/config.json")).unwrap();
    assert!(said.err.contains("--like DIR"), "{said:#?}");
    // And so is a directory of configurations.
    fs::rename(world.path(BESIDE), world.path("home/huggingface")).unwrap();
    symlink(world.path("home/huggingface"), world.path(BESIDE)).unwrap();
    let said = world.run(&["merge", BESIDE_ROLE, "--target", "model"]).is(23);
    assert!(said.err.contains("a symbolic link to a directory"), "{said:#?}");
    assert!(!world.path("model").exists());
}

#[test]
fn a_link_that_stays_inside_is_followed_and_listed_and_permissions_are_kept() {
    let world = World::with_step();
    let beside = world.path(BESIDE);
    let shared = world.write("ppo/shared/LICENSE", b"for all");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../../../shared/LICENSE", beside.join("LICENSE")).unwrap();
    fs::create_dir(beside.join("additional_chat_templates")).unwrap();
    symlink(&shared, beside.join("additional_chat_templates/tools.jinja")).unwrap();
    let private = beside.join("generation_config.json");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(beside.join("config.json"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = world.run(&["merge", "ppo", "--target", "model", "--json"]).is(0);
    let view = said.json();
    let listed: BTreeSet<(&str, &str)> = view["through_links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["file"].as_str().unwrap(), l["from"].as_str().unwrap()))
        .collect();
    let expected = [
        ("LICENSE", shared.as_str()),
        ("additional_chat_templates/tools.jinja", shared.as_str()),
    ];
    assert_eq!(listed, BTreeSet::from(expected), "{view}");
    for (name, mode) in [
        ("LICENSE", 0o640),
        ("generation_config.json", 0o600),
        ("config.json", 0o600),
        ("tokenizer.json", 0o644),
    ] {
        let made = fs::symlink_metadata(world.path("model").join(name)).unwrap();
        assert!(
            made.is_file() && made.mode() & 0o777 & !mode == 0,
            "{name}: {:o}",
            made.mode()
        );
    }
    let text = world.run(&["merge", "ppo", "--target", "again"]).is(0).out;
    assert!(text.contains("through a link: LICENSE -> "), "{text}");
    // Named by the role, the same link leads outside.
    let view = world
        .run(&["merge", BESIDE_ROLE, "--target", "role", "--json"])
        .is(0)
        .json();
    assert!(view["notes"].to_string().contains("LICENSE is left out"), "{view}");
    let megatron = ["convert", "hf-to-megatron", "model", "--target", "megatron"];
    world.run(&megatron).is(0);
    let made = fs::metadata(world.path("megatron/huggingface/generation_config.json")).unwrap();
    assert_eq!(made.mode() & 0o777, 0o600);
    let made = fs::metadata(world.path("megatron/huggingface/config.json")).unwrap();
    assert_eq!(made.mode() & 0o777, 0o600);
}

/// As huggingface_hub keeps a model: snapshots of links to blobs.
fn cached(world: &World, model: &str) -> Utf8PathBuf {
    let cache = world.path("hub").join(model);
    let snapshot = cache.join("snapshots/0123abcd");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(cache.join("blobs")).unwrap();
    for (n, entry) in world
        .path("model")
        .read_dir_utf8()
        .unwrap()
        .map(Result::unwrap)
        .enumerate()
    {
        let blob = format!("{n:040x}");
        fs::copy(entry.path(), cache.join("blobs").join(&blob)).unwrap();
        symlink(format!("../../blobs/{blob}"), snapshot.join(entry.file_name())).unwrap();
    }
    snapshot
}

#[test]
fn a_snapshot_of_a_cache_is_followed_to_its_own_blobs() {
    let world = World::with_step();
    let merge = ["merge", "ppo", "--target", "model", "--max-shard-size", "2KB"];
    world.run(&merge).is(0);
    let snapshot = cached(&world, "models--org--name");
    let megatron = [
        "convert",
        "hf-to-megatron",
        snapshot.as_str(),
        "--target",
        "megatron",
        "--json",
    ];
    let view = world.run(&megatron).is(0).json();
    let listed = view["through_links"].as_array().unwrap();
    let is_listed = |name: &str| {
        listed
            .iter()
            .any(|l| l["file"] == name && l["from"].as_str().unwrap().contains("/blobs/"))
    };
    assert!(is_listed("config.json") && is_listed("tokenizer.json"), "{view}");
    assert!(
        listed
            .iter()
            .any(|l| l["file"].as_str().unwrap().ends_with(".safetensors")),
        "{view}"
    );
    let like = [
        "merge",
        "ppo",
        "--like",
        snapshot.as_str(),
        "--target",
        "like",
        "--json",
    ];
    world.run(&like).is(0);
    world.run(&["compare", "like", "model"]).is(0);
    // The blobs of another model are not this one's.
    let other = cached(&world, "models--org--private");
    let theirs = fs::read_link(other.join("tokenizer.json")).unwrap();
    let theirs = theirs
        .to_str()
        .unwrap()
        .replace("../../", "../../../models--org--private/");
    fs::remove_file(snapshot.join("tokenizer.json")).unwrap();
    symlink(theirs, snapshot.join("tokenizer.json")).unwrap();
    let again = [
        "convert",
        "hf-to-megatron",
        snapshot.as_str(),
        "--target",
        "again",
        "--json",
    ];
    let view = world.run(&again).is(0).json();
    assert!(
        view["notes"].to_string().contains("tokenizer.json is left out"),
        "{view}"
    );
    assert!(!world.path("again/huggingface/tokenizer.json").exists());
}

#[test]
fn weights_come_through_a_link_only_from_where_the_user_pointed() {
    let world = World::with_step();
    world.run(&["merge", "ppo", "--target", "model"]).is(0);
    world
        .run(&["merge", "ppo", "--target", "home", "--dtype", "float32"])
        .is(0);
    let weights = world.path("model/model.safetensors");
    fs::remove_file(&weights).unwrap();
    symlink("../home/model.safetensors", &weights).unwrap();
    let convert = |target: &str| world.run(&["convert", "hf-to-megatron", "model", "--target", target]);
    let said = convert("megatron").is(23);
    assert!(
        said.err.contains("outside of") && said.err.contains("cp --remove-destination"),
        "{said:#?}"
    );
    assert!(!world.path("megatron").exists());
    fs::create_dir(world.path("model/parts")).unwrap();
    fs::copy(world.path("home/model.safetensors"), world.path("model/parts/0")).unwrap();
    fs::remove_file(&weights).unwrap();
    symlink("parts/0", &weights).unwrap();
    let said = convert("megatron").is(0);
    assert!(said.out.contains("through a link: model.safetensors -> "), "{said:#?}");
}

#[test]
fn a_reshard_keeps_the_permissions_of_what_it_copies() {
    let world = World::with_step();
    for name in ["huggingface/config.json", "fsdp_config.json"] {
        let path = world.path(BESIDE_ROLE).join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::create_dir(world.path("new")).unwrap();
    let reshard = ["reshard", "ppo", "--world-size", "1", "--target", "new/global_step_2"];
    world.run(&reshard).is(0);
    for name in ["huggingface/config.json", "fsdp_config.json"] {
        let made = fs::metadata(world.path("new/global_step_2/actor").join(name)).unwrap();
        assert_eq!(made.mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_tracker_that_is_a_link_tells_nothing_of_its_target_and_harms_no_run() {
    let world = World::with_step();
    world.write("home/id_rsa", SECRET.as_bytes());
    let tracker = world.path("ppo/latest_checkpointed_iteration.txt");
    let _ = fs::remove_file(&tracker);
    for (to, says) in [
        ("../home/id_rsa", "is a symbolic link, which is not followed"),
        ("no/such", "no tracker file"),
        ("/dev/zero", "is a symbolic link"),
        (".", "is a symbolic link"),
    ] {
        symlink(to, &tracker).unwrap();
        for json in [false, true] {
            let args = ["checkpoints", "ppo", "--json"];
            let said = world.run(&args[..if json { 3 } else { 2 }]).is(0);
            let all = format!("{}{}", said.out, said.err);
            assert!(!all.contains("PRIVATE") && !all.contains("BEGIN"), "{said:#?}");
            assert!(json || said.out.contains(says), "{to}: {said:#?}");
            assert!(said.out.contains("whole"), "{said:#?}");
        }
        fs::remove_file(&tracker).unwrap();
    }
    fs::create_dir(&tracker).unwrap();
    let said = world.run(&["checkpoints", "ppo"]).is(0);
    assert!(said.out.contains("the tracker file is a directory"), "{said:#?}");
}

#[test]
fn a_model_of_links_is_that_of_their_files() {
    let world = World::with_step();
    world.run(&["merge", "ppo", "--target", "plain"]).is(0);
    let shared = world.path("ppo/global_step_2/shared");
    copy_dir(&world.path(BESIDE), &shared);
    for entry in shared.read_dir_utf8().unwrap().map(Result::unwrap) {
        let link = world.path(BESIDE).join(entry.file_name());
        fs::remove_file(&link).unwrap();
        symlink(entry.path(), &link).unwrap();
    }
    let merge = ["merge", "ppo/global_step_2", "--target", "linked", "--json"];
    let view = world.run(&merge).is(0).json();
    assert_eq!(view["through_links"].as_array().unwrap().len(), 5, "{view}");
    let names = |dir: &str| {
        let all = contents(&world.path(dir)).into_iter();
        let all = all.map(|(name, bytes)| (Utf8Path::new(&name).file_name().unwrap().to_owned(), bytes));
        all.collect::<BTreeSet<_>>()
    };
    assert!(names("plain") == names("linked"));
}
