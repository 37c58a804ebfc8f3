//! AReaL's recover info, next to its weights: five JSON files and the position in the data.
//!
//! They are written one after the other, the position in the data last. AReaL reads them before anything else; if one cannot be read, it
//! silently starts the run from the beginning, so each is checked here.

use super::SetCheck;
use crate::kind::FileKind;
use crate::required_file::RequiredFile;
use std::collections::BTreeSet;
use supervise_core::checkpoint::{Finding, Verdict};

/// In the order they are written.
const FILES: [(&str, FileKind); 6] = [
    ("step_info.json", FileKind::StepInfo),
    ("saver_info.json", FileKind::FreqControl),
    ("evaluator_info.json", FileKind::FreqControl),
    ("stats_logger_info.json", FileKind::StatsInfo),
    ("checkpoint_info.json", FileKind::FreqControl),
    ("dataloader_info.pkl", FileKind::Pickle),
];

/// Whether a directory is one: most of the names are present, even if one was lost.
pub(super) fn is_one(names: &BTreeSet<&str>) -> bool {
    FILES.iter().filter(|(name, _)| names.contains(name)).count() >= 3
}

pub(super) fn needs(names: &BTreeSet<&str>) -> Vec<RequiredFile> {
    let there = FILES.iter().filter(|(name, _)| names.contains(name));
    there.map(|(name, kind)| RequiredFile::new(*name, *kind)).collect()
}

/// The code for a missing file, and its meaning.
pub(crate) const MISSING: (&str, &str) = (
    "recover_info_missing",
    "a file that AReaL reads before it goes on is not there: it would begin the run anew",
);

/// Checks that all six are present; their contents are in their reports.
pub(super) fn judge(seen: &mut SetCheck<'_>) {
    for (name, _) in FILES {
        seen.belongs(name);
        if !seen.has(name) {
            let detail = "the file is not there: without it AReaL begins the run anew";
            let f = Finding::error(MISSING.0, Verdict::Incomplete, detail);
            seen.say(f.in_file(name));
        }
    }
}
