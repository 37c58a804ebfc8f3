//! Files of DeepSpeed, by name.
//!
//! Source: DeepSpeed 0.19 `runtime/engine.py` (`_get_ckpt_name`, `_get_optimizer_ckpt_name`), `utils/zero_to_fp32.py`.

use super::listing::names;
use crate::error::CliError;
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::read_small;

const MODEL: &str = "_model_states.pt";
const OPTIMIZER: &str = "_optim_states.pt";
/// File with the name of the newest save's directory.
const LATEST: &str = "latest";

/// The directory with DeepSpeed's files: this one, or the subdirectory that its pointer names. `None` if there are none.
pub(super) fn dir_of(dir: &Utf8Path, inside: &[String]) -> Result<Option<String>, CliError> {
    if inside.iter().any(|n| n.ends_with(MODEL)) {
        return Ok(Some(String::new()));
    }
    if !inside.iter().any(|n| n == LATEST) {
        return Ok(None);
    }
    let path = dir.join(LATEST);
    let text = read_small(&path, 1 << 10).map_err(|e| CliError::environment(format!("{path}: {e}")))?;
    let tag = String::from_utf8_lossy(&text).trim().to_owned();
    let plain = !tag.is_empty() && !tag.contains('/') && !tag.starts_with('.');
    let there = plain && inside.contains(&tag) && has_model(&dir.join(&tag))?;
    Ok(there.then_some(tag))
}

fn has_model(dir: &Utf8Path) -> Result<bool, CliError> {
    Ok(names(dir)?.is_some_and(|names| names.iter().any(|n| n.ends_with(MODEL))))
}

/// The number of files with model states, and all files: model states first, each kind in rank order.
pub(super) fn files(dir: &Utf8Path, below: &str) -> Result<(usize, Vec<String>), CliError> {
    let place = if below.is_empty() {
        dir.to_owned()
    } else {
        dir.join(below)
    };
    let inside = names(&place)?.unwrap_or_default();
    let (mut models, mut optimizers) = (BTreeMap::new(), BTreeMap::new());
    for name in inside.iter().filter(|n| n.ends_with(".pt")) {
        let known = match (name.strip_suffix(MODEL), name.strip_suffix(OPTIMIZER)) {
            (Some("mp_rank_00"), _) => models.insert(0, name).is_none(),
            (Some(stem), _) => rank(stem).is_some_and(|r| models.insert(r, name).is_none()),
            (_, Some(stem)) => {
                let stem = stem
                    .strip_prefix("bf16_")
                    .or(stem.strip_prefix("fp16_"))
                    .unwrap_or(stem);
                rank(stem).is_some_and(|r| optimizers.insert(r, name).is_none())
            }
            _ => false,
        };
        if !known {
            let text = format!(
                "{place}/{name}: DeepSpeed saves it for a model that is spread in another way too (tensor or pipeline parallel, experts), which is not put together here"
            );
            return Err(CliError::checkpoint(Verdict::Unknown, text));
        }
    }
    for (what, ranks) in [("model", &models), ("optimizer", &optimizers)] {
        if let Some(gone) = (0..ranks.len() as u64).find(|r| !ranks.contains_key(r)) {
            let text = format!("{place}: the {what} states of rank {gone} are missing");
            return Err(CliError::checkpoint(Verdict::Incomplete, text));
        }
    }
    let path = |name: &String| match below {
        "" => name.clone(),
        below => format!("{below}/{name}"),
    };
    let count = models.len();
    let names = models.into_values().chain(optimizers.into_values()).map(path);
    Ok((count, names.collect()))
}

/// Rank of a file, from its name without the extension.
fn rank(stem: &str) -> Option<u64> {
    stem.strip_prefix("zero_pp_rank_")?
        .strip_suffix("_mp_rank_00")?
        .parse()
        .ok()
}
