//! Kinds of files, by their names.

use serde::{Deserialize, Serialize};

/// How a file is read: by its name, never by what its bytes claim to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file that `torch.save` wrote.
    TorchZip,
    /// A JSON object.
    Json,
    /// A model's configuration: `config.json`, and `transformer_config.json` of Megatron.
    ModelConfig,
    /// Any other configuration that is written with weights.
    Settings,
    /// `tokenizer.json`.
    Tokenizer,
    /// `fsdp_config.json`.
    FsdpConfig,
    /// `step_info.json` of AReaL.
    StepInfo,
    /// `checkpoint_info.json` of AReaL, and the same of its saver and evaluator.
    FreqControl,
    /// `stats_logger_info.json` of AReaL.
    StatsInfo,
    /// `trainer_state.json` of Hugging Face's `Trainer`.
    TrainerState,
    /// A safetensors file.
    Safetensors,
    /// The index of weights in several files.
    SafetensorsIndex,
    /// `.metadata`: what `torch.distributed.checkpoint` wrote where.
    DcpMetadata,
    /// A `.distcp` file: saves of single values, one behind the other.
    Distcp,
    /// A pickle that stands alone.
    Pickle,
    /// `ckpt_contents.json`: what a Megatron checkpoint of verl holds.
    CkptContents,
    /// `integrity.json` of a directory that Megatron wrote.
    Integrity,
    /// `metadata.json` of a directory that Megatron wrote.
    MegatronMetadata,
    /// `metadata.json` of a saved TransferQueue.
    QueueMetadata,
    /// Which units of storage a saved TransferQueue has.
    QueueUnits,
    /// Text.
    Text,
    /// Bytes of no known format.
    Opaque,
}

impl FileKind {
    /// The kind that a file name promises; the folder does not matter.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ends = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
        match name {
            "config.json" | "transformer_config.json" => Self::ModelConfig,
            "generation_config.json" | "tokenizer_config.json" | "adapter_config.json" => Self::Settings,
            "tokenizer.json" => Self::Tokenizer,
            "fsdp_config.json" => Self::FsdpConfig,
            "step_info.json" => Self::StepInfo,
            "checkpoint_info.json" | "saver_info.json" | "evaluator_info.json" => Self::FreqControl,
            "stats_logger_info.json" => Self::StatsInfo,
            "trainer_state.json" => Self::TrainerState,
            ".metadata" => Self::DcpMetadata,
            "ckpt_contents.json" => Self::CkptContents,
            "integrity.json" => Self::Integrity,
            "storage_unit_info.json" | "su_info.json" => Self::QueueUnits,
            _ if ends(".distcp") => Self::Distcp,
            _ if ends(".safetensors.index.json") || ends(".bin.index.json") => Self::SafetensorsIndex,
            _ if ends(".safetensors") => Self::Safetensors,
            _ if ends(".pt") || ends(".pth") => Self::TorchZip,
            _ if ends(".bin") && name.starts_with("pytorch_model") => Self::TorchZip,
            _ if ends(".pkl") => Self::Pickle,
            _ if ends(".json") => Self::Json,
            _ if [".txt", ".py", ".md", ".jinja", ".yaml", ".yml"]
                .iter()
                .any(|s| ends(s)) =>
            {
                Self::Text
            }
            _ => Self::Opaque,
        }
    }
}
