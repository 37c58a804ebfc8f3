//! `supervise convert` as a person uses it: a model for Megatron, and what is refused.

use crate::world::{World, copy_fixture};
use std::fs;

/// A model of Hugging Face's libraries, of the type qwen2.
fn world() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world
        .run(&["merge", "ckpt", "--target", "model", "--dtype", "keep"])
        .tells(0, &[]);
    world
}

#[test]
fn a_model_for_megatron_is_whole_and_merged_it_is_the_model_again() {
    let world = world();
    let said = world.run(&["convert", "hf-to-megatron", "model", "--target", "megatron", "--json"]);
    said.tells(0, &[]);
    let view = said.json();
    assert_eq!(view["keys"], "stacked", "{view}");
    for name in [
        ".metadata",
        "common.pt",
        "metadata.json",
        "__0_0.distcp",
        "huggingface/config.json",
        "huggingface/tokenizer.json",
    ] {
        assert!(world.path("megatron").join(name).is_file(), "{name}");
        assert!(
            view["files"].as_array().unwrap().contains(&name.into()),
            "{name}: {view}"
        );
    }
    world
        .run(&["verify", "megatron", "--depth", "full"])
        .tells(0, &["whole"]);
    // Small pieces and other names hold the same.
    for keys in ["layers", "single"] {
        let target = format!("in-{keys}");
        world
            .run(&[
                "convert",
                "hf-to-megatron",
                "model",
                "--target",
                &target,
                "--keys",
                keys,
                "--chunk-size",
                "100B",
            ])
            .tells(0, &[keys, "from model"]);
        world
            .run(&["compare", "model", &target])
            .tells(0, &["equal: 15 tensors"]);
    }
    world
        .run(&["merge", "megatron", "--target", "back", "--dtype", "keep"])
        .tells(0, &[]);
    let file = |dir: &str| fs::read(world.path(dir).join("model.safetensors")).unwrap();
    assert!(file("model") == file("back"));
    // In another type, and configured so.
    world
        .run(&[
            "convert",
            "hf-to-megatron",
            "model",
            "--target",
            "half",
            "--dtype",
            "bfloat16",
        ])
        .tells(0, &[]);
    let config = fs::read_to_string(world.path("half/huggingface/config.json")).unwrap();
    assert!(config.contains("bfloat16"), "{config}");
    world
        .run(&["compare", "model", "half", "--as", "bfloat16"])
        .tells(0, &["equal"]);
}

#[test]
fn what_megatron_has_no_name_for_is_named() {
    let world = world();
    let convert = |source: &str, target: &str| world.run(&["convert", "hf-to-megatron", source, "--target", target]);
    convert("ckpt", "never").refuses(64, &["there is no model in it", "supervise merge"]);
    convert("model", "model/inside").refuses(64, &["inside of the checkpoint"]);
    let config = fs::read_to_string(world.path("model/config.json")).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(config.contains(from), "{config}");
        world.write("model/config.json", &config.replacen(from, to, 1));
        convert("model", "never")
    };
    changed("\"qwen2\"", "\"gemma\"").refuses(
        23,
        &["no table of Megatron's names for the model type gemma", "qwen3_moe"],
    );
    changed("\"Qwen2ForCausalLM\"", "\"Qwen2ForTokenClassification\"").refuses(23, &["Qwen2ForTokenClassification"]);
    changed("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 0").refuses(23, &["model.layers.0.", "no table says"]);
    changed("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 9999999").refuses(23, &["more layers and experts"]);
    changed("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2").refuses(20, &["model.layers.1.", "is missing"]);
    changed("\"model_type\"", "\"quantization_config\": {}, \"model_type\"").refuses(23, &["quantised"]);
    world.write("model/config.json", &config);
    fs::create_dir(world.path("model/lora_adapter")).unwrap();
    fs::copy(
        world.path("model/model.safetensors"),
        world.path("model/lora_adapter/adapter_model.safetensors"),
    )
    .unwrap();
    convert("model", "never").refuses(
        64,
        &[
            "lora_adapter/adapter_model.safetensors",
            "Megatron has no name for that",
        ],
    );
    fs::remove_dir_all(world.path("model/lora_adapter")).unwrap();
    fs::remove_file(world.path("model/config.json")).unwrap();
    convert("model", "never").refuses(20, &["config.json is missing"]);
    assert!(!world.path("never").exists());
}
