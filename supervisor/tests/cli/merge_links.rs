//! `supervise merge` of models that the trainer wrote itself, as verl's Megatron trainers do: proven, and linked.

use crate::world::{World, copy_fixture};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

/// Directory of the model in a step of each layout.
const LAYOUTS: [(&str, &str); 2] = [
    ("v1_hf", "global_step_1/actor/huggingface"),
    ("v2_hf", "global_step_2/actor/model/huggingface"),
];

/// A root of this layout, whose bridge wrote a model in bfloat16, in several files.
fn root(world: &World, layout: &str, dir: &str) -> Utf8PathBuf {
    if !world.path("trained").exists() {
        copy_fixture("verl_ppo_fsdp2_w2", &world.path("fsdp"));
        world
            .run(&["merge", "fsdp", "--target", "trained", "--max-shard-size", "2KB"])
            .tells(0, &["tensors"]);
    }
    copy_fixture(&format!("verl_megatron_{layout}"), &world.path(layout));
    let model = world.path(layout).join(dir);
    fs::remove_dir_all(&model).unwrap();
    copy(&world.path("trained"), &model);
    model
}

fn copy(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn names(dir: &Utf8Path) -> Vec<String> {
    let mut names: Vec<String> = dir
        .read_dir_utf8()
        .unwrap()
        .map(|e| e.unwrap().file_name().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn its_files_are_linked_where_nothing_about_them_has_to_change() {
    let world = World::new();
    for (layout, dir) in LAYOUTS {
        let model = root(&world, layout, dir);
        let target = format!("model-{layout}");
        let said = world.run(&["merge", layout, "--target", &target, "--json"]);
        said.tells(0, &[]);
        let view = said.json();
        let weights: Vec<String> = names(&model)
            .into_iter()
            .filter(|n| n.ends_with(".safetensors"))
            .collect();
        assert!(weights.len() > 2);
        assert_eq!(
            (&view["linked"], &view["bytes_written"]),
            (&weights.len().into(), &0.into()),
            "{view}"
        );
        let target = world.path(&target);
        assert_eq!(names(&target), names(&model));
        for name in names(&model) {
            assert_eq!(
                fs::read(target.join(&name)).unwrap(),
                fs::read(model.join(&name)).unwrap(),
                "{name}"
            );
        }
        // A file system that shares blocks gives each its own inode; others give the file a second name, which is said.
        let shared = fs::metadata(target.join(&weights[0])).unwrap().ino()
            == fs::metadata(model.join(&weights[0])).unwrap().ino();
        assert_eq!(view["notes"].to_string().contains("second name"), shared, "{view}");
        world
            .run(&["verify", target.as_str(), "--depth", "full"])
            .tells(0, &["whole"]);
        world.run(&["compare", layout, target.as_str()]).tells(0, &["equal"]);
    }
}

#[test]
fn its_files_are_written_anew_where_something_has_to_change_and_it_is_told_why() {
    let world = World::new();
    root(&world, LAYOUTS[1].0, LAYOUTS[1].1);
    let merge = |target: &str, options: &[&str]| {
        let said = world.run(&[&["merge", "v2_hf", "--target", target, "--json"], options].concat());
        said.tells(0, &[]);
        let view = said.json();
        assert_eq!(view["linked"], 0, "{view}");
        view["notes"].to_string()
    };
    let notes = merge("wide", &["--dtype", "float32"]);
    assert!(notes.contains("bfloat16, and float32 is asked for"), "{notes}");
    world
        .run(&["compare", "wide", "trained", "--as", "bfloat16"])
        .tells(0, &["equal"]);
    let notes = merge("many", &["--max-shard-size", "1KB"]);
    assert!(notes.contains("larger than --max-shard-size"), "{notes}");
    world.run(&["compare", "many", "trained"]).tells(0, &["equal"]);
    // Names are kept by files that are taken as they are.
    world
        .run(&[
            "merge",
            "v2_hf",
            "--target",
            "as-it-is",
            "--keep-names",
            "--dtype",
            "keep",
        ])
        .tells(0, &["files of the checkpoint linked"]);
}

/// A reader looks for `model.safetensors`, or for an index that tells where each tensor is.
#[test]
fn files_that_no_reader_would_find_are_written_anew() {
    let world = World::new();
    let model = root(&world, LAYOUTS[1].0, LAYOUTS[1].1);
    let merge = |target: &str, linked: bool| {
        let said = world.run(&["merge", "v2_hf/global_step_2/actor", "--target", target, "--json"]);
        said.tells(0, &[]);
        let view = said.json();
        assert_eq!(view["linked"] != 0, linked, "{view}");
        assert_eq!(view["notes"].to_string().contains("find them"), !linked, "{view}");
        assert!(world.path(target).join("model.safetensors").exists() || linked);
        world.run(&["compare", target, "trained"]).tells(0, &["equal"]);
    };
    let index = model.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::remove_file(&index).unwrap();
    merge("no-index", false);
    // One that forgot a tensor: its file holds it, and no reader would ask for it.
    let mut short: serde_json::Value = serde_json::from_str(&text).unwrap();
    short["weight_map"]
        .as_object_mut()
        .unwrap()
        .remove("model.norm.weight")
        .unwrap();
    fs::write(&index, short.to_string()).unwrap();
    merge("short-index", false);
    // One file by another name, and in a directory below.
    fs::remove_dir_all(&model).unwrap();
    world.run(&["merge", "fsdp", "--target", "one"]).tells(0, &["tensors"]);
    copy(&world.path("one"), &model);
    let below = "part/weights.safetensors";
    fs::create_dir(model.join("part")).unwrap();
    fs::rename(model.join("model.safetensors"), model.join(below)).unwrap();
    let mut moved: serde_json::Value = serde_json::from_str(&text).unwrap();
    for file in moved["weight_map"].as_object_mut().unwrap().values_mut() {
        *file = below.into();
    }
    fs::write(&index, moved.to_string()).unwrap();
    merge("below", false);
    let plain = "model-00001-of-00001.safetensors";
    fs::rename(model.join(below), model.join(plain)).unwrap();
    fs::write(&index, moved.to_string().replace(below, plain)).unwrap();
    merge("indexed", true);
    assert!(world.path("indexed/model.safetensors.index.json").exists());
}

#[test]
fn what_is_no_whole_model_is_refused_and_nothing_is_linked() {
    let world = World::new();
    let model = root(&world, LAYOUTS[1].0, LAYOUTS[1].1);
    let merge = || world.run(&["merge", "v2_hf/global_step_2/actor", "--target", "model"]);
    let refused = |code, parts: &[&str]| {
        merge().refuses(code, parts);
        assert!(!world.path("model").exists() && !world.path(".model.unfinished").exists());
    };
    let first = names(&model).into_iter().find(|n| n.ends_with(".safetensors")).unwrap();
    let first = model.join(first);
    let whole = fs::read(&first).unwrap();
    // A bridge that lost a part, as some did.
    fs::remove_file(&first).unwrap();
    refused(20, &[first.file_name().unwrap()]);
    fs::write(&first, &whole[..whole.len() - 2]).unwrap();
    refused(20, &[first.file_name().unwrap()]);
    fs::write(&first, [&whole[..], b"more"].concat()).unwrap();
    refused(21, &[first.file_name().unwrap()]);
    // Nothing is waited for, whatever stands there.
    fs::remove_file(&first).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&first).status().unwrap();
    assert!(made.success());
    refused(24, &[first.file_name().unwrap()]);
    fs::remove_file(&first).unwrap();
    fs::write(&first, &whole).unwrap();
    // A link is what it leads to, in the directory that is named.
    let elsewhere = world.path("elsewhere.safetensors");
    fs::rename(&first, &elsewhere).unwrap();
    symlink(&elsewhere, &first).unwrap();
    refused(23, &["outside of", "cp --remove-destination"]);
    let inside = world.path("v2_hf/global_step_2/actor/shared");
    fs::rename(&elsewhere, &inside).unwrap();
    fs::remove_file(&first).unwrap();
    symlink(&inside, &first).unwrap();
    merge().tells(0, &["linked", "through a link: "]);
    let made = world.path("model").join(first.file_name().unwrap());
    assert!(fs::symlink_metadata(&made).unwrap().is_file());
    assert_eq!(fs::read(&made).unwrap(), whole);
}

#[test]
fn on_another_file_system_they_are_copied() {
    let world = World::new();
    let model = root(&world, LAYOUTS[1].0, LAYOUTS[1].1);
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let dev = |path: &std::path::Path| fs::metadata(path).unwrap().dev();
    assert_ne!(dev(other.path()), dev(model.as_std_path()), "both are one file system");
    let target = Utf8PathBuf::from_path_buf(other.path().join("model")).unwrap();
    let said = world.run(&["merge", "v2_hf", "--target", target.as_str(), "--json"]);
    said.tells(0, &[]);
    let view = said.json();
    assert_eq!(view["linked"], 0, "{view}");
    let weights = names(&model).into_iter().filter(|n| n.ends_with(".safetensors"));
    let bytes: u64 = weights.map(|n| fs::metadata(model.join(n)).unwrap().len()).sum();
    assert_eq!(view["bytes_written"], bytes, "{view}");
    world.run(&["compare", "v2_hf", target.as_str()]).tells(0, &["equal"]);
}

/// The model as a critic that began as it: another head, one number for each token.
fn as_critic(from: &Utf8Path, to: &Utf8Path) {
    let bytes = fs::read(from).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (text, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).unwrap();
    let (mut table, mut out) = (serde_json::Map::new(), Vec::new());
    for (name, info) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let [a, b] = [0, 1].map(|n| info["data_offsets"][n].as_u64().unwrap() as usize);
        let mut put = |name: &str, shape: serde_json::Value, bytes: &[u8]| {
            let place = [out.len(), out.len() + bytes.len()];
            out.extend_from_slice(bytes);
            table.insert(
                name.to_owned(),
                serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": place}),
            );
        };
        match name.as_str() {
            "lm_head.weight" => {
                let width = info["shape"][1].as_u64().unwrap();
                put(
                    "score.weight",
                    serde_json::json!([1, width]),
                    &data[a..a + 2 * width as usize],
                );
                put("score.bias", serde_json::json!([1]), &[0, 0]);
            }
            _ => put(&name, info["shape"].clone(), &data[a..b]),
        }
    }
    let text = serde_json::to_vec(&table).unwrap();
    let bytes = [&(text.len() as u64).to_le_bytes()[..], &text, &out].concat();
    fs::write(to, bytes).unwrap();
}

#[test]
fn a_critic_has_another_head_than_the_model_that_it_began_as_and_nothing_else() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("fsdp"));
    world.run(&["merge", "fsdp", "--target", "base"]).tells(0, &["tensors"]);
    let model = root(&world, LAYOUTS[1].0, LAYOUTS[1].1);
    fs::remove_dir_all(&model).unwrap();
    copy(&world.path("base"), &model);
    as_critic(&world.path("base/model.safetensors"), &model.join("model.safetensors"));
    let said = world.run(&["merge", "v2_hf", "--target", "critic", "--like", "base", "--json"]);
    said.tells(0, &[]);
    let notes = said.json()["notes"].to_string();
    assert!(notes.contains("a critic that began as Qwen2ForCausalLM"), "{notes}");
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(world.path("critic/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "Qwen2ForTokenClassification");
    assert_eq!(config["id2label"], serde_json::json!({"0": "LABEL_0"}));
    // The same without the model that it began as, and with one that has other layers.
    world
        .run(&["merge", "v2_hf", "--target", "alone"])
        .tells(0, &["linked"]);
    let renamed = fs::read(world.path("base/model.safetensors")).unwrap();
    let at = renamed.windows(11).position(|w| w == b"mlp.up_proj").unwrap();
    let mut other = renamed;
    other[at + 4] = b'x';
    fs::write(world.path("base/model.safetensors"), other).unwrap();
    world
        .run(&["merge", "v2_hf", "--target", "never", "--like", "base"])
        .refuses(21, &["the tensors are not those of base: 2 differ", "mlp.xp_proj"]);
}
