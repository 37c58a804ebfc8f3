//! What a file says besides its verdict, and about other files.

use crate::dcp::{DcpFacts, DcpMetadata};
use crate::json::{Frequencies, StepInfo, TrainerState};
use crate::megatron::{DistBackend, DistManifest};
use crate::queue::QueueFacts;
use crate::safetensors::Index;
use crate::torch::TorchFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::spec::ParallelSizes;

/// What a file says besides its verdict.
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
    /// Number of tensors in a safetensors file or index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    /// Elements of a safetensors file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
    /// Facts from a file of `torch.save`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchFacts>,
    /// Facts from `.metadata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcp: Option<DcpFacts>,
    /// Distinct step counts of the optimizers in a `.distcp` file, by optimizer name (empty if it has none).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dcp_steps: BTreeMap<String, Vec<u64>>,
    /// From `ckpt_contents.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<DistManifest>,
    /// From Megatron's `metadata.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dist_backend: Option<DistBackend>,
    /// From Megatron's `integrity.json`: the SHA-256 of each file in hexadecimal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub integrity: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_info: Option<StepInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer_state: Option<TrainerState>,
    /// The text of a small text file, trimmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How often AReaL checked whether to save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<u64>,
    /// How often AReaL acts after a resume, whatever its configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequencies: Option<Frequencies>,
    /// Batches that a dataloader yielded in this epoch, from a pickle of its state: the lowest count of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Number of items, if a pickle is a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueFacts>,
    /// Parallel sizes, from a configuration that Megatron writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<ParallelSizes>,
}

/// What one file says about others.
#[derive(Debug, PartialEq, Eq)]
pub enum FileDescription {
    /// `.metadata`, about `.distcp` files.
    Dcp(DcpMetadata),
    Weights(Index),
}
