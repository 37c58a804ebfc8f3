//! A role's listing, sorted like a step's, as it is now or in the first layout.
//!
//! A killed conversion, or verl's own script, leaves files of the first layout under names of the second. Here they
//! are mapped back to the old names and judged by the rules of the first layout.

use super::{MigrateRole, RoleSnapshot};
use crate::verl::evidence::StepReports;
use crate::verl::step_files::{RoleFiles, StepFiles};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::FileReport;
use supervise_core::checkpoint::{EntryKind, FileFact};

/// An invented step that contains the role, for the code that sorts steps.
const STEP: &str = "step";

/// Files of a role, under a step's paths.
pub(super) struct Listing<'a> {
    role: &'a MigrateRole,
    facts: BTreeMap<String, &'a FileFact>,
    reports: BTreeMap<Utf8PathBuf, FileReport>,
}

impl<'a> Listing<'a> {
    pub(super) fn of(
        role: &'a MigrateRole,
        facts: &'a [FileFact],
        reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
    ) -> Self {
        Self::under(role, facts, reports, &|path| Some(path.to_owned()))
    }

    /// Lists the entries under the names of the first layout: the archive is read from its current location, the second layout
    /// left out.
    pub(super) fn as_first(seen: &RoleSnapshot<'a>, source: Option<&str>) -> Self {
        let moved = !seen
            .facts
            .iter()
            .any(|f| f.path.starts_with("huggingface") && f.kind == EntryKind::File);
        let archive = source.filter(|s| *s != "dist_ckpt").map(|s| format!("{s}/"));
        Self::under(seen.role, seen.facts, seen.reports, &|path: &str| {
            let from = archive.as_deref().and_then(|from| path.strip_prefix(from));
            if let Some(name) = from {
                return Some(format!("dist_ckpt/{name}"));
            }
            if let Some(name) = path.strip_prefix("model/huggingface/").filter(|_| moved) {
                return Some(format!("huggingface/{name}"));
            }
            let second = ["model", "optimizer", "extra", "ckpt_contents.json"];
            let head = path.split('/').next().unwrap_or(path);
            (!second.contains(&head)).then(|| path.to_owned())
        })
    }

    fn under(
        role: &'a MigrateRole,
        facts: &'a [FileFact],
        reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
        name: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let placed = |path: &str| Some(Utf8Path::new(&role.name).join(name(path)?));
        Self {
            role,
            facts: facts
                .iter()
                .filter_map(|f| Some((placed(f.path.as_str())?.into_string(), f)))
                .collect(),
            reports: reports
                .iter()
                .filter_map(|(path, r)| Some((Utf8Path::new(STEP).join(placed(path.as_str())?), r.clone())))
                .collect(),
        }
    }

    /// Passes the sorted files to `ask`.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&RoleFiles<'_>) -> T) -> T {
        let facts = self.facts.iter().map(|(path, fact)| (path.as_str(), *fact));
        let mut survey = StepFiles::of(facts, StepReports::below(STEP, &self.reports));
        let files = survey.roles.remove(self.role.name.as_str()).unwrap_or_default();
        ask(&files)
    }

    /// Makes a step's path relative to the role.
    pub(super) fn inside<'p>(&self, path: &'p str) -> &'p str {
        let inside = path.strip_prefix(self.role.name.as_str()).unwrap_or(path);
        inside.strip_prefix('/').unwrap_or(inside)
    }
}
