//! Megatron's two writers, with what is to be saved: what verl refuses, and what it writes.

use crate::bench::Bench;
use serde_json::json;

/// Megatron with these writers and contents beside optimizer and the rest.
fn with(bridge: bool, dist: bool, weights: &[&str]) -> Bench {
    let mut contents = vec!["optimizer", "extra"];
    contents.extend(weights);
    let mut bench = Bench::megatron();
    bench
        .actor("megatron.use_mbridge", json!(bridge))
        .actor("megatron.use_dist_checkpointing", json!(dist))
        .actor("checkpoint.save_contents", json!(contents));
    bench
}

const SAVE: &str = "checkpoint.save_contents";
const LOAD: &str = "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']";

/// [combination.bridge_model] Bridge, `model`: a tree in Hugging Face's format is the model | Accepted; its index and every part are proven, and it is loaded as `model`
#[test]
fn bridge_model() {
    with(true, false, &["model"]).plan().starts_afresh();
    let bench = with(true, false, &["model"]).with("verl_megatron_v2_hf");
    bench.plan().starts_at(2).passes(LOAD);
    bench.lose(2, "actor/model/huggingface/model-00002-of-00002.safetensors");
    bench.plan().refuses(4, &[]);
}

/// [combination.bridge_hf] Bridge, only `hf_model`: the same tree under two names | Accepted; a resume asks for `hf_model`, which is that tree
#[test]
fn bridge_hf() {
    let bench = with(true, false, &["hf_model"]).with("verl_megatron_v2_hf");
    bench.plan().starts_at(2).passes(&LOAD.replace("'model'", "'hf_model'"));
}

/// [combination.bridge_both] Bridge, both: one tree, both names | Accepted
#[test]
fn bridge_both() {
    let bench = with(true, false, &["model", "hf_model"]).with("verl_megatron_v2_hf");
    bench.plan().starts_at(2).passes(LOAD);
}

/// [combination.shards_model] No bridge, Megatron's own shards, `model`: no configuration of Hugging Face is written | Accepted; the shards are proven range by range
#[test]
fn shards_model() {
    let bench = with(false, true, &["model"]).with("verl_megatron_v2_tp2");
    bench.plan().starts_at(2).passes(LOAD);
    bench.cut(2, "actor/model/dist_ckpt/__1_0.distcp");
    bench.plan().starts_at(1);
}

/// [combination.shards_hf] No bridge, `hf_model`: verl raises while it starts | Refused with 78 before a GPU is touched
#[test]
fn shards_hf() {
    with(false, true, &["hf_model"])
        .plan()
        .refuses(78, &[SAVE, "use_mbridge=True"]);
    with(false, true, &["model", "hf_model"])
        .plan()
        .refuses(78, &[SAVE, "use_mbridge=True"]);
}

/// [combination.neither] Neither writer, `model`: verl raises while it starts | Refused with 78
#[test]
fn neither() {
    with(false, false, &["model"])
        .plan()
        .refuses(78, &["use_mbridge", "use_dist_checkpointing"]);
}

/// [combination.both_model] Both writers, `model`: shards only | Accepted; a step with only a tree of Hugging Face's does not fit
#[test]
fn both_model() {
    with(true, true, &["model"])
        .with("verl_megatron_v2_tp2")
        .plan()
        .starts_at(2);
    let bench = with(true, true, &["model"]).with("verl_megatron_v2_hf");
    bench
        .plan()
        .refuses(3, &["use_dist_checkpointing=False"])
        .moves_nothing();
}

/// [combination.both_both] Both writers, both contents: shards are the model, the tree an export | Accepted
#[test]
fn both_both() {
    with(true, true, &["model", "hf_model"]).plan().starts_afresh();
}

/// [combination.both_hf] Both writers, only `hf_model`: a tree | Accepted; a resume loads the tree by its own name
#[test]
fn both_hf() {
    with(true, true, &["hf_model"]).plan().starts_afresh();
}

/// [combination.adapters] Bridge and adapters: shards of the adapters beside an export of them; without Megatron-Bridge verl raises | Accepted with the bridge, refused with 78 without it
#[test]
fn adapters() {
    let mut bench = with(true, false, &["model"]);
    bench.set("actor_rollout_ref.model.lora.rank", json!(8));
    bench.plan().starts_afresh();
    bench.actor("megatron.vanilla_mbridge", json!(true));
    bench.plan().refuses(78, &["lora.rank", "vanilla_mbridge=False"]);
    let mut bench = with(false, true, &["model"]);
    bench.set("actor_rollout_ref.model.lora.rank", json!(8));
    bench.plan().refuses(78, &["lora.rank"]);
}

/// [combination.no_weights] Neither `model` nor `hf_model`: no weights are saved | Refused with 78: there would be nothing to resume from
#[test]
fn no_weights() {
    with(true, false, &[])
        .plan()
        .refuses(78, &[SAVE, "no weights are saved"]);
}
