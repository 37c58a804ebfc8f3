//! Facts that a file tells beside its verdict, and about other files.

use crate::dcp::{DcpFacts, DcpMetadata};
use crate::json::{Frequencies, StepInfo, TrainerState};
use crate::megatron::{DistBackend, DistManifest};
use crate::queue::QueueFacts;
use crate::safetensors::Index;
use crate::torch::TorchFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::spec::ParallelSizes;

/// Statements of a file beside its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileDetail {
    /// World size in `fsdp_config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// FSDP version in `fsdp_config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp_version: Option<u32>,
    /// Files named by a safetensors index, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<String>,
    /// Tensors of a safetensors file or index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    /// Elements of a safetensors file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
    /// Content of a file of `torch.save`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchFacts>,
    /// Names in `.metadata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcp: Option<DcpFacts>,
    /// Distinct step counts that optimizers keep in a `.distcp` file, by the optimizer's name (empty where it has none).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dcp_steps: BTreeMap<String, Vec<u64>>,
    /// Content of `ckpt_contents.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<DistManifest>,
    /// Content of `metadata.json` of Megatron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dist_backend: Option<DistBackend>,
    /// Content of Megatron's `integrity.json`: the SHA-256 of each file in hexadecimal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub integrity: BTreeMap<String, String>,
    /// Content of `step_info.json` of AReaL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_info: Option<StepInfo>,
    /// Content of `trainer_state.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer_state: Option<TrainerState>,
    /// Words of a small text file, without blanks around them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How often AReaL asked itself whether to save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<u64>,
    /// How often AReaL acts after a resume, whatever its configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequencies: Option<Frequencies>,
    /// Batches that a dataloader has given out in this epoch, by a pickle of its state: the fewest of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Items of the list that a pickle is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Content of a file of a saved TransferQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueFacts>,
    /// How ranks shared the model, in a configuration that Megatron writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<ParallelSizes>,
}

/// Statements of one file about others.
#[derive(Debug, PartialEq, Eq)]
pub enum FileDescription {
    /// `.metadata`, about `.distcp` files.
    Dcp(DcpMetadata),
    /// An index, about files of weights.
    Weights(Index),
}
