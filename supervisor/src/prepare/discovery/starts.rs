//! Earlier starts of the same script, and what they learnt.

use super::Sources;
use crate::control;
use crate::error::CliError;
use crate::prepare::registry_files;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use std::fs;
use std::time::{Duration, SystemTime};
use supervise_core::id::{Ms, RunId};
use supervise_core::script::{self, Learnt};
use supervise_host::lane::{Answer, Client, Loaded, Question};

/// A file system has this long to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A start of the same script, as the registry lists it.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::prepare) struct Start {
    pub(in crate::prepare) run: RunId,
    pub(in crate::prepare) run_dir: Utf8PathBuf,
    pub(in crate::prepare) root: Option<Utf8PathBuf>,
    script: Option<String>,
}

/// Earlier starts of the same command in the same directory, newest first.
pub(in crate::prepare) fn starts(c: &Sources) -> Vec<Start> {
    let command = supervise_config::redact_words(&c.command);
    let key = script::key(&c.cwd, &command);
    let read = |path: &Utf8Path| -> Option<(SystemTime, Start)> {
        let start: Start = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let at = fs::metadata(path).and_then(|m| m.modified()).ok()?;
        (start.script.as_deref() == Some(&key)).then_some((at, start))
    };
    let mut found: Vec<_> = registry_files().iter().filter_map(|f| read(f)).collect();
    found.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    found.into_iter().map(|(_, start)| start).collect()
}

/// A script is never run beside its own living trainer: it may begin by ending what it finds.
pub(super) fn living(c: &Sources) -> Result<Option<Learnt>, CliError> {
    for start in starts(c) {
        if control::lives(&start.run) {
            return Err(CliError::lease_held(format!(
                "another supervisor of this script lives on this machine (run {})",
                start.run
            )));
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

pub(super) fn last_learnt(start: &Start) -> Option<Learnt> {
    peek(start)?.spec.and_then(|s| s.learnt)
}

/// The longest step of its last attempt.
pub(in crate::prepare) fn longest_step(start: &Start) -> Option<Ms> {
    let took = peek(start)?.state.attempt?.longest_step;
    (took > Ms(0)).then_some(took)
}

fn peek(start: &Start) -> Option<Box<Loaded>> {
    let ask = Question::Peek {
        run_dir: start.run_dir.clone(),
    };
    let mut lane = Client::start(&std::env::current_exe().ok()?).ok()?;
    match lane.ask(ask, PATIENCE) {
        Ok(Answer::Loaded(loaded)) => Some(loaded),
        _ => None,
    }
}
