//! AReaL's only checkpoint, or a generation of it, and the exports beside it.

use super::{Kind, Look, sets, steps};
use crate::cli::exports;
use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::set::SetKind;
use supervise_core::checkpoint::{CkptId, Verdict};
use supervise_core::spec::TrainerKind;
use supervise_trainers::{Expectation, adapter};

/// Judges the set in a directory by what it says of itself.
pub(super) fn judge(named: &Utf8Path, dir: &Utf8Path, look: &mut Look<'_>) -> io::Result<PathView> {
    let id = CkptId(Utf8PathBuf::from(dir.file_name().unwrap_or("live")));
    let expect = Expectation {
        only: Some(id.to_string()),
        ..Expectation::default()
    };
    let mut tracker = adapter(TrainerKind::Areal).tracker(&expect);
    steps::note(&mut *tracker, &id.0, dir)?;
    let mut view = PathView::new(named, "areal", Verdict::Whole);
    steps::step(&mut *tracker, &id, dir, Kind::Live, look, &mut view);
    for path in exports::dirs_below(dir) {
        sets::within(dir, &path, SetKind::Weights, look, &mut view)?;
        view.remarks.push(format!(
            "{path} is an export of the weights: nothing can be resumed from it"
        ));
    }
    Ok(view)
}
