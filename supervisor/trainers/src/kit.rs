//! Parts shared by all adapters. None of them knows a particular trainer.

pub(crate) mod experiment;
mod pins;
mod reader;
mod summary;
mod trust;

use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::interpolation::Env;

pub use experiment::MetricsTool;
pub(crate) use pins::PinsSum;
pub use pins::pins;
pub(crate) use reader::{ConfigReader, ScalarType};
pub(crate) use summary::{blank, unknown_step};
pub(crate) use trust::{allow, not_trusted};

/// A directory as a shell would name it: `~` is the home directory. `None`: that is not known.
pub(crate) fn home_path(cwd: &Utf8Path, env: Env<'_>, text: &str) -> Option<Utf8PathBuf> {
    let Some(rest) = text.strip_prefix('~') else {
        return Some(cwd.join(text));
    };
    let home = env("HOME").filter(|home| !home.is_empty());
    let home = home.filter(|_| rest.is_empty() || rest.starts_with('/'))?;
    let dir = format!("{}{rest}", home.trim_end_matches('/'));
    Some(cwd.join(if dir.is_empty() { "/" } else { &dir }))
}

const REMARKS: usize = 20;

pub(crate) fn first(mut remarks: Vec<String>) -> Vec<String> {
    let more = remarks.len().saturating_sub(REMARKS);
    remarks.truncate(REMARKS);
    remarks.extend((more > 0).then(|| format!("{more} more names of this kind")));
    remarks
}
