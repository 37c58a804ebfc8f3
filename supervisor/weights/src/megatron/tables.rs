//! Maps each of Megatron's tensors to Hugging Face's, one table per architecture.
//!
//! Source: megatron-core 0.16 (`mlp.py`, `moe/experts.py`, `multi_latent_attention.py`, `multi_token_prediction.py`), transformers 5.9
//! `models/*/modeling_*.py`, verl 0.9 `model_merger/megatron_model_merger.py`. Keys are listed without their layer and expert.

use super::sizes::{ModelDim, ModelSizes};
use ModelDim::{
    ExpertFeed, Experts, Feed, Head, Hidden, KeyRank, KeyRankRotated, LatentKeysValues, LatentQueries, LatentValues,
    One, Queries, QueryRank, SharedFeed, TwoHidden,
};

/// How a tensor is split along its first dimension, not counting those of layers and experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowSplit {
    /// One tensor of this many rows.
    One(ModelDim),
    /// Groups of heads: the group's queries, its key, its value.
    Qkv,
    /// Two tensors of this many rows, concatenated.
    Pair(ModelDim),
    /// The vocabulary, padded to a size that the ranks divide.
    Vocabulary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleCondition {
    Always,
    Dense,
    Sparse,
    /// The layer has experts, including shared ones that see every token.
    Shared,
    QkvBias,
    OutputBias,
    /// Queries have a rank of their own.
    QueryRanked,
    QueryWhole,
    /// The output has weights of its own.
    Untied,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TensorRule {
    pub(super) key: &'static str,
    pub(super) to: &'static [&'static str],
    pub(super) rows: RowSplit,
    /// Dimensions after the first.
    pub(super) columns: &'static [ModelDim],
    pub(super) when: RuleCondition,
    /// Whether there is one per expert; `{e}` in the names is its number.
    pub(super) experts: bool,
}

const fn row(
    key: &'static str,
    to: &'static [&'static str],
    rows: RowSplit,
    columns: &'static [ModelDim],
    when: RuleCondition,
) -> TensorRule {
    TensorRule {
        key,
        to,
        rows,
        columns,
        when,
        experts: false,
    }
}

const fn of_experts(
    key: &'static str,
    to: &'static [&'static str],
    rows: RowSplit,
    columns: &'static [ModelDim],
) -> TensorRule {
    TensorRule {
        experts: true,
        ..row(key, to, rows, columns, RuleCondition::Sparse)
    }
}

/// The tensors outside of layers.
pub(super) const TOP: [TensorRule; 3] = [
    row(
        "embedding.word_embeddings.weight",
        &["model.embed_tokens.weight"],
        RowSplit::Vocabulary,
        &[Hidden],
        RuleCondition::Always,
    ),
    row(
        "decoder.final_layernorm.weight",
        &["model.norm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
    row(
        "output_layer.weight",
        &["lm_head.weight"],
        RowSplit::Vocabulary,
        &[Hidden],
        RuleCondition::Untied,
    ),
];

const ATTENTION: &[TensorRule] = &[
    row(
        "self_attention.linear_qkv.weight",
        &[
            "self_attn.q_proj.weight",
            "self_attn.k_proj.weight",
            "self_attn.v_proj.weight",
        ],
        RowSplit::Qkv,
        &[Hidden],
        RuleCondition::Always,
    ),
    row(
        "self_attention.linear_qkv.bias",
        &[
            "self_attn.q_proj.bias",
            "self_attn.k_proj.bias",
            "self_attn.v_proj.bias",
        ],
        RowSplit::Qkv,
        &[],
        RuleCondition::QkvBias,
    ),
    row(
        "self_attention.linear_proj.weight",
        &["self_attn.o_proj.weight"],
        RowSplit::One(Hidden),
        &[Queries],
        RuleCondition::Always,
    ),
    row(
        "self_attention.linear_proj.bias",
        &["self_attn.o_proj.bias"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::OutputBias,
    ),
    // Transformer Engine makes the norm before a linear layer part of it, and everyone uses that name.
    row(
        "self_attention.linear_qkv.layer_norm_weight",
        &["input_layernorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
];

const HEAD_NORMS: &[TensorRule] = &[
    row(
        "self_attention.q_layernorm.weight",
        &["self_attn.q_norm.weight"],
        RowSplit::One(Head),
        &[],
        RuleCondition::Always,
    ),
    row(
        "self_attention.k_layernorm.weight",
        &["self_attn.k_norm.weight"],
        RowSplit::One(Head),
        &[],
        RuleCondition::Always,
    ),
];

const LATENT_ATTENTION: &[TensorRule] = &[
    row(
        "self_attention.linear_q_proj.weight",
        &["self_attn.q_proj.weight"],
        RowSplit::One(LatentQueries),
        &[Hidden],
        RuleCondition::QueryWhole,
    ),
    row(
        "self_attention.linear_q_down_proj.weight",
        &["self_attn.q_a_proj.weight"],
        RowSplit::One(QueryRank),
        &[Hidden],
        RuleCondition::QueryRanked,
    ),
    row(
        "self_attention.linear_q_up_proj.weight",
        &["self_attn.q_b_proj.weight"],
        RowSplit::One(LatentQueries),
        &[QueryRank],
        RuleCondition::QueryRanked,
    ),
    row(
        "self_attention.linear_q_up_proj.layer_norm_weight",
        &["self_attn.q_a_layernorm.weight"],
        RowSplit::One(QueryRank),
        &[],
        RuleCondition::QueryRanked,
    ),
    row(
        "self_attention.q_layernorm.weight",
        &["self_attn.q_a_layernorm.weight"],
        RowSplit::One(QueryRank),
        &[],
        RuleCondition::QueryRanked,
    ),
    row(
        "self_attention.linear_kv_down_proj.weight",
        &["self_attn.kv_a_proj_with_mqa.weight"],
        RowSplit::One(KeyRankRotated),
        &[Hidden],
        RuleCondition::Always,
    ),
    row(
        "self_attention.linear_kv_up_proj.weight",
        &["self_attn.kv_b_proj.weight"],
        RowSplit::One(LatentKeysValues),
        &[KeyRank],
        RuleCondition::Always,
    ),
    row(
        "self_attention.linear_kv_up_proj.layer_norm_weight",
        &["self_attn.kv_a_layernorm.weight"],
        RowSplit::One(KeyRank),
        &[],
        RuleCondition::Always,
    ),
    row(
        "self_attention.kv_layernorm.weight",
        &["self_attn.kv_a_layernorm.weight"],
        RowSplit::One(KeyRank),
        &[],
        RuleCondition::Always,
    ),
    row(
        "self_attention.linear_proj.weight",
        &["self_attn.o_proj.weight"],
        RowSplit::One(Hidden),
        &[LatentValues],
        RuleCondition::Always,
    ),
];

const NORMS: &[TensorRule] = &[
    row(
        "input_layernorm.weight",
        &["input_layernorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
    row(
        "pre_mlp_layernorm.weight",
        &["post_attention_layernorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
    row(
        "mlp.linear_fc1.layer_norm_weight",
        &["post_attention_layernorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
];

const DENSE: &[TensorRule] = &[
    row(
        "mlp.linear_fc1.weight",
        &["mlp.gate_proj.weight", "mlp.up_proj.weight"],
        RowSplit::Pair(Feed),
        &[Hidden],
        RuleCondition::Dense,
    ),
    row(
        "mlp.linear_fc2.weight",
        &["mlp.down_proj.weight"],
        RowSplit::One(Hidden),
        &[Feed],
        RuleCondition::Dense,
    ),
];

const EXPERTS: &[TensorRule] = &[
    row(
        "mlp.router.weight",
        &["mlp.gate.weight"],
        RowSplit::One(Experts),
        &[Hidden],
        RuleCondition::Sparse,
    ),
    of_experts(
        "mlp.experts.experts.linear_fc1.weight",
        &["mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"],
        RowSplit::Pair(ExpertFeed),
        &[Hidden],
    ),
    of_experts(
        "mlp.experts.experts.linear_fc2.weight",
        &["mlp.experts.{e}.down_proj.weight"],
        RowSplit::One(Hidden),
        &[ExpertFeed],
    ),
];

const MIXTRAL: &[TensorRule] = &[
    row(
        "mlp.router.weight",
        &["block_sparse_moe.gate.weight"],
        RowSplit::One(Experts),
        &[Hidden],
        RuleCondition::Sparse,
    ),
    of_experts(
        "mlp.experts.experts.linear_fc1.weight",
        &[
            "block_sparse_moe.experts.{e}.w1.weight",
            "block_sparse_moe.experts.{e}.w3.weight",
        ],
        RowSplit::Pair(ExpertFeed),
        &[Hidden],
    ),
    of_experts(
        "mlp.experts.experts.linear_fc2.weight",
        &["block_sparse_moe.experts.{e}.w2.weight"],
        RowSplit::One(Hidden),
        &[ExpertFeed],
    ),
];

const QWEN_SHARED: &[TensorRule] = &[
    row(
        "mlp.shared_experts.linear_fc1.weight",
        &["mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"],
        RowSplit::Pair(SharedFeed),
        &[Hidden],
        RuleCondition::Sparse,
    ),
    row(
        "mlp.shared_experts.linear_fc2.weight",
        &["mlp.shared_expert.down_proj.weight"],
        RowSplit::One(Hidden),
        &[SharedFeed],
        RuleCondition::Sparse,
    ),
    row(
        "mlp.shared_experts.gate_weight",
        &["mlp.shared_expert_gate.weight"],
        RowSplit::One(One),
        &[Hidden],
        RuleCondition::Sparse,
    ),
];

const DEEPSEEK_SHARED: &[TensorRule] = &[
    row(
        "mlp.router.expert_bias",
        &["mlp.gate.e_score_correction_bias"],
        RowSplit::One(Experts),
        &[],
        RuleCondition::Sparse,
    ),
    row(
        "mlp.shared_experts.linear_fc1.weight",
        &[
            "mlp.shared_experts.gate_proj.weight",
            "mlp.shared_experts.up_proj.weight",
        ],
        RowSplit::Pair(SharedFeed),
        &[Hidden],
        RuleCondition::Shared,
    ),
    row(
        "mlp.shared_experts.linear_fc2.weight",
        &["mlp.shared_experts.down_proj.weight"],
        RowSplit::One(Hidden),
        &[SharedFeed],
        RuleCondition::Shared,
    ),
];

/// Tensors of a layer that predicts one more token, around the model's own kind of layer.
pub(super) const PREDICTION: [TensorRule; 4] = [
    row(
        "enorm.weight",
        &["enorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
    row(
        "hnorm.weight",
        &["hnorm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
    row(
        "eh_proj.weight",
        &["eh_proj.weight"],
        RowSplit::One(Hidden),
        &[TwoHidden],
        RuleCondition::Always,
    ),
    row(
        "final_layernorm.weight",
        &["shared_head.norm.weight"],
        RowSplit::One(Hidden),
        &[],
        RuleCondition::Always,
    ),
];

/// The tables of a model's layers; `None` for an unknown model type.
pub(super) fn layers(kind: &str) -> Option<&'static [&'static [TensorRule]]> {
    Some(match kind {
        "llama" | "mistral" | "qwen2" => &[ATTENTION, NORMS, DENSE],
        "qwen3" => &[ATTENTION, HEAD_NORMS, NORMS, DENSE],
        "mixtral" => &[ATTENTION, NORMS, MIXTRAL],
        "qwen2_moe" => &[ATTENTION, NORMS, DENSE, EXPERTS, QWEN_SHARED],
        "qwen3_moe" => &[ATTENTION, HEAD_NORMS, NORMS, DENSE, EXPERTS],
        "deepseek_v3" => &[LATENT_ATTENTION, NORMS, DENSE, EXPERTS, DEEPSEEK_SHARED],
        _ => return None,
    })
}

pub(super) const KINDS: [&str; 8] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v3",
];

impl RuleCondition {
    pub(super) fn holds(self, sizes: &ModelSizes<'_>, layer: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Dense => !sizes.is_sparse(layer),
            Self::Sparse => sizes.is_sparse(layer),
            Self::Shared => sizes.is_sparse(layer) && sizes.has_shared_experts(),
            Self::QkvBias => sizes.has_qkv_bias(),
            Self::OutputBias => sizes.has_output_bias(),
            Self::QueryRanked => sizes.maybe("q_lora_rank").is_some(),
            Self::QueryWhole => sizes.maybe("q_lora_rank").is_none(),
            Self::Untied => !sizes.config.is_tied(),
        }
    }
}
