//! The transfer queue of verl's asynchronous modes, as TransferQueue saves it into a step.
//!
//! `metadata.json`, `controller_state.pkl`, and one pickle per storage unit in a directory with a list of them; a
//! unit that keeps values on disk has them in `UNIT.pkl.blobs/`. Everything is built under `transfer_queue.tmp` and
//! renamed, with the older one as `transfer_queue.old` in between.

use super::evidence::StepFile;
use super::names::{QUEUE_UNITS, queue_file};
use super::step_files::{QUEUE, StepFiles};
use crate::adapter::ExpectedLayout;
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_checkpoint::QueueFacts;
use supervise_core::checkpoint::{Finding, FindingLevel, Verdict};
use supervise_core::id::Step;

/// Returns true if a queue should have been saved but is missing.
pub(super) fn judge(expect: &ExpectedLayout, step: Step, survey: &StepFiles<'_>, findings: &mut Vec<Finding>) -> bool {
    if survey.queue.is_empty() {
        if survey.queue_unfinished {
            findings.push(Finding::warning(
                "transfer_queue_unfinished",
                "the save of the transfer queue was killed: rollouts that were waiting in it are lost",
            ));
        }
        return survey.queue_unfinished;
    }
    for name in QUEUE {
        if !survey.queue.contains_key(name) {
            findings.push(missing(name));
        }
    }
    let looked = survey.queue.iter().filter(|(name, _)| queue_file(name).is_some());
    for (_, file) in looked {
        findings.extend(said_of(expect, file));
    }
    let metadata = survey.queue.get("metadata.json").and_then(facts);
    if let Some(of) = metadata.and_then(|said| said.step).filter(|of| *of != step.0) {
        let detail = format!("the transfer queue was saved at step {of}, and this is the directory of step {step}");
        let finding = Finding::error("transfer_queue_of_other_step", Verdict::Damaged, detail);
        findings.push(finding.in_file("transfer_queue/metadata.json"));
    }
    if metadata.and_then(|said| said.storage_saved) != Some(false) {
        judge_units(&survey.queue, metadata.is_some(), findings);
    }
    false
}

/// Findings in one file. A pickle too large to inspect does not stop the run that wrote it: only loading a step of
/// another run requires confirmation.
fn said_of(expect: &ExpectedLayout, file: &StepFile<'_>) -> Vec<Finding> {
    let mut found = file.findings();
    if is_too_large(expect, file) {
        for finding in found.iter_mut().filter(|f| f.code == "limit_reached") {
            finding.level = FindingLevel::Warning;
            finding.verdict = Verdict::Whole;
        }
    }
    found
}

/// Returns true if the run loads its own steps and the file's only problem is its size.
pub(super) fn is_too_large(expect: &ExpectedLayout, file: &StepFile<'_>) -> bool {
    let errors = file.report.into_iter().flat_map(|r| &r.findings);
    let mut errors = errors.filter(|f| f.level == FindingLevel::Error).peekable();
    expect.roles.is_some() && errors.peek().is_some() && errors.all(|f| f.code == "limit_reached")
}

fn facts<'a>(file: &StepFile<'a>) -> Option<&'a QueueFacts> {
    file.report?.facts.queue.as_ref()
}

/// Judges the listed units and the values of each. `saved`: the queue says that there are some.
fn judge_units(queue: &BTreeMap<&str, StepFile<'_>>, saved: bool, findings: &mut Vec<Finding>) {
    let list = |(dir, list): &(&'static str, &'static str)| Some((*dir, queue.get(format!("{dir}/{list}").as_str())?));
    let Some((dir, list)) = QUEUE_UNITS.iter().find_map(list) else {
        if saved {
            findings.push(missing(&format!("{}/{}", QUEUE_UNITS[0].0, QUEUE_UNITS[0].1)));
        }
        return;
    };
    for name in facts(list).and_then(|said| said.units.as_deref()).unwrap_or_default() {
        let path = format!("{dir}/{name}");
        let Some(unit) = queue.get(path.as_str()) else {
            findings.push(missing(&path));
            continue;
        };
        let Some(said) = facts(unit) else { continue };
        let is_its_own = said
            .unit
            .as_ref()
            .is_none_or(|own| name.ends_with(&format!("_{own}.pkl")));
        if !is_its_own {
            let detail = "it holds what belongs into another unit of storage";
            findings.push(Finding::error("misplaced", Verdict::Damaged, detail).in_file(unit.path));
        }
        findings.extend(said.blobs.iter().filter_map(|(blob, size)| {
            let path = format!("{path}.blobs/{blob}");
            let there = queue.get(path.as_str()).map(|file| file.fact.size);
            match there {
                None => Some(missing(&path)),
                Some(there) if there == *size => None,
                Some(there) => {
                    let verdict = if there < *size {
                        Verdict::Incomplete
                    } else {
                        Verdict::Damaged
                    };
                    let detail = format!("{there} bytes, and its unit of storage says {size}");
                    let finding = Finding::error("transfer_queue_size", verdict, detail);
                    Some(finding.in_file(Utf8Path::new("transfer_queue").join(path)))
                }
            }
        }));
    }
}

fn missing(name: &str) -> Finding {
    let detail = "a part of the saved transfer queue is missing";
    let finding = Finding::error("transfer_queue_missing", Verdict::Incomplete, detail);
    finding.in_file(Utf8Path::new("transfer_queue").join(name))
}
