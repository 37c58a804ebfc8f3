//! Files that AReaL keeps of a run beside its weights: five JSON files and the place in the data.
//!
//! They are written one after the other, the place in the data last. AReaL reads them before anything else; where one
//! does not read, it begins the run anew without a word, so each is looked at here.

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

/// Returns true if a directory is one: most of the names are there, also where one was lost.
pub(super) fn is_one(names: &BTreeSet<&str>) -> bool {
    FILES.iter().filter(|(name, _)| names.contains(name)).count() >= 3
}

pub(super) fn needs(names: &BTreeSet<&str>) -> Vec<RequiredFile> {
    let there = FILES.iter().filter(|(name, _)| names.contains(name));
    there.map(|(name, kind)| RequiredFile::new(*name, *kind)).collect()
}

/// A file is missing: the code, and what it means.
pub(crate) const MISSING: (&str, &str) = (
    "recover_info_missing",
    "a file that AReaL reads before it goes on is not there: it would begin the run anew",
);

/// All six are there; what each says is in its report.
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
