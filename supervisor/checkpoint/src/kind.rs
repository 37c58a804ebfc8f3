//! File kinds, by name.

use serde::{Deserialize, Serialize};

/// How a file is inspected: chosen by its name, never by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file that `torch.save` wrote.
    TorchZip,
    /// A JSON object.
    Json,
    /// Any JSON text, of a program that nothing is known of.
    AnyJson,
    /// A model's configuration: `config.json`, and Megatron's `transformer_config.json`.
    ModelConfig,
    /// Any other configuration that is saved with weights.
    Settings,
    Tokenizer,
    FsdpConfig,
    /// AReaL's `step_info.json`.
    StepInfo,
    /// AReaL's `checkpoint_info.json`, and the same for its saver and evaluator.
    FreqControl,
    /// AReaL's `stats_logger_info.json`.
    StatsInfo,
    /// `trainer_state.json` of Hugging Face's `Trainer`.
    TrainerState,
    Safetensors,
    /// The index of weights in several files.
    SafetensorsIndex,
    /// `.metadata`: what `torch.distributed.checkpoint` stored where.
    DcpMetadata,
    /// A `.distcp` file: a sequence of single saved values.
    Distcp,
    /// A standalone pickle.
    Pickle,
    /// `ckpt_contents.json`: the contents of verl's Megatron checkpoint.
    CkptContents,
    /// `integrity.json` in a directory that Megatron wrote.
    Integrity,
    /// `metadata.json` in a directory that Megatron wrote.
    MegatronMetadata,
    /// `metadata.json` of a saved TransferQueue.
    QueueMetadata,
    /// The storage units of a saved TransferQueue.
    QueueUnits,
    Text,
    /// Bytes of no known format.
    Opaque,
}

impl FileKind {
    /// Returns the kind that a file name promises, in any folder.
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
