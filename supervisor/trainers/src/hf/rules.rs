//! The meaning of output lines of Hugging Face's `Trainer`. Most are printed only if the library's verbosity is
//! `info`.
//!
//! No line reports a step as it is trained: only the progress bar does, and any other bar looks the same. A bar
//! counts if its total is the number of steps the `Trainer` printed.

use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::observe::numbers::TrainingMetric;
use supervise_core::rulebook::taxonomy::Class;

/// Keys of logged metrics; the record names no step.
const KEYS: [(TrainingMetric, &str); 2] = [(TrainingMetric::Loss, "loss"), (TrainingMetric::GradNorm, "grad_norm")];

/// Rules in order of precedence.
pub(crate) fn rules() -> Vec<ScanRule> {
    vec![
        ScanRule::new(
            "hf.resumed",
            r"Resuming training from checkpoint with epoch \d+ and global step (\d+)\s*$",
            RuleKind::Resumed,
        ),
        ScanRule::new(
            "hf.resumed_v4",
            r"Continuing training from global step (\d+)\s*$",
            RuleKind::Resumed,
        ),
        ScanRule::new("hf.total", r"Total optimization steps = ([\d,]+)\s*$", RuleKind::Total),
        ScanRule::new(
            "hf.save",
            r"Saving model checkpoint to .*checkpoint-(\d+)/?\s*$",
            RuleKind::Enters(TrainerPhase::Save),
        ),
        ScanRule::new(
            "hf.validation",
            r"\*\*\*\*\* Running (?:Evaluation|Prediction|evaluation|prediction) \*\*\*\*\*",
            RuleKind::Enters(TrainerPhase::Validate),
        ),
        ScanRule::new(
            "hf.end",
            r"Training completed\. Do not forget to share your model|^\s*\{'train_runtime': ",
            RuleKind::End,
        ),
        ScanRule::new(
            "hf.on_demand",
            r"SIGTERM received, will request JIT checkpoint|Starting JIT checkpointing\.\.\.",
            RuleKind::Failure(Class::SchedPreempt.into()),
        ),
        ScanRule::new(
            "hf.not_empty",
            r"Output directory .* already exists and is not empty",
            RuleKind::Failure(Class::CfgArgs.into()),
        ),
        ScanRule::new("hf.loss", r"^\s*\{'loss': ", RuleKind::Enters(TrainerPhase::Step)).with_keys(&KEYS),
        ScanRule::new("hf.bar", r"^\s*\d+%\|[^|]*\|\s*(\d+)/(\d+) \[", RuleKind::Bar),
    ]
}
