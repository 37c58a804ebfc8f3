//! Which users' files a checkpoint may contain.
//!
//! Any user who can write into a checkpoint root can put a step there, and loading a step executes what is pickled in
//! it. So a step counts only if each of its files and directories belongs to this user, to root, or to a user trusted
//! in the settings; or if the operator named the step.

use super::fs_kind::maps_users;
use super::identity::RUN_DIR_NAME;
use crate::disk::own_ids;
use crate::ownership::OwnIds;
use crate::system::effective_user;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::MetadataExt;
use supervise_core::checkpoint::CkptId;
use supervise_core::id::Step;
use supervise_trainers::ExpectedLayout;

#[derive(Debug, Clone)]
pub(super) struct OthersStep {
    pub(super) step: Step,
    pub(super) path: Utf8PathBuf,
    pub(super) uid: u32,
}

/// Users whose files count, and the step that may belong to any user.
#[derive(Debug, Clone)]
pub(super) struct StepOwners {
    own: OwnIds,
    trusted: Vec<u32>,
    named: Option<Step>,
    named_path: Option<Utf8PathBuf>,
}

impl StepOwners {
    /// For a run that is only read: no file is created to find out which user this process writes as below `root`.
    pub(super) fn of(root: &Utf8Path, expect: &ExpectedLayout) -> Self {
        let user = effective_user();
        // A network file system may map root to another user, who owns the run directory then.
        let is_mapped = user == 0 && maps_users(root);
        let mapped = is_mapped.then(|| owner(&root.join(RUN_DIR_NAME))).flatten();
        Self {
            own: OwnIds::new(user, mapped),
            trusted: expect.trust_owners.clone(),
            named: expect.named,
            named_path: expect.named_path.clone(),
        }
    }

    /// Finds out which user this process writes as, with a temporary file in `dir`.
    pub(super) fn learn(&mut self, dir: &Utf8Path) {
        self.own = OwnIds::here();
        if owner(dir).is_some_and(|uid| !self.own.trusts(uid)) {
            self.own = own_ids(dir);
        }
    }

    pub(super) fn accepts(&self, uid: u32) -> bool {
        self.own.trusts(uid) || self.trusted.contains(&uid)
    }

    pub(super) fn own(&self) -> OwnIds {
        self.own
    }

    pub(super) fn is_named(&self, root: &Utf8Path, id: &CkptId, step: Step) -> bool {
        self.named == Some(step) || self.named_path.as_ref().is_some_and(|path| root.join(&id.0) == *path)
    }
}

fn owner(path: &Utf8Path) -> Option<u32> {
    fs::symlink_metadata(path).map(|m| m.uid()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(own: OwnIds, expect: &ExpectedLayout) -> StepOwners {
        StepOwners {
            own,
            ..StepOwners::of(Utf8Path::new("/"), expect)
        }
    }

    #[test]
    fn files_count_of_root_the_user_and_those_who_are_trusted() {
        let expect = ExpectedLayout {
            trust_owners: vec![70],
            ..ExpectedLayout::default()
        };
        // As on a network file system that maps user 5 to nobody.
        let squashed = owners(OwnIds::new(5, Some(65534)), &expect);
        let counts = [0, 5, 65534, 70, 71].map(|uid| squashed.accepts(uid));
        assert_eq!(counts, [true, true, true, true, false]);
        assert!(!owners(OwnIds::new(5, None), &expect).accepts(65534));
    }

    #[test]
    fn a_person_names_a_step_by_its_number_or_its_path() {
        let expect = ExpectedLayout {
            named: Some(Step(4)),
            named_path: Some("/ckpt/global_step_8".into()),
            ..ExpectedLayout::default()
        };
        let owners = owners(OwnIds::new(5, None), &expect);
        let named = [4, 6, 8].map(|step| {
            let id = CkptId(format!("global_step_{step}").into());
            owners.is_named(Utf8Path::new("/ckpt"), &id, Step(step))
        });
        assert_eq!(named, [true, false, true]);
    }
}
