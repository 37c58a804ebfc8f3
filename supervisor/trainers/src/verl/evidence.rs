//! Files of a step with the reports on them.

use camino::{Utf8Path, Utf8PathBuf};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use supervise_checkpoint::FileReport;
use supervise_checkpoint::torch::TorchFacts;
use supervise_core::checkpoint::{FileFact, Finding, FindingLevel, Verdict};

/// The reports on the files of one step, by path relative to it, to be fetched in path order.
#[derive(Debug, Default)]
pub(crate) struct StepReports<'a> {
    sorted: Vec<(&'a str, &'a FileReport)>,
    at: usize,
}

impl<'a> StepReports<'a> {
    /// Selects the reports below a step's directory, from reports with paths relative to the root.
    pub(crate) fn below(dir: &str, reports: &'a BTreeMap<Utf8PathBuf, FileReport>) -> Self {
        let from = Bound::Included(Utf8Path::new(dir));
        let inside = |path: &'a Utf8PathBuf| path.as_str().strip_prefix(dir)?.strip_prefix('/');
        let mut sorted: Vec<(&str, &FileReport)> = reports
            .range::<Utf8Path, _>((from, Bound::Unbounded))
            // A report on the directory itself would come before those below it.
            .skip_while(|(path, _)| path.as_str() == dir)
            .map_while(|(path, report)| Some((inside(path)?, report)))
            .collect();
        // Paths sort by components, a listing by characters: nearly the same order.
        sorted.sort_by_key(|(path, _)| *path);
        Self { sorted, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the report on a file; paths must be passed in order.
    pub(crate) fn next(&mut self, path: &str) -> Option<&'a FileReport> {
        loop {
            let (known, report) = self.sorted.get(self.at)?;
            match (*known).cmp(path) {
                Ordering::Less => self.at += 1,
                Ordering::Equal => return Some(*report),
                Ordering::Greater => return None,
            }
        }
    }
}

/// One file of a step. The path is borrowed from the listing: a step of many ranks is judged without copying names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepFile<'a> {
    pub(crate) path: &'a str,
    /// Its index among the sorted paths of the step.
    pub(crate) place: u32,
    pub(crate) fact: &'a FileFact,
    pub(crate) report: Option<&'a FileReport>,
}

impl<'a> StepFile<'a> {
    /// Returns its findings, with the file's name; a condemning report without findings gets one.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let Some(report) = self.report else {
            return Vec::new();
        };
        let mut out: Vec<Finding> = report.findings.iter().map(|f| f.clone().in_file(self.path)).collect();
        out.extend(self.misplaced());
        let verdict = report.verdict;
        if verdict != Verdict::Whole && !out.iter().any(|f| f.level == FindingLevel::Error) {
            out.push(Finding::error("file_not_whole", verdict, format!("the file is {verdict}")).in_file(self.path));
        }
        out
    }

    /// Facts about a `torch.save` file other than its tensors.
    pub(crate) fn torch(&self) -> Option<&'a TorchFacts> {
        self.report?.facts.torch.as_ref()
    }

    /// The world size in `fsdp_config.json`, if inspected and present.
    pub(crate) fn world_size(&self) -> Option<u32> {
        self.report?.facts.world_size.filter(|n| *n > 0)
    }

    pub(crate) fn fsdp_version(&self) -> Option<u32> {
        self.report?.facts.fsdp_version
    }

    pub(crate) fn weight_files(&self) -> &'a [String] {
        self.report.map_or(&[], |report| report.facts.shards.as_slice())
    }

    /// `torch.save` writes the file's own name into every entry: another name means the content of another file, such
    /// as another rank's shard. If written through a buffer, the name is `archive`, which says nothing.
    pub(crate) fn misplaced(&self) -> Option<Finding> {
        let written_as = self.torch()?.archive.as_deref()?;
        let name = self.path.rsplit_once('/').map_or(self.path, |(_, name)| name);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        if written_as == "archive" || stem == written_as {
            return None;
        }
        let detail = format!("the file was written as {written_as}.pt: it holds what belongs there");
        Some(Finding::error("misplaced", Verdict::Damaged, detail).in_file(self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_checkpoint::{FileKind, unreadable_file};

    #[test]
    fn every_report_is_found_in_the_order_of_a_listing() {
        // `-` and `.` sort before `/`, but paths are compared by components first.
        let names = [
            "actor-old/a.pt",
            "actor.bak",
            "actor/a.pt",
            "actor/huggingface.json",
            "actor/huggingface/config.json",
            "actor/huggingface0",
            "data.pt",
        ];
        let mut sorted = names;
        sorted.sort_unstable();
        assert_eq!(names, sorted, "the listing is in order");
        let report = |n: usize| {
            let mut report = unreadable_file(FileKind::Opaque, std::io::Error::other("nothing was read"));
            report.bytes = n as u64;
            report
        };
        let here = names.iter().enumerate();
        let mut all: BTreeMap<Utf8PathBuf, FileReport> = here
            .map(|(n, name)| (Utf8Path::new("global_step_8").join(name), report(n)))
            .collect();
        for other in [
            "global_step_8",
            "global_step_8.bak/data.pt",
            "global_step_80/data.pt",
            "global_step_7/data.pt",
        ] {
            all.insert(other.into(), report(99));
        }
        let mut found = StepReports::below("global_step_8", &all);
        for (n, name) in names.iter().enumerate() {
            assert_eq!(found.next("a file without a report"), None);
            assert_eq!(found.next(name).map(|r| r.bytes), Some(n as u64), "{name}");
        }
        assert_eq!(found.next("zzz"), None);
        // Skipping some files loses no report.
        let mut found = StepReports::below("global_step_8", &all);
        assert_eq!(found.next("data.pt").map(|r| r.bytes), Some(6));
        assert!(StepReports::below("global_step_9", &all).is_empty());
    }
}
