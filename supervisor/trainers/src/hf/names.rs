//! Names that Hugging Face's `Trainer` writes: step directories and the files in them.

use supervise_core::id::Step;

/// Written last, by rank 0 alone.
pub(crate) const STATE: &str = "trainer_state.json";
/// Marks an unfinished save on demand; no load checks it.
pub(crate) const SENTINEL: &str = "checkpoint-is-incomplete.txt";
pub(crate) const SCHEDULE: &str = "scheduler.pt";
/// The loss scale of half precision.
pub(crate) const SCALER: &str = "scaler.pt";
pub(crate) const RNG: &str = "rng_state.pth";
/// DeepSpeed's pointer to the directory that it loads.
pub(crate) const LATEST: &str = "latest";
/// The optimizer file: of `Trainer`, and of accelerate for FSDP.
pub(crate) const OPTIMIZERS: [&str; 2] = ["optimizer.pt", "optimizer.bin"];
/// Rollout state of TRL's asynchronous trainers, saved before everything else.
pub(crate) const ROLLOUT: &str = "rollout_state.json";
/// Entropy controller of TRL's GRPO, saved after everything else.
pub(crate) const ENTROPY: &str = "entropy_ctrl_state.json";
/// Position of a run of LLaMA-Factory's own trainer (`USE_V1=1`).
pub(crate) const V1_STATE: &str = "metadata.json";
/// Written last by that trainer, which skips steps without it.
pub(crate) const V1_COMPLETE: &str = "CHECKPOINT_COMPLETE";
/// Its directories with one file per rank.
pub(crate) const V1_RNG: &str = "rng_state";
pub(crate) const V1_DATA: &str = "dataloader";
/// Any of these can be loaded as weights.
pub(crate) const WEIGHTS: [&str; 7] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model_fsdp.bin",
];

pub(crate) const PREFIX: &str = "checkpoint-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HfRootName {
    Step(Step),
    /// A step number with leading zeros: `Trainer` reads it as that step but never writes it.
    Padded(Step),
    TooLarge,
    /// A step's name with a suffix: no resume finds it, but retention counts and deletes it.
    Suffixed,
    Other,
}

pub(crate) fn root_name(name: &str) -> HfRootName {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return HfRootName::Other;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match (digits, digits == rest.len(), rest.parse()) {
        (0, ..) => HfRootName::Other,
        (_, false, _) => HfRootName::Suffixed,
        (.., Err(_)) => HfRootName::TooLarge,
        (n, _, Ok(step)) if n > 1 && rest.starts_with('0') => HfRootName::Padded(Step(step)),
        (.., Ok(step)) => HfRootName::Step(Step(step)),
    }
}

pub(crate) fn step_dir(step: Step) -> String {
    format!("{PREFIX}{step}")
}

pub(crate) fn rng_rank(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("rng_state_")?.strip_suffix(".pth")?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

pub(crate) fn file_rank(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("rank_")?.strip_suffix(".pt")?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Returns true if accelerate's `save_state` writes a file of this name and `Trainer` does not.
pub(crate) fn is_of_accelerate(name: &str) -> bool {
    name.starts_with("random_states_") && name.ends_with(".pkl")
}

/// Returns true if a directory in a step has an FSDP distributed checkpoint of weights or optimizer.
pub(crate) fn is_fsdp_dir(dir: &str, stem: &str) -> bool {
    let number = dir.strip_prefix(stem).and_then(|rest| rest.strip_prefix('_'));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

pub(crate) fn is_state_dir(name: &str) -> bool {
    is_fsdp_dir(name, "pytorch_model_fsdp") || is_fsdp_dir(name, "optimizer") || name.starts_with("global_step")
}

/// Returns true if a file is one rank's shard of weights or optimizer, in FSDP's format of one file per rank.
pub(crate) fn is_local_shard(name: &str) -> bool {
    name.ends_with(".bin")
        && name.contains("_rank")
        && (name.starts_with("pytorch_model_fsdp") || name.starts_with("optimizer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_name_is_a_step() {
        for (name, what) in [
            ("checkpoint-500", HfRootName::Step(Step(500))),
            ("checkpoint-0", HfRootName::Step(Step(0))),
            ("checkpoint-0500", HfRootName::Padded(Step(500))),
            ("checkpoint-00", HfRootName::Padded(Step(0))),
            ("checkpoint-099999999999999999999", HfRootName::TooLarge),
            ("checkpoint-99999999999999999999", HfRootName::TooLarge),
            ("checkpoint-500.bak", HfRootName::Suffixed),
            ("checkpoint-500-merged", HfRootName::Suffixed),
            ("checkpoint-best", HfRootName::Other),
            ("checkpoint-", HfRootName::Other),
            ("checkpoint_500", HfRootName::Other),
            ("runs", HfRootName::Other),
        ] {
            assert_eq!(root_name(name), what, "{name}");
        }
        assert_eq!(step_dir(Step(20)), "checkpoint-20");
    }

    #[test]
    fn ranks_and_forms_are_read_from_names() {
        assert_eq!(rng_rank("rng_state_12.pth"), Some(12));
        for name in ["rng_state.pth", "rng_state_01.pth", "rng_state_.pth", "rng_state_1.pt"] {
            assert_eq!(rng_rank(name), None, "{name}");
        }
        assert_eq!(file_rank("rank_3.pt"), Some(3));
        assert_eq!(file_rank("rank_03.pt"), None);
        assert!(is_of_accelerate("random_states_0.pkl"));
        assert!(is_fsdp_dir("pytorch_model_fsdp_0", "pytorch_model_fsdp"));
        assert!(is_fsdp_dir("optimizer_0", "optimizer"));
        assert!(!is_fsdp_dir("optimizer_best", "optimizer"));
        assert!(is_local_shard("pytorch_model_fsdp_rank3.bin"));
        assert!(is_local_shard("optimizer_0_rank0.bin"));
        assert!(!is_local_shard("pytorch_model_fsdp.bin"));
    }
}
