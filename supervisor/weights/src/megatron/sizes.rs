//! A model's sizes, from its `config.json`.

use crate::hf::ModelConfig;
use crate::problem::ModelError;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelDim {
    One,
    Hidden,
    TwoHidden,
    /// All query heads, concatenated.
    Queries,
    Head,
    Feed,
    /// The inner size of one expert.
    ExpertFeed,
    SharedFeed,
    Experts,
    Vocabulary,
    /// Latent attention: rank of the queries.
    QueryRank,
    KeyRank,
    /// Rank of keys and values, plus the rotated part of the keys.
    KeyRankRotated,
    /// All query heads, each with its rotated part.
    LatentQueries,
    /// All key heads (without the rotated part) and value heads.
    LatentKeysValues,
    LatentValues,
}

#[derive(Clone, Copy)]
pub(super) struct ModelSizes<'a> {
    pub(super) config: &'a ModelConfig,
}

impl ModelSizes<'_> {
    pub(super) fn of(&self, size: ModelDim) -> Result<u64, ModelError> {
        let product = |a: u64, b: u64| a.checked_mul(b).ok_or_else(|| self.lacks("sizes that fit a file"));
        Ok(match size {
            ModelDim::One => 1,
            ModelDim::Hidden => self.number("hidden_size")?,
            ModelDim::TwoHidden => product(2, self.number("hidden_size")?)?,
            ModelDim::Queries => product(self.heads()?, self.head()?)?,
            ModelDim::Head => self.head()?,
            ModelDim::Feed => self.number("intermediate_size")?,
            ModelDim::ExpertFeed => match self.kind() {
                "mixtral" => self.number("intermediate_size")?,
                _ => self.number("moe_intermediate_size")?,
            },
            ModelDim::SharedFeed => match self.kind() {
                "deepseek_v3" => product(self.number("moe_intermediate_size")?, self.number("n_shared_experts")?)?,
                _ => self.number("shared_expert_intermediate_size")?,
            },
            ModelDim::Experts => self.experts().ok_or_else(|| self.lacks("num_experts"))?,
            ModelDim::Vocabulary => self.number("vocab_size")?,
            ModelDim::QueryRank => self.number("q_lora_rank")?,
            ModelDim::KeyRank => self.number("kv_lora_rank")?,
            ModelDim::KeyRankRotated => self
                .number("kv_lora_rank")?
                .saturating_add(self.number("qk_rope_head_dim")?),
            ModelDim::LatentQueries => {
                let head = self
                    .number("qk_nope_head_dim")?
                    .saturating_add(self.number("qk_rope_head_dim")?);
                product(self.heads()?, head)?
            }
            ModelDim::LatentKeysValues => {
                let head = self
                    .number("qk_nope_head_dim")?
                    .saturating_add(self.number("v_head_dim")?);
                product(self.heads()?, head)?
            }
            ModelDim::LatentValues => product(self.heads()?, self.number("v_head_dim")?)?,
        })
    }

    pub(super) fn kind(&self) -> &str {
        self.config.model_type()
    }

    pub(super) fn layers(&self) -> Result<u64, ModelError> {
        self.number("num_hidden_layers")
    }

    pub(super) fn heads(&self) -> Result<u64, ModelError> {
        self.number("num_attention_heads")
    }

    /// Number of key heads: each serves a group of query heads.
    pub(super) fn groups(&self) -> Result<u64, ModelError> {
        let groups = match self.maybe("num_key_value_heads") {
            Some(n) => n,
            None => self.heads()?,
        };
        let even = groups > 0 && self.heads()?.is_multiple_of(groups);
        even.then_some(groups)
            .ok_or_else(|| self.lacks("heads of the queries that its heads of the keys divide"))
    }

    pub(super) fn head(&self) -> Result<u64, ModelError> {
        if let Some(n) = self.maybe("head_dim") {
            return Ok(n);
        }
        // For these, the library's own default does not follow from the other sizes.
        if self.kind().starts_with("qwen3") {
            return Err(self.lacks("head_dim"));
        }
        self.number("hidden_size")?
            .checked_div(self.heads()?)
            .ok_or_else(|| self.lacks("num_attention_heads above 0"))
    }

    pub(super) fn maybe(&self, key: &str) -> Option<u64> {
        self.config.value.get(key).and_then(Value::as_u64)
    }

    /// The number of experts: versions of the library use different names.
    fn experts(&self) -> Option<u64> {
        let names = ["num_experts", "num_local_experts", "n_routed_experts"];
        names.iter().find_map(|name| self.maybe(name))
    }

    fn number(&self, key: &str) -> Result<u64, ModelError> {
        self.maybe(key).ok_or_else(|| self.lacks(key))
    }

    fn says(&self, key: &str) -> bool {
        self.config.value.get(key).and_then(Value::as_bool) == Some(true)
    }

    fn lacks(&self, what: &str) -> ModelError {
        ModelError::unknown(format!(
            "config.json: a model of the type {} has to have {what}",
            self.kind()
        ))
    }

    pub(super) fn has_qkv_bias(&self) -> bool {
        match self.kind() {
            "qwen2" => true,
            "qwen2_moe" => self.config.value.get("qkv_bias").and_then(Value::as_bool) != Some(false),
            "mistral" | "mixtral" => false,
            _ => self.says("attention_bias"),
        }
    }

    pub(super) fn has_output_bias(&self) -> bool {
        matches!(self.kind(), "llama" | "qwen3" | "qwen3_moe") && self.says("attention_bias")
    }

    pub(super) fn has_shared_experts(&self) -> bool {
        self.maybe("n_shared_experts").is_some_and(|n| n > 0)
    }

    pub(super) fn is_sparse(&self, layer: u64) -> bool {
        match self.kind() {
            "mixtral" => true,
            "qwen2_moe" | "qwen3_moe" => {
                let step = self.maybe("decoder_sparse_step").unwrap_or(1);
                let dense = self.config.value.get("mlp_only_layers").and_then(Value::as_array);
                let dense = dense.is_some_and(|list| list.iter().any(|n| n.as_u64() == Some(layer)));
                let some = self.experts().is_some_and(|n| n > 0);
                !dense && some && step > 0 && (layer + 1).is_multiple_of(step)
            }
            "deepseek_v3" => {
                let every = self.maybe("moe_layer_freq").unwrap_or(1);
                layer >= self.maybe("first_k_dense_replace").unwrap_or(0) && every > 0 && layer.is_multiple_of(every)
            }
            _ => false,
        }
    }
}
