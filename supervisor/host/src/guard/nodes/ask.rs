//! Runs Slurm's own commands and returns their output.

use crate::process::call::call;
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::time::Duration;

/// Slurm's commands give up after about ten seconds, and again with a second server.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run_one(env: &BTreeMap<String, String>, argv: &[&str]) -> Result<Vec<u8>, String> {
    let mut env = env.clone();
    // Variables of this kind change what is listed and how.
    env.retain(|name, _| {
        ["SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_"]
            .iter()
            .all(|p| !name.starts_with(p))
    });
    call(argv, env, Utf8Path::new("/"), &[], PATIENCE)
}
