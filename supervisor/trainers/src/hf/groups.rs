//! Files of a step that hold one part of its state.

use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport, RequiredFile};
use supervise_core::checkpoint::{Depth, Finding};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StatePart {
    /// Position of the run: step, epoch, logs.
    State,
    Weights,
    Optimizer,
    Schedule,
    Scaler,
    Rng,
    Rollout,
    Entropy,
    Data,
}

impl StatePart {
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

/// Files that belong together in one directory of the step; an empty name means the step itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileSet {
    dir: String,
    kind: SetKind,
}

#[derive(Debug, Default)]
pub(crate) struct PartFiles {
    pub(crate) needs: Vec<RequiredFile>,
    sets: Vec<FileSet>,
    /// Findings from file names alone.
    pub(crate) findings: Vec<Finding>,
}

impl PartFiles {
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

    pub(crate) fn compare(&self, files: &StepListing<'_>, reports: &BTreeMap<&str, &FileReport>) -> Vec<Finding> {
        let mut out = self.findings.clone();
        for found in &self.sets {
            out.extend(found.compare(self, files, reports));
        }
        out
    }

    /// How deep the least proven file was inspected; `None` if one was not.
    pub(crate) fn proven(&self, depth: Depth, reports: &BTreeMap<&str, &FileReport>) -> Option<Depth> {
        let of = |need: &RequiredFile| reports.get(need.path.as_str()).map(|r| r.proven.min(depth));
        self.needs
            .iter()
            .try_fold(depth, |least, need| Some(least.min(of(need)?)))
    }
}

impl FileSet {
    /// Judges the files as a set, without findings that a single file's report already has.
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

#[derive(Debug, Default)]
pub(crate) struct StepListing<'a> {
    pub(crate) by_path: BTreeMap<&'a str, u64>,
}

impl<'a> StepListing<'a> {
    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    pub(crate) fn has_dir(&self, dir: &str) -> bool {
        self.in_dir(dir).next().is_some()
    }

    pub(crate) fn in_dir(&self, dir: &str) -> impl Iterator<Item = (&'a str, u64)> {
        self.by_path.iter().filter_map(move |(path, size)| {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            (above == dir).then_some((name, *size))
        })
    }

    pub(crate) fn dirs(&self) -> BTreeSet<&'a str> {
        let first = |path: &&'a str| path.split_once('/').map(|(dir, _)| dir);
        self.by_path.keys().filter_map(first).collect()
    }
}
