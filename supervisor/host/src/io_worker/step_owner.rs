//! Users whose files a checkpoint may hold.
//!
//! Whoever can write into a checkpoint root can put a step there, and loading a step runs what is pickled in it. So a step counts
//! only if each of its files and directories belongs to this user, to root, or to a user whom the settings trust; or if a person
//! named the step.

use super::fs_kind::FsKind;
use crate::disk::write_test;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::MetadataExt;
use supervise_core::checkpoint::{CheckpointSummary, Finding, Verdict};
use supervise_core::id::Step;
use supervise_trainers::Expectation;

/// Users whose files count, and the step that may belong to anybody.
#[derive(Debug, Clone)]
pub(super) struct StepOwners {
    /// Root, and the user as whom this process writes here.
    own: Vec<u32>,
    trusted: Vec<u32>,
    named: Option<Step>,
    named_path: Option<Utf8PathBuf>,
}

impl StepOwners {
    /// Those of a run that is only looked at: nothing is created to learn as whom this process writes below `root`.
    pub(super) fn of(root: &Utf8Path, expect: &Expectation) -> Self {
        let mut own = vec![0, euid()];
        // A network file system may give root's files to another user, who owns the run directory then.
        if euid() == 0 && FsKind::near(root).untold.is_some() {
            own.extend(owner(&root.join(super::identity::RUN_DIR_NAME)));
        }
        Self {
            own,
            trusted: expect.trust_owners.clone(),
            named: expect.named,
            named_path: expect.named_path.clone(),
        }
    }

    /// Learns from a file that is created in `dir` and removed again as whom this process writes there.
    pub(super) fn learn(&mut self, dir: &Utf8Path) {
        self.own = vec![0, euid()];
        let known = owner(dir).is_none_or(|uid| self.own.contains(&uid));
        if let Some(uid) = (!known).then(|| write_test(dir).ok()).flatten() {
            self.own.push(uid);
        }
    }

    /// Whether files of this user count.
    pub(super) fn accepts(&self, uid: u32) -> bool {
        self.is_own(uid) || self.trusted.contains(&uid)
    }

    /// Whether this user is root, or the one as whom this process writes.
    pub(super) fn is_own(&self, uid: u32) -> bool {
        self.own.contains(&uid)
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
            self.own.last().copied().unwrap_or_default(),
            c.step,
        );
        let finding = Finding::error("another_owner", Verdict::Unknown, detail).in_file(file);
        c.findings.insert(0, finding);
        c.verdict = Verdict::Unknown;
        (c.proven, c.part, c.other_owner) = (None, None, Some(uid));
        c
    }
}

/// The effective user of this process.
fn euid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn owner(path: &Utf8Path) -> Option<u32> {
    fs::symlink_metadata(path).map(|m| m.uid()).ok()
}
