//! Steps of other users under a root: reported, and excluded from everything else.
//!
//! Their contents are neither read nor compared with: a step that any user may plant must not influence the verdict
//! on this run's own.

use super::proof_cache::ProofCache;
use super::scan::RootProver;
use super::step_owner::OthersStep;
use crate::system::effective_user;
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, Verdict};

impl RootProver {
    /// Like [`RootProver::refuse_others`], before steps are opened. Steps in the journal are left for later: their
    /// pins are not known yet.
    pub(super) fn refuse_listed_others(&mut self) {
        self.refuse_where(|prover, id| !prover.own.contains_key(id.0.as_str()));
    }

    /// Excludes steps that hold files of other users, unless the operator named them or the journal records them
    /// unchanged.
    pub(super) fn refuse_others(&mut self) {
        self.refuse_where(|prover, id| !prover.is_known(id, Depth::Structure));
    }

    fn refuse_where(&mut self, is_strange: impl Fn(&Self, &CkptId) -> bool) {
        if !self.cache.has_others() {
            return;
        }
        for (id, step) in self.cache.steps.steps() {
            let Some((path, uid)) = self.cache.other_owner(&id) else {
                continue;
            };
            if is_strange(self, &id) && !self.cache.owners.is_named(&self.root, &id, step) {
                let path = path.to_owned();
                self.cache.refuse(&id, OthersStep { step, path, uid });
            }
        }
    }

    pub(super) fn reconsider_others(&mut self) {
        let names: Vec<String> = self.cache.refused.keys().map(ToString::to_string).collect();
        for name in names {
            self.tree.drop_top(&name, &mut self.cache);
        }
    }

    pub(super) fn others(&mut self, depth: Depth) -> Vec<CheckpointSummary> {
        let ProofCache { steps, refused, .. } = &mut self.cache;
        let say = |(name, other): (&Utf8PathBuf, &OthersStep)| {
            let summary = steps.judge(&CkptId(name.clone()), depth, &BTreeMap::new());
            refused_summary(summary, other)
        };
        refused.iter().map(say).collect()
    }
}

/// It is not whole for this run, whatever it contains.
fn refused_summary(blank: CheckpointSummary, other: &OthersStep) -> CheckpointSummary {
    let (step, uid) = (other.step, other.uid);
    let detail = format!(
        "it belongs to user {uid}, and this run to user {}: it is not resumed from. If that user is to be trusted, add `--from {step}` to the command for this step, or set `proof.trust_owners: [{uid}]` for all",
        effective_user(),
    );
    CheckpointSummary {
        step,
        verdict: Verdict::Unknown,
        proven: None,
        part: None,
        other_owner: Some(uid),
        findings: vec![Finding::error("another_owner", Verdict::Unknown, detail).in_file(other.path.clone())],
        ..blank
    }
}
