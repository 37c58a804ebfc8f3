//! The only checkpoint of a trainer that overwrites it, or a generation of it, and the exports next to it.

use super::{CheckpointDirKind, VerifyOptions, sets, steps};
use crate::cli::exports;
use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::set::SetKind;
use supervise_core::checkpoint::kind::is_live;
use supervise_core::checkpoint::{CkptId, Verdict};
use supervise_host::io_worker::{live_dir, look_at_run};
use supervise_trainers::{ExpectedLayout, registry};

/// Judges the set in a directory by its own metadata.
pub(super) fn judge(named: &Utf8Path, dir: &Utf8Path, look: &mut VerifyOptions<'_>) -> io::Result<PathView> {
    // A newer build loads what its pointer names.
    let (root, dir) = (dir, live_dir(dir));
    let dir = dir.as_path();
    let id = CkptId(Utf8PathBuf::from(dir.file_name().unwrap_or("live")));
    let expect = ExpectedLayout {
        only: Some(id.to_string()),
        ..ExpectedLayout::default()
    };
    let trainer = exports::in_place_at(root).unwrap_or_else(registry::usual);
    let mut tracker = trainer.tracker(&expect);
    steps::note(&mut *tracker, &id.0, dir)?;
    let mut view = PathView::new(named, trainer.framework(), Verdict::Whole);
    steps::step(&mut *tracker, &id, dir, CheckpointDirKind::Live, look, &mut view);
    compare(root, look, &mut view);
    for path in exports::dirs_below(root) {
        sets::within(root, &path, SetKind::Weights, look, &mut view)?;
        view.remarks.push(format!(
            "{path} is an export of the weights: nothing can be resumed from it"
        ));
    }
    Ok(view)
}

/// Compares a set with the copies of the same run: it may mix two saves, each whole by itself.
fn compare(dir: &Utf8Path, look: &VerifyOptions<'_>, view: &mut PathView) {
    let root = camino::absolute_utf8(dir).unwrap_or_else(|_| dir.to_owned());
    let place = exports::unknown_run(&root, look.memory);
    let report = look_at_run(&place, look.depth, &mut |_| true);
    let live = report.steps.into_iter().find(|c| is_live(&c.id));
    if let (Some(live), Some(step)) = (live, view.steps.first_mut()) {
        let id = step.id.clone();
        *step = live;
        step.id = id;
        view.verdict = view.verdict.worst(step.verdict);
    }
}
