//! `supervise compare` as a person uses it: the same model in two forms, and every way in which two can differ.

use crate::world::{World, copy_fixture};
use serde_json::Value;
use std::fs;

fn world() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world.run(&["merge", "ckpt", "--target", "bf16"]).tells(0, &[]);
    world
        .run(&[
            "merge",
            "ckpt",
            "--target",
            "fp32",
            "--dtype",
            "keep",
            "--max-shard-size",
            "2KB",
        ])
        .tells(0, &[]);
    world
}

/// A file of safetensors with these tensors of 32-bit floats.
fn weights(world: &World, name: &str, tensors: &[(&str, &[u64], &[f32])]) {
    let (mut table, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, numbers) in tensors {
        let from = data.len();
        data.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
        let info = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [from, data.len()]});
        table.insert((*name).to_owned(), info);
    }
    let text = Value::Object(table).to_string();
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    fs::write(world.path(name), bytes).unwrap();
}

#[test]
fn a_step_and_what_was_merged_from_it_are_the_same_model() {
    let world = world();
    for (a, b) in [("ckpt", "fp32"), ("fp32", "ckpt/global_step_2"), ("fp32", "fp32")] {
        world.run(&["compare", a, b]).tells(0, &["equal: 15 tensors"]);
    }
    world.run(&["compare", "ckpt", "bf16"]).tells(
        1,
        &[
            "different: 15 tensors; 15 tensors in both",
            "float32, and bfloat16 (--as TYPE casts both)",
        ],
    );
    world
        .run(&["compare", "ckpt", "bf16", "--as", "bfloat16"])
        .tells(0, &["equal"]);
    world
        .run(&["compare", "ckpt", "bf16", "--as", "float32"])
        .tells(1, &["differ, by"]);
    world
        .run(&["compare", "ckpt", "bf16", "--as", "float32", "--tolerance", "0.01"])
        .tells(0, &["equal"]);
    // As verl.model_merger test.
    world.run(&["merge", "ckpt", "--test", "bf16"]).tells(0, &["equal"]);
    world
        .run(&["merge", "ckpt", "--step", "1", "--test", "bf16"])
        .tells(1, &["different"]);
    world
        .run(&["merge", "bf16", "--target", "again"])
        .refuses(64, &["a merged model already"]);
    world.run(&["merge", "ckpt"]).refuses(64, &["--target"]);
}

#[test]
fn every_difference_is_named_with_its_place() {
    let world = World::new();
    let nan = f32::NAN;
    weights(
        &world,
        "a.safetensors",
        &[
            ("gone", &[1], &[1.0]),
            ("same", &[2], &[0.0, nan]),
            ("shape", &[2, 1], &[1.0, 2.0]),
            ("values", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ],
    );
    weights(
        &world,
        "b.safetensors",
        &[
            ("new", &[1], &[1.0]),
            ("same", &[2], &[-0.0, nan]),
            ("shape", &[1, 2], &[1.0, 2.0]),
            ("values", &[2, 3], &[1.0, 2.0, 3.0, 4.5, nan, 6.0]),
        ],
    );
    let said = world.run(&["compare", "a.safetensors", "b.safetensors", "--json"]);
    assert_eq!(said.code, 1, "{said:#?}");
    let view = said.json();
    assert_eq!(view["nan"], serde_json::json!([1, 2]));
    let of = |name: &str| {
        let all = view["differences"].as_array().unwrap();
        all.iter().find(|d| d["name"] == name).unwrap_or(&Value::Null).clone()
    };
    assert_eq!(of("gone")["what"], "only_in_first");
    assert_eq!(of("new")["what"], "only_in_second");
    assert_eq!(
        of("same"),
        Value::Null,
        "a zero is a zero, and what is no number is none in both"
    );
    assert_eq!(of("shape")["second"], serde_json::json!([1, 2]));
    let values = of("values");
    assert_eq!(
        (&values["different"], &values["of"], &values["first_at"]),
        (&2.into(), &6.into(), &serde_json::json!([1, 0])),
        "{values}"
    );
    assert_eq!(values["first_values"], serde_json::json!([4.0, 4.5]));
    // The difference to what is no number is not small.
    world
        .run(&["compare", "a.safetensors", "b.safetensors", "--tolerance", "1"])
        .tells(
            1,
            &[
                "values: 1 of 6 differ",
                "first at [1, 1]",
                "not a number: 1 in the first, 2 in the second",
            ],
        );
}

#[test]
fn what_cannot_be_compared_is_no_difference() {
    let world = world();
    let compare = |a: &str, b: &str| world.run(&["compare", a, b]);
    compare("ckpt", "nowhere").refuses(64, &["no such directory"]);
    compare("", "ckpt").refuses(64, &["argument 2 is empty"]);
    world.write("torn.safetensors", "torn");
    compare("bf16", "torn.safetensors").refuses(20, &["torn.safetensors"]);
    let first = fs::read_dir(world.path("fp32")).unwrap().map(|e| e.unwrap().path());
    let shard = first
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .max()
        .unwrap();
    fs::remove_file(shard).unwrap();
    compare("ckpt", "fp32").refuses(20, &["model-0000"]);
    world
        .run(&["compare", "ckpt", "bf16", "--tolerance", "much"])
        .refuses(64, &["0 or above"]);
}

#[test]
fn a_checkpoint_of_trainer_is_a_model_among_other_files() {
    let world = World::new();
    copy_fixture("hf_trainer_w2", &world.path("out"));
    let merge = |source: &str, target: &str| world.run(&["merge", source, "--target", target, "--dtype", "keep"]);
    merge("out", "newest").tells(0, &["from step 4 of out/checkpoint-4", "has no checksums"]);
    merge("out/checkpoint-2", "older").tells(0, &["from step 2 of"]);
    world
        .run(&["merge", "out", "--step", "2", "--target", "named"])
        .tells(0, &["from step 2 of"]);
    world
        .run(&["merge", "out/checkpoint-2", "--step", "4", "--target", "never"])
        .refuses(64, &["not step 4"]);
    // What only the trainer needs stays where it is.
    let names = fs::read_dir(world.path("newest")).unwrap();
    let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "generation_config.json", "model.safetensors"]);
    let bytes = |dir: &str| fs::read(world.path(dir).join("model.safetensors")).unwrap();
    assert!(bytes("older") == bytes("out/checkpoint-2"));
    world
        .run(&["compare", "out", "newest"])
        .tells(0, &["equal: 12 tensors"]);
    // Files are called by their own names.
    let (a, b) = ("older/model.safetensors", "newest/model.safetensors");
    world.run(&["compare", a, b]).tells(
        1,
        &[
            "different: 12 tensors; 12 tensors in both",
            &format!("first: {a}"),
            &format!("second: {b}"),
        ],
    );
    weights(&world, "other.safetensors", &[("x", &[1], &[1.0])]);
    world
        .run(&["compare", "other.safetensors", b])
        .tells(1, &["different: 13 tensors; no tensor is in both"]);
}

#[test]
fn a_prefix_and_a_configuration_say_what_the_tensors_are_called() {
    let world = world();
    copy_fixture("areal_sft_w2", &world.path("areal"));
    let trial = "areal/checkpoints/trainer/real/t0";
    let live = format!("{trial}/default/recover_checkpoint");
    world
        .run(&["compare", trial, &live, "--prefix", "dcp.model"])
        .tells(0, &["equal: 15 tensors"]);
    world
        .run(&["compare", trial, "ckpt", "--prefix", "critic"])
        .refuses(23, &["begins with critic."]);
    world
        .run(&["compare", "ckpt", "fp32", "--prefix", "model"])
        .refuses(64, &["--prefix", "neither"]);
    // Without its configuration a step's tensors are compared as they are called.
    fs::remove_dir_all(world.path("ckpt/global_step_2/actor/huggingface")).unwrap();
    for like in [&[][..], &["--like", "fp32"]] {
        let words = ["compare", "ckpt/global_step_2/actor", "fp32"];
        world.run(&[&words[..], like].concat()).tells(0, &["equal: 15 tensors"]);
    }
}

/// Under FSDP its checkpoint may hold the model as torch.distributed.checkpoint keeps it.
#[test]
fn a_checkpoint_of_trainer_under_fsdp_is_read_from_its_shards() {
    let world = World::new();
    copy_fixture("hf_trainer_w2/checkpoint-2", &world.path("out/checkpoint-2"));
    copy_fixture("areal_sft_w2", &world.path("areal"));
    let trial = "areal/checkpoints/trainer/real/t0/default";
    let step = world.path("out/checkpoint-2");
    fs::remove_file(step.join("model.safetensors")).unwrap();
    fs::rename(
        world.path(trial).join("recover_checkpoint"),
        step.join("pytorch_model_fsdp_0"),
    )
    .unwrap();
    let export = format!("{trial}/epoch0epochstep1globalstep1");
    fs::copy(world.path(&export).join("config.json"), step.join("config.json")).unwrap();
    world
        .run(&["merge", "out/checkpoint-2", "--target", "model", "--like", &export])
        .tells(0, &["model: 15 tensors", "from step 2 of out/checkpoint-2"]);
    world
        .run(&["compare", "out/checkpoint-2", "model", "--as", "bfloat16"])
        .tells(0, &["equal: 15 tensors"]);
}

/// peft's files in it: the model is elsewhere.
#[test]
fn a_checkpoint_of_trainer_with_an_adapter_is_folded_into_its_model() {
    let world = World::new();
    copy_fixture("hf_trainer_w2", &world.path("out"));
    let model = world.path("out/checkpoint-4");
    fs::create_dir(world.path("base")).unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(model.join(name), world.path("base").join(name)).unwrap();
    }
    fs::remove_file(model.join("model.safetensors")).unwrap();
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    let (a, b) = (format!("{module}.lora_A.weight"), format!("{module}.lora_B.weight"));
    let ones = [1.0; 4];
    weights(
        &world,
        "out/checkpoint-4/adapter_model.safetensors",
        &[(&a, &[1, 4], &ones), (&b, &[4, 1], &ones)],
    );
    let settings = r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 2}"#;
    world.write("out/checkpoint-4/adapter_config.json", settings);
    for source in ["out", "out/checkpoint-4"] {
        world
            .run(&["merge", source, "--target", "never"])
            .refuses(64, &["holds an adapter alone", "--fold-lora DIR"]);
    }
    for (source, target) in [("out", "newest"), ("out/checkpoint-4", "named")] {
        world
            .run(&[
                "merge",
                source,
                "--fold-lora",
                "base",
                "--target",
                target,
                "--dtype",
                "keep",
            ])
            .tells(0, &[&format!("{target}: 12 tensors"), "step 4"]);
        // Two is added to each number of one tensor.
        world.run(&["compare", "base", target]).tells(
            1,
            &["different: 1 tensor;", "self_attn.q_proj.weight: 16 of 16 differ, by 2"],
        );
        assert!(!world.path(target).join("adapter_config.json").exists());
    }
    world
        .run(&["merge", "out", "--fold-lora", "out/checkpoint-4", "--target", "never"])
        .refuses(64, &["--fold-lora out/checkpoint-4"]);
    let folds = |base: &str| world.run(&["merge", "out", "--fold-lora", base, "--target", "never"]);
    folds("base/model.safetensors").refuses(
        64,
        &[
            "--fold-lora base/model.safetensors: it is a file",
            "directory of the model: base",
        ],
    );
    // A base that the adapter was not trained for is told, and one that is no whole model is refused.
    let settings = r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 2, "base_model_name_or_path": "Qwen/Qwen3-8B"}"#;
    world.write("out/checkpoint-4/adapter_config.json", settings);
    world
        .run(&["merge", "out", "--fold-lora", "base", "--target", "told", "--json"])
        .tells(
            0,
            &["the adapter says that it was trained for Qwen/Qwen3-8B, and was added to base"],
        );
    let named = settings.replace("Qwen/Qwen3-8B", world.path("base").as_str());
    world.write("out/checkpoint-4/adapter_config.json", &named);
    let quiet = world.run(&["merge", "out", "--fold-lora", "base", "--target", "quiet", "--json"]);
    assert!(!quiet.json()["notes"].to_string().contains("trained for"), "{quiet:?}");
    without(&world, "base/model.safetensors", "model.norm.weight");
    folds("base").refuses(21, &["the norm behind the last layer", "model.norm.weight"]);
    for dir in ["base", "out/checkpoint-4"] {
        fs::remove_file(world.path(dir).join("config.json")).unwrap();
    }
    folds("base").refuses(20, &["--fold-lora base: config.json is missing there"]);
}

/// Gives a tensor of a file of safetensors a name that no model has.
fn without(world: &World, path: &str, name: &str) {
    let path = world.path(path);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
    let other = "x".repeat(name.len());
    fs::write(
        &path,
        [&bytes[..at], other.as_bytes(), &bytes[at + name.len()..]].concat(),
    )
    .unwrap();
}

#[test]
fn what_like_names_has_to_be_of_use() {
    let world = World::new();
    copy_fixture("hf_trainer_w2", &world.path("out"));
    let model = "out/checkpoint-4";
    world
        .run(&["compare", model, model, "--like", "nothing"])
        .refuses(64, &["--like nothing: there is no config.json of a model in it"]);
    world
        .run(&["compare", model, model, "--like", model])
        .refuses(64, &["both have the names of a merged model already"]);
}
