//! Earlier starts of the same script, and what they found out.

use super::RunSources;
use crate::control;
use crate::error::CliError;
use crate::path_access;
use crate::prepare::earlier_run::peek;
use crate::prepare::listed_runs;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use supervise_core::id::Ms;
use supervise_core::spec::script::{self, LearnedCall};
use supervise_host::io_worker::RegisteredRun;

/// Earlier starts of the same command in the same directory, newest first.
pub(in crate::prepare) fn starts(c: &RunSources) -> Vec<RegisteredRun> {
    let command = supervise_config::redact_words(&c.command);
    let key = script::key(&c.cwd, &command);
    let mut found = listed_runs();
    found.retain(|l| l.script.as_deref() == Some(&key));
    found.sort_by_key(|l| std::cmp::Reverse(l.at));
    found
}

/// Maximum number of entries of a root that are compared.
const ENTRIES: usize = 4096;

/// The checkpoint root of the last start of the same script.
pub(super) fn root_before(c: &RunSources) -> Option<Utf8PathBuf> {
    starts(c).into_iter().find_map(|l| l.root)
}

/// Entries of a root that look like steps: names that end with a number.
pub(super) fn steps_in(root: &Utf8Path) -> BTreeSet<String> {
    let all = path_access::names(root, "", ENTRIES).unwrap_or_default();
    let ends = |name: &String| name.ends_with(|c: char| c.is_ascii_digit());
    all.into_iter().filter(ends).collect()
}

/// A script is never run beside its own running trainer, because it may begin by killing what it finds.
pub(super) fn living(c: &RunSources) -> Result<Option<LearnedCall>, CliError> {
    for start in starts(c) {
        if control::lives(&start.run) {
            return Err(CliError::already_running(&start.run, &c.command));
        }
        if control::guard_lives(&start.run) {
            return last_learnt(&start).map(Some).ok_or_else(|| {
                CliError::environment(format!(
                    "a trainer of this script lives (run {}), but its journal in {} cannot be read",
                    start.run, start.run_dir
                ))
            });
        }
    }
    Ok(None)
}

/// The call of the last start. Hidden values were stored as `***`, so words with one are left out.
pub(super) fn last_learnt(start: &RegisteredRun) -> Option<LearnedCall> {
    let mut learnt = peek(&start.run_dir)?.spec.and_then(|s| s.learnt)?;
    let is_hidden = |word: &String| word.split_once('=').is_some_and(|(_, value)| value.contains("***"));
    learnt.command.retain(|word| !is_hidden(word));
    learnt.env.retain(|_, value| !value.contains("***"));
    Some(learnt)
}

pub(in crate::prepare) fn longest_step(start: &RegisteredRun) -> Option<Ms> {
    let took = peek(&start.run_dir)?.state.attempt?.training.longest_step;
    (took > Ms(0)).then_some(took)
}
