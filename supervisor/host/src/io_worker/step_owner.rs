//! Users whose files a checkpoint may hold.
//!
//! Whoever can write into a checkpoint root can put a step there, and loading a step runs what is pickled in it. So a step counts
//! only if each of its files and directories belongs to this user, to root, or to a user whom the settings trust; or if a person
//! named the step.

use super::fs_kind::maps_users;
use super::identity::RUN_DIR_NAME;
use crate::disk::own_ids;
use crate::ownership::OwnIds;
use crate::system::effective_user;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::MetadataExt;
use supervise_core::checkpoint::{CheckpointSummary, Finding, Verdict};
use supervise_core::id::Step;
use supervise_trainers::Expectation;

/// Users whose files count, and the step that may belong to anybody.
#[derive(Debug, Clone)]
pub(super) struct StepOwners {
    own: OwnIds,
    trusted: Vec<u32>,
    named: Option<Step>,
    named_path: Option<Utf8PathBuf>,
}

impl StepOwners {
    /// Those of a run that is only looked at: nothing is created to learn as whom this process writes below `root`.
    pub(super) fn of(root: &Utf8Path, expect: &Expectation) -> Self {
        let user = effective_user();
        // A network file system may give root's files to another user, who owns the run directory then.
        let is_mapped = user == 0 && maps_users(root);
        let mapped = is_mapped.then(|| owner(&root.join(RUN_DIR_NAME))).flatten();
        Self {
            own: OwnIds::new(user, mapped),
            trusted: expect.trust_owners.clone(),
            named: expect.named,
            named_path: expect.named_path.clone(),
        }
    }

    /// Learns from a file that is created in `dir` and removed again as whom this process writes there.
    pub(super) fn learn(&mut self, dir: &Utf8Path) {
        self.own = OwnIds::here();
        if owner(dir).is_some_and(|uid| !self.own.trusts(uid)) {
            self.own = own_ids(dir);
        }
    }

    /// Whether files of this user count.
    pub(super) fn accepts(&self, uid: u32) -> bool {
        self.own.trusts(uid) || self.trusted.contains(&uid)
    }

    /// This process, as the file system knows it.
    pub(super) fn own(&self) -> OwnIds {
        self.own
    }

    fn is_named(&self, root: &Utf8Path, c: &CheckpointSummary) -> bool {
        self.named == Some(c.step) || self.named_path.as_ref().is_some_and(|path| root.join(&c.id.0) == *path)
    }

    /// A step of which `file` belongs to another user: it is not whole for this run, whatever stands in it, unless a person
    /// named it.
    pub(super) fn refuse(
        &self,
        root: &Utf8Path,
        mut c: CheckpointSummary,
        file: &Utf8Path,
        uid: u32,
    ) -> CheckpointSummary {
        if self.is_named(root, &c) {
            return c;
        }
        let detail = format!(
            "it belongs to user {uid}, and this run to user {}: it is not resumed from. If that user is to be trusted: `supervise run --from {}` for this step, or `proof.trust_owners: [{uid}]` for all",
            effective_user(),
            c.step,
        );
        let finding = Finding::error("another_owner", Verdict::Unknown, detail).in_file(file);
        c.findings.insert(0, finding);
        c.verdict = Verdict::Unknown;
        (c.proven, c.part, c.other_owner) = (None, None, Some(uid));
        c
    }
}

fn owner(path: &Utf8Path) -> Option<u32> {
    fs::symlink_metadata(path).map(|m| m.uid()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use supervise_core::checkpoint::{CkptId, Depth};
    use supervise_trainers::registry::first_with_steps;

    fn owners(own: OwnIds, expect: &Expectation) -> StepOwners {
        StepOwners {
            own,
            ..StepOwners::of(Utf8Path::new("/"), expect)
        }
    }

    #[test]
    fn files_count_of_root_the_user_and_those_who_are_trusted() {
        let expect = Expectation {
            trust_owners: vec![70],
            ..Expectation::default()
        };
        // As on a network file system that gives user 5's files to nobody.
        let squashed = owners(OwnIds::new(5, Some(65534)), &expect);
        let counts = [0, 5, 65534, 70, 71].map(|uid| squashed.accepts(uid));
        assert_eq!(counts, [true, true, true, true, false]);
        assert!(!owners(OwnIds::new(5, None), &expect).accepts(65534));
    }

    #[test]
    fn a_step_of_another_user_counts_only_if_a_person_names_it() {
        let named = Expectation {
            named: Some(Step(4)),
            named_path: Some("/ckpt/global_step_8".into()),
            ..Expectation::default()
        };
        let owners = owners(OwnIds::new(5, None), &named);
        let root = Utf8Path::new("/ckpt");
        for (step, counts) in [(4, true), (6, false), (8, true)] {
            let mut tracker = first_with_steps().0.tracker(&named);
            let id = CkptId(format!("global_step_{step}").into());
            let mut summary = tracker.judge(&id, Depth::Full, &BTreeMap::new());
            (summary.step, summary.verdict) = (Step(step), Verdict::Whole);
            let seen = owners.refuse(root, summary, Utf8Path::new("global_step_8/data.pt"), 9);
            assert_eq!(seen.verdict == Verdict::Whole, counts, "{step}");
            assert_eq!(seen.other_owner.is_none(), counts, "{step}");
        }
    }
}
