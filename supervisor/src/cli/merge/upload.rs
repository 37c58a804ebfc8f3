//! The upload, by the user's own `hf`.

use crate::error::CliError;
use camino::Utf8Path;
use std::process::Command;

/// Its command line.
const HF: &str = "hf";

/// Refuses what cannot be uploaded, before the work.
pub(super) fn possible(name: &str) -> Result<(), CliError> {
    let good = |word: &str| {
        !word.is_empty()
            && !word.starts_with('-')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|p| good(p)) {
        return Err(CliError::usage(format!("--upload {name}: expected ORG/NAME")));
    }
    match Command::new(HF).arg("version").output() {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(
            CliError::environment(format!("--upload: `hf version` ended with {}", out.status))
                .hint("is huggingface_hub installed here? `pip install -U huggingface_hub`"),
        ),
        Err(e) => Err(
            CliError::environment(format!("--upload: the command hf cannot be started: {e}"))
                .hint("`pip install -U huggingface_hub` brings it"),
        ),
    }
}

/// Uploads the directory; what `hf` says goes to standard error.
pub(super) fn perform(target: &Utf8Path, name: &str, private: bool) -> Result<(), CliError> {
    let mut command = Command::new(HF);
    command.args(["upload", "--repo-type", "model"]);
    if private {
        command.arg("--private");
    }
    command.args(["--", name, target.as_str()]);
    command.stdin(std::process::Stdio::null()).stdout(std::io::stderr());
    let status = command
        .status()
        .map_err(|e| CliError::environment(format!("--upload: the command hf cannot be started: {e}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(
            CliError::environment(format!("--upload {name}: hf ended with {status}")).hint(format!(
                "the model is whole in {target}: `hf upload {name} {target}` tries again"
            )),
        ),
    }
}
