//! Uploads with the user's own `hf`.

use crate::error::CliError;
use camino::Utf8Path;
use supervise_host::hub;

/// Refuses an impossible upload before the work.
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
    match hub::version() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(
            CliError::environment(format!("--upload: `hf version` ended with {status}"))
                .hint("is huggingface_hub installed here? `pip install -U huggingface_hub`"),
        ),
        Err(e) => Err(
            CliError::environment(format!("--upload: the command hf cannot be started: {e}"))
                .hint("`pip install -U huggingface_hub` brings it"),
        ),
    }
}

/// Uploads the directory; the output of `hf` goes to standard error.
pub(super) fn perform(target: &Utf8Path, name: &str, private: bool) -> Result<(), CliError> {
    let status = hub::upload(target, name, private)
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
