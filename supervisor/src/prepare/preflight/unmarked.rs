//! Refuses a first start in a root with checkpoints that nobody reported: it would train from step 0 beside them.

use crate::error::{CliError, ErrorKind};
use crate::path_access;
use crate::prepare::resolve::Resolved;
use camino::Utf8Path;
use supervise_checkpoint::FileKind;
use supervise_trainers::adapter;

/// Names of a root that are tried.
const NAMES: usize = 4096;
const WORDS: [&str; 5] = ["step", "ckpt", "checkpoint", "epoch", "iter"];

/// # Errors
/// Names one of the checkpoints.
pub(super) fn check(resolved: &Resolved, root: &Utf8Path) -> Result<(), CliError> {
    let request = &resolved.discovered.sources.request;
    let trainer = adapter(resolved.out.kind);
    let was_started = || path_access::exists(&resolved.run_dir.join("journal"));
    if !trainer.marks_steps() || request.fresh || request.allow_fresh || was_started() {
        return Ok(());
    }
    let names = path_access::names(root, "", NAMES).unwrap_or_default();
    if names.iter().any(|name| trainer.is_mark(name)) {
        return Ok(());
    }
    match names.iter().find(|name| is_like_a_checkpoint(name)) {
        None => Ok(()),
        Some(name) => Err(CliError::new(
            ErrorKind::NoProof,
            format!("{root} holds {name}, which no loop reported as saved: the run would begin at step 0 beside it"),
        )
        .hint("--allow-fresh begins at step 0 and leaves it there")
        .hint(format!(
            "to resume from it, report it: python3 -m supervise saved {} STEP",
            root.join(name)
        ))),
    }
}

fn is_like_a_checkpoint(name: &str) -> bool {
    let is_saved = matches!(
        FileKind::of(name),
        FileKind::TorchZip | FileKind::Safetensors | FileKind::Distcp | FileKind::DcpMetadata
    );
    let lower = name.to_ascii_lowercase();
    let is_numbered = lower.bytes().any(|b| b.is_ascii_digit()) && WORDS.iter().any(|word| lower.contains(word));
    !name.starts_with('.') && (is_saved || lower.ends_with(".ckpt") || is_numbered)
}

#[cfg(test)]
mod tests {
    use super::is_like_a_checkpoint;

    #[test]
    fn checkpoints_are_told_from_other_files() {
        for name in [
            "model.pt",
            "step_100",
            "epoch=1-step=5.ckpt",
            "last.ckpt",
            "Checkpoint-3",
            "w.safetensors",
        ] {
            assert!(is_like_a_checkpoint(name), "{name}");
        }
        for name in [
            "train.log",
            "runs",
            "events.out.tfevents.17",
            "steps",
            ".supervise",
            "config.yaml",
            "data.npy",
        ] {
            assert!(!is_like_a_checkpoint(name), "{name}");
        }
    }
}
