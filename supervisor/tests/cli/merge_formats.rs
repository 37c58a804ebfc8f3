//! `supervise merge` of checkpoints that are not verl's FSDP shards: areal's, Megatron's, torch's own.

use crate::world::{World, copy_fixture};
use camino::Utf8Path;
use std::fs;

const TRIAL: &str = "checkpoints/trainer/real/t0";

fn areal() -> World {
    let world = World::new();
    copy_fixture("areal_sft_w2", &world.path("."));
    world
}

#[test]
fn the_checkpoint_that_areal_goes_on_from_becomes_a_model() {
    let world = areal();
    let said = world.run(&["merge", TRIAL, "--target", "model", "--dtype", "keep", "--json"]);
    said.tells(0, &[]);
    let view = said.json();
    assert_eq!((&view["step"], &view["role"]), (&3.into(), &"default".into()), "{view}");
    assert!(view["notes"].to_string().contains("optim (45)"), "{view}");
    // Configuration and tokenizer are those of the export beside it, and so are names and shapes.
    let export = format!("{TRIAL}/default/epoch0epochstep1globalstep1");
    let names = |dir: &str| -> Vec<_> {
        let mut names: Vec<_> = fs::read_dir(world.path(dir))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("model"), names(&export));
    world.run(&["verify", "model", "--depth", "full"]).tells(0, &["whole"]);
    world
        .run(&["merge", TRIAL, "--target", "like", "--like", &export])
        .tells(0, &["like: 15 tensors"]);
    // The checkpoint itself, by its own name, is the same model.
    let live = format!("{TRIAL}/default/recover_checkpoint");
    world.run(&["compare", &live, "model"]).tells(0, &["equal: 15 tensors"]);
    world.run(&["compare", TRIAL, &export]).tells(1, &["different"]);
    // Without an export nothing tells what the model is.
    fs::remove_dir_all(world.path(&export)).unwrap();
    world
        .run(&["merge", &live, "--target", "other"])
        .refuses(20, &["config.json is missing", "--like DIR"]);
    world
        .run(&["merge", &live, "--target", "other", "--like", "model"])
        .tells(0, &["other: 15 tensors"]);
}

/// Newer builds of areal: what stands in place is not what is gone on from.
#[test]
fn of_areals_generations_the_one_that_its_pointer_names_is_read() {
    let world = areal();
    let root = world.path(TRIAL);
    let generation = root.join("checkpoint_generations/generation_step00000002");
    fs::create_dir_all(generation.join("payloads")).unwrap();
    fs::rename(root.join("recover_info"), generation.join("manifest")).unwrap();
    fs::rename(
        root.join("default/recover_checkpoint"),
        generation.join("payloads/default"),
    )
    .unwrap();
    let pointer =
        r#"{"engines": ["default"], "format_version": 1, "generation": "generation_step00000002", "global_step": 2}"#;
    fs::write(root.join("LATEST"), pointer).unwrap();
    fs::create_dir(root.join("default/recover_checkpoint")).unwrap();
    fs::write(root.join("default/recover_checkpoint/.metadata"), "of an older build").unwrap();
    let said = world.run(&["merge", TRIAL, "--target", "model", "--json"]);
    said.tells(0, &[]);
    let view = said.json();
    assert_eq!((&view["step"], &view["role"]), (&3.into(), &"default".into()), "{view}");
    assert!(
        view["source"].as_str().is_some_and(|s| s.ends_with("payloads/default")),
        "{view}"
    );
    assert!(world.path("model/tokenizer.json").exists());
}

#[test]
fn a_prefix_chooses_and_one_that_is_nowhere_is_refused() {
    let world = areal();
    let merge = |prefix: &str| world.run(&["merge", TRIAL, "--target", "model", "--prefix", prefix]);
    merge("critic").refuses(23, &["begins with critic.", "there are dcp", "--prefix NAME"]);
    // Names that are no model's of this kind.
    merge("dcp").refuses(21, &["no tensor is of layer 0"]);
    merge("dcp.model").tells(0, &["15 tensors"]);
    copy_fixture("verl_sft_fsdp2_w2", &world.path("sft"));
    world
        .run(&["merge", "sft", "--target", "other", "--prefix", "model"])
        .refuses(64, &["--prefix", "no checkpoint of torch.distributed.checkpoint"]);
}

#[test]
fn what_is_cut_or_changed_is_told_and_nothing_is_written() {
    let world = areal();
    let part = world.path(&format!("{TRIAL}/default/recover_checkpoint/__1_0.distcp"));
    let whole = fs::read(&part).unwrap();
    let merge = |words: &[&str], code| {
        let said = world.run(&["merge", &format!("{TRIAL}/default"), "--target", "model"]);
        said.refuses(code, words);
        assert!(!world.path("model").exists());
    };
    fs::write(&part, &whole[..whole.len() - 9]).unwrap();
    merge(&["__1_0.distcp", "cut off"], 20);
    fs::remove_file(&part).unwrap();
    merge(&["__1_0.distcp"], 20);
    fs::write(&part, &whole).unwrap();
    fs::remove_file(part.with_file_name(".metadata")).unwrap();
    world
        .run(&[
            "merge",
            &format!("{TRIAL}/default/recover_checkpoint"),
            "--target",
            "model",
        ])
        .refuses(4, &["no step in it is proven"]);
}

#[test]
fn megatrons_are_read_by_tables_or_refused_by_name() {
    let world = World::new();
    copy_fixture("verl_megatron_v2_tp2", &world.path("v2"));
    copy_fixture("verl_megatron_v1_tp2", &world.path("v1"));
    // A model of megatron-core's own making, with learned positions and biases: no architecture of the tables.
    world.run(&["merge", "v1", "--target", "model"]).refuses(
        23,
        &["no table says what it is in a model of the type qwen2", "--keep-names"],
    );
    world
        .run(&["merge", "v2", "--target", "model"])
        .refuses(20, &["actor/model/huggingface/config.json is missing", "--like DIR"]);
    world
        .run(&["merge", "v1", "--target", "model", "--keep-names", "--dtype", "keep"])
        .tells(0, &["tensors"]);
    world.run(&["compare", "v1", "model"]).tells(0, &["equal"]);
    world
        .run(&["compare", "v2/global_step_1", "v2/global_step_2"])
        .tells(1, &["different"]);
}

/// FSDP2 over tensor parallelism, and sums that were never added up: laid one behind the other they would be another model.
#[test]
fn parts_that_do_not_lie_one_behind_the_other_are_refused_by_name() {
    let world = World::new();
    copy_fixture("torch_placements", &world.path("roles"));
    for (role, word) in [
        (
            "strided",
            "cut in more than one dimension of the mesh (_StridedShard(0), Shard(0))",
        ),
        (
            "strided-alone",
            "spread as _StridedShard(0), which is not put together here",
        ),
        ("partial", "spread as Partial, which is not put together here"),
    ] {
        let role = format!("roles/{role}");
        let words = [word, "model.embed_tokens.weight"];
        world
            .run(&["merge", &role, "--target", "model", "--keep-names"])
            .refuses(23, &words);
        world.run(&["compare", &role, &role]).refuses(23, &words);
        assert!(!world.path("model").exists());
        let step = format!("{role}-root/global_step_1");
        copy(&world.path(&role), &world.path(&step));
        world
            .run(&["reshard", &step, "--world-size", "2", "--target", "smaller"])
            .refuses(
                23,
                &[
                    "model.embed_tokens.weight",
                    word.split(['(', ',']).next().unwrap_or_default(),
                ],
            );
        assert!(!world.path("smaller").exists());
    }
}

fn copy(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
