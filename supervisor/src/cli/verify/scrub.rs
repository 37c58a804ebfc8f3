//! `supervise verify --scrub`: rereads every proven file and compares it with the proof record.

use super::super::{exports, target};
use crate::error::CliError;
use crate::prepare::proof_memory;
use crate::printer::ByteMeter;
use crate::render::count;
use crate::render::verify::{FileView, PathView};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::{CkptId, Finding, Verdict};
use supervise_host::io_worker::{RUN_DIR_NAME, ScrubResult, VERIFIED, scrub};
use supervise_trainers::{ExpectedLayout, TrainerAdapter, adapter_of, expect, registry};

/// The files to reread, and their proof record.
struct ScrubTarget {
    root: Utf8PathBuf,
    run_dir: Utf8PathBuf,
    trainer: &'static dyn TrainerAdapter,
    expect: ExpectedLayout,
    step: Option<CkptId>,
}

/// Scrubs a run's root, or one step of it. `memory`: bytes to use, if given.
pub(super) fn one(name: &Utf8Path, memory: Option<u64>, meter: &mut ByteMeter) -> Result<PathView, CliError> {
    let mut place = place(name)?;
    place.expect.memory = memory.unwrap_or(place.expect.memory);
    let found = scrub(&place.root, &place.run_dir, place.trainer, &place.expect, &mut |read| {
        meter.tell(read, None);
        true
    })
    .map_err(|e| CliError::environment(format!("{}: {e}", place.root)))?;
    let wanted = |id: &CkptId| place.step.as_ref().is_none_or(|s| s == id);
    let mut view = PathView::new(name, "scrub", Verdict::Whole);
    view.remarks = found.remarks;
    for (path, why) in &found.unreadable {
        view.verdict = view.verdict.worst(Verdict::Unreadable);
        view.remarks.push(format!("{path} cannot be read: {why}"));
    }
    for id in found.unrecorded.iter().filter(|id| wanted(id)) {
        view.remarks.push(format!(
            "{id}: no record of it: there is nothing to compare its bytes with"
        ));
    }
    for step in found.steps.into_iter().filter(|s| wanted(&s.summary.id)) {
        add(&mut view, step);
    }
    if view.steps.is_empty() && view.verdict == Verdict::Whole {
        view.verdict = Verdict::Unknown;
        view.remarks.push(format!(
            "nothing was compared: {}/{VERIFIED} holds no record of it",
            place.run_dir
        ));
    }
    Ok(view)
}

fn add(view: &mut PathView, mut step: ScrubResult) {
    let id = step.summary.id.clone();
    let all = count(step.files.len() as u64, "file");
    view.remarks.push(format!(
        "{id}: {all} read again, {} compared with the record",
        step.compared
    ));
    for path in &step.missing {
        let detail = "it was proven once and is not there any more";
        let finding = Finding::error("proven_file_missing", Verdict::Incomplete, detail).in_file(path.clone());
        step.summary.verdict = step.summary.verdict.worst(finding.effect());
        step.summary.findings.push(finding);
    }
    view.files.extend(
        step.files
            .iter()
            .map(|(path, report)| FileView::of(path.as_str(), report, Vec::new())),
    );
    view.verdict = view.verdict.worst(step.summary.verdict);
    view.steps.push(step.summary);
}

fn place(name: &Utf8Path) -> Result<ScrubTarget, CliError> {
    let path = name.canonicalize_utf8().unwrap_or_else(|_| name.to_owned());
    let step = path.file_name().filter(|n| registry::of_step_name(n).is_some());
    let (whole, step) = match (step, path.parent()) {
        (Some(step), Some(parent)) => (parent.to_owned(), Some(CkptId(step.into()))),
        _ => (path, None),
    };
    let seen = target::find(if step.is_some() { whole.as_str() } else { name.as_str() });
    if let Ok(seen) = &seen
        && let Some(spec) = &seen.spec_as_seen()
        && let Some(root) = &spec.root
    {
        return Ok(ScrubTarget {
            // The live set changes with every save: only its copies stay as proven.
            root: spec
                .saves
                .in_place()
                .map_or_else(|| root.clone(), |l| l.store.join("protected")),
            run_dir: spec.run_dir.clone(),
            trainer: adapter_of(spec),
            expect: expect(spec),
            step,
        });
    }
    let run_dir = whole.join(RUN_DIR_NAME);
    if run_dir.join(VERIFIED).is_dir() {
        return Ok(ScrubTarget {
            root: whole.clone(),
            run_dir,
            trainer: exports::owner_of(&whole),
            expect: ExpectedLayout {
                memory: proof_memory()?,
                ..ExpectedLayout::default()
            },
            step,
        });
    }
    Err(CliError::usage(format!("{name}: there is no record of what was proven here"))
        .hint("a scrub compares with what a run proved before: name its checkpoint root, a step in it, its YAML or its identity"))
}
