//! Files of a step that hold one part of its state.

use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport, RequiredFile};
use supervise_core::checkpoint::{Depth, Finding};

/// A part of the state that is saved in files of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StatePart {
    /// Position of the run: step, epoch, logs.
    State,
    /// Weights, or adapters.
    Weights,
    /// The optimizer's state.
    Optimizer,
    /// The learning-rate schedule.
    Schedule,
    /// The loss scale.
    Scaler,
    /// Random states of the ranks.
    Rng,
    /// Where the rollouts are, in a file of their own.
    Rollout,
    /// The entropy controller.
    Entropy,
    /// Position in the data, in files of their own.
    Data,
}

impl StatePart {
    /// The word in a summary's contents.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Weights => "model",
            Self::Optimizer => "optimizer",
            Self::Schedule => "schedule",
            Self::Scaler => "scaler",
            Self::Rng => "rng",
            Self::Rollout => "rollout",
            Self::Entropy => "entropy",
            Self::Data => "data",
        }
    }
}

/// Files that belong together in one directory of the step; the empty name: the step itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileSet {
    dir: String,
    kind: SetKind,
}

/// One part of the state in one step.
#[derive(Debug, Default)]
pub(crate) struct PartFiles {
    /// Files to be looked into, relative to the step.
    pub(crate) needs: Vec<RequiredFile>,
    sets: Vec<FileSet>,
    /// Evidence of its names alone.
    pub(crate) findings: Vec<Finding>,
}

impl PartFiles {
    /// Nothing of it is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    pub(crate) fn add(&mut self, path: &str, kind: FileKind) {
        self.needs.push(RequiredFile::new(path, kind));
    }

    pub(crate) fn add_set(&mut self, dir: &str, kind: SetKind, files: &StepListing<'_>) {
        let needs = set::needs(kind, files.in_dir(dir).map(|(name, _)| name));
        self.needs
            .extend(needs.into_iter().map(|need| need.under(Utf8Path::new(dir))));
        let dir = dir.to_owned();
        self.sets.push(FileSet { dir, kind });
    }

    /// Names or files that show more when they are compared.
    pub(crate) fn compare(&self, files: &StepListing<'_>, reports: &BTreeMap<&str, &FileReport>) -> Vec<Finding> {
        let mut out = self.findings.clone();
        for found in &self.sets {
            out.extend(found.compare(self, files, reports));
        }
        out
    }

    /// How deep the least proven file was looked into; `None` where one was not.
    pub(crate) fn proven(&self, depth: Depth, reports: &BTreeMap<&str, &FileReport>) -> Option<Depth> {
        let of = |need: &RequiredFile| reports.get(need.path.as_str()).map(|r| r.proven.min(depth));
        self.needs
            .iter()
            .try_fold(depth, |least, need| Some(least.min(of(need)?)))
    }
}

impl FileSet {
    /// Verdict on the set's files together; what each is alone is told by its own report.
    fn compare(
        &self,
        group: &PartFiles,
        files: &StepListing<'_>,
        reports: &BTreeMap<&str, &FileReport>,
    ) -> Vec<Finding> {
        let sizes: BTreeMap<String, u64> = files
            .in_dir(&self.dir)
            .map(|(name, size)| (name.to_owned(), size))
            .collect();
        let dir = Utf8Path::new(&self.dir);
        let inside = |path: &Utf8Path| {
            let name = path.strip_prefix(dir).ok()?.as_str();
            (!name.contains('/')).then(|| name.to_owned())
        };
        let own = group
            .needs
            .iter()
            .filter_map(|need| Some((inside(&need.path)?, (*reports.get(need.path.as_str())?).clone())));
        let own: BTreeMap<String, FileReport> = own.collect();
        let alone: Vec<&Finding> = own.values().flat_map(|r| &r.findings).collect();
        let found = set::judge(self.kind, &sizes, &own).findings;
        found
            .into_iter()
            .filter(|f| !alone.iter().any(|a| a.code == f.code && a.detail == f.detail))
            .map(|mut f| {
                f.file = f.file.map(|name| dir.join(name));
                f
            })
            .collect()
    }
}

/// Names and sizes of the regular files of a step.
#[derive(Debug, Default)]
pub(crate) struct StepListing<'a> {
    pub(crate) by_path: BTreeMap<&'a str, u64>,
}

impl<'a> StepListing<'a> {
    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// A directory of the step holds files.
    pub(crate) fn has_dir(&self, dir: &str) -> bool {
        self.in_dir(dir).next().is_some()
    }

    /// Files directly in a directory of the step, by name.
    pub(crate) fn in_dir(&self, dir: &str) -> impl Iterator<Item = (&'a str, u64)> {
        self.by_path.iter().filter_map(move |(path, size)| {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            (above == dir).then_some((name, *size))
        })
    }

    /// Directories directly in the step that hold files.
    pub(crate) fn dirs(&self) -> BTreeSet<&'a str> {
        let first = |path: &&'a str| path.split_once('/').map(|(dir, _)| dir);
        self.by_path.keys().filter_map(first).collect()
    }
}
