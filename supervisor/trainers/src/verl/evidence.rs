//! Reports on single files, looked up by their path within a step.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::FileReport;
use supervise_core::checkpoint::{Finding, Level, Verdict};

/// The reports of one step's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    dir: &'a Utf8Path,
    reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
}

impl<'a> Evidence<'a> {
    /// Reports with paths relative to the root; `dir` is the step's directory.
    pub(crate) fn new(dir: &'a Utf8Path, reports: &'a BTreeMap<Utf8PathBuf, FileReport>) -> Self {
        Self { dir, reports }
    }

    /// The report on a file, where it was looked into.
    pub(crate) fn of(&self, path: &Utf8Path) -> Option<&'a FileReport> {
        self.reports.get(&self.dir.join(path))
    }

    /// The findings on a file, with its name, ready to be passed on; a report that condemns without a word gets one.
    pub(crate) fn findings(&self, path: &Utf8Path) -> Vec<Finding> {
        let Some(report) = self.of(path) else {
            return Vec::new();
        };
        let mut out: Vec<Finding> = report.findings.iter().map(|f| f.clone().in_file(path)).collect();
        out.extend(misplaced(path, report));
        let verdict = report.verdict;
        if verdict != Verdict::Whole && !out.iter().any(|f| f.level == Level::Error) {
            out.push(Finding::error("file_not_whole", verdict, format!("the file is {verdict}")).in_file(path));
        }
        out
    }

    /// The world size that `fsdp_config.json` names, where it was looked into and says one.
    pub(crate) fn world_size(&self, path: &Utf8Path) -> Option<u32> {
        self.of(path)?.facts.world_size.filter(|n| *n > 0)
    }

    /// The files that an index of exported weights names.
    pub(crate) fn weight_files(&self, path: &Utf8Path) -> &'a [String] {
        self.of(path).map_or(&[], |report| report.facts.shards.as_slice())
    }
}

/// `torch.save` writes the file's own name into every entry: another name is another file's content, such as a shard
/// of another rank. Written through a buffer, the name is `archive`, which says nothing.
fn misplaced(path: &Utf8Path, report: &FileReport) -> Option<Finding> {
    let written_as = report.facts.torch.as_ref()?.archive.as_deref()?;
    if written_as == "archive" || path.file_stem() == Some(written_as) {
        return None;
    }
    let detail = format!("the file was written as {written_as}.pt: it holds what belongs there");
    Some(Finding::error("misplaced", Verdict::Damaged, detail).in_file(path))
}
