//! The meaning of verl's output lines: steps, saves, resumes, a fresh start, the planned end.
//!
//! The patterns are not anchored at the line start: Hydra prefixes time and file, and an unterminated progress bar
//! may precede them. Failures are not matched here; they are the same for every trainer.

use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::observe::numbers::TrainingMetric;

/// Keys in a training record. A validation before the first step prints a record without any of them.
const KEYS: [(TrainingMetric, &str); 14] = [
    (TrainingMetric::Loss, "train/loss"),
    (TrainingMetric::Loss, "actor/pg_loss"),
    (TrainingMetric::Loss, "actor/loss"),
    (TrainingMetric::Reward, "critic/rewards/mean"),
    (TrainingMetric::Reward, "critic/score/mean"),
    (TrainingMetric::GradNorm, "train/grad_norm"),
    (TrainingMetric::GradNorm, "actor/grad_norm"),
    (TrainingMetric::Entropy, "actor/entropy"),
    (TrainingMetric::Entropy, "actor/entropy_loss"),
    (TrainingMetric::Length, "response_length/mean"),
    (TrainingMetric::Mark, "training/global_step"),
    (TrainingMetric::Mark, "critic/vf_loss"),
    (TrainingMetric::Mark, "timing_s/step"),
    (TrainingMetric::Mark, "perf/throughput"),
];

/// Rules in order of precedence.
pub(crate) fn rules(sft: bool) -> Vec<ScanRule> {
    let mut rules = vec![
        // A metric called `…/step` or `…_step` is no such record.
        ScanRule::new("verl.step", r"(?:^|[^\w/.:-])step:(\d+) - ", RuleKind::Step).with_keys(&KEYS),
        ScanRule::new("verl.end", r"Final validation metrics: ", RuleKind::End),
        ScanRule::new(
            "verl.loaded",
            r"\[Rank 0\] Loaded (?:LoRA-only checkpoint \(.*\)|model) .*global_step_(\d+)/",
            RuleKind::Resumed,
        ),
        ScanRule::new(
            "verl.tracker_missing",
            r"Checkpoint tracker file does not exist: ",
            RuleKind::Scratch,
        ),
        // The `%s` is printed literally.
        ScanRule::new(
            "verl.tracker_astray",
            r"Checkpoint does not exist: %s ",
            RuleKind::Scratch,
        ),
        ScanRule::new("verl.total", r"Total training steps: (\d+)", RuleKind::Total),
    ];
    rules.extend(if sft { sft_rules() } else { ppo_rules() });
    rules
}

fn sft_rules() -> Vec<ScanRule> {
    vec![
        ScanRule::new(
            "verl_sft.save",
            r"Saving checkpoint to: .*global_step_(\d+)\s*$",
            RuleKind::Enters(TrainerPhase::Save),
        ),
        ScanRule::new(
            "verl_sft.saved",
            r"Updated checkpoint tracker: ",
            RuleKind::Enters(TrainerPhase::Step),
        ),
        ScanRule::new(
            "verl_sft.resumed",
            r"StatefulDataLoader will automatically resume from global step: (\d+)",
            RuleKind::Resumed,
        ),
        ScanRule::new(
            "verl_sft.no_step_in_path",
            r"Could not extract step number from .*, starting from step 0",
            RuleKind::Scratch,
        ),
        ScanRule::new(
            "verl_sft.total",
            r"Total steps: (\d+), num_warmup_steps: ",
            RuleKind::Total,
        ),
    ]
}

fn ppo_rules() -> Vec<ScanRule> {
    vec![
        // The whole configuration is printed before anything is loaded, as a Python dict.
        ScanRule::new("verl_ppo.resume_path", r"'resume_from_path': ", RuleKind::ResumePath),
        ScanRule::new(
            "verl_ppo.save",
            r"(?:Saving checkpoint to|local_global_step_folder:) .*global_step_(\d+)\s*$",
            RuleKind::Enters(TrainerPhase::Save),
        ),
        ScanRule::new(
            "verl_ppo.resumed",
            r"Resuming from .*global_step_\d+, setting global step to (\d+)",
            RuleKind::Resumed,
        ),
        ScanRule::new(
            "verl_ppo.resumed_v0",
            r"Setting global step to (\d+)\s*$",
            RuleKind::Resumed,
        ),
        ScanRule::new("verl_ppo.scratch", r"Training from scratch", RuleKind::Scratch),
        ScanRule::new(
            "verl_ppo.validation",
            r"test_gen_batch meta info: ",
            RuleKind::Enters(TrainerPhase::Validate),
        ),
        ScanRule::new(
            "verl_ppo.progress_bar",
            r"Training Progress: .*\| \d+/(\d+) \[",
            RuleKind::Total,
        ),
    ]
}
