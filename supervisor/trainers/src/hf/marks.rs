//! Values that distinguish one save of a step from another.

use super::judge::below;
use super::names;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::{FileReport, StepCounters};
use supervise_core::id::Step;

pub(crate) fn marks(step: Step, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
    let dir = names::step_dir(step);
    let own = below(&dir, reports);
    let torch = |name: &str| own.get(name)?.facts.torch.as_ref();
    let optimizer = names::OPTIMIZERS
        .iter()
        .find_map(|n| torch(n)?.optimizer_steps.iter().max().copied());
    let schedule = torch(names::SCHEDULE).and_then(|f| f.scheduler_steps);
    let counted = [("optimizer", optimizer), ("schedule", schedule)];
    let crcs: Option<Vec<_>> = own.iter().map(|(p, r)| Some((Utf8Path::new(*p), r.crc?))).collect();
    StepCounters {
        counters: counted
            .into_iter()
            .filter_map(|(name, n)| Some((name.to_owned(), n?)))
            .collect(),
        digest: crcs
            .filter(|all| !all.is_empty())
            .map(supervise_checkpoint::step_counters::digest),
    }
}
