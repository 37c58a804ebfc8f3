//! State that verl saves outside the roles: the dataloader's position, and the queue of asynchronous modes.
//!
//! It is written after the roles, so it shows whether a save finished; a step without it can be loaded, but the data
//! starts again from the beginning of the epoch.

use super::judge::VerlLayout;
use super::queue;
use super::ranks::RankSet;
use super::role::RoleState;
use super::step_files::StepFiles;
use super::steps::Neighbours;
use crate::adapter::ExpectedLayout;
use supervise_core::checkpoint::{Finding, StateKind, Verdict};
use supervise_core::id::Step;

/// Smaller differences between modification times say nothing about the order.
const SLACK_NS: i64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DataState {
    no_data: bool,
    no_queue: bool,
    /// Number of data-parallel ranks with a state.
    parts: u32,
}

impl DataState {
    /// Returns true if every data-parallel rank finds its state. With another number, ranks would continue at each
    /// other's positions.
    pub(crate) fn fits(self, ranks: u32) -> bool {
        self.parts == 0 || self.parts == ranks
    }

    pub(crate) fn lost(self) -> &'static [StateKind] {
        match (self.no_data, self.no_queue) {
            (false, false) => &[],
            (true, false) => &[StateKind::DataOrder],
            (false, true) => &[StateKind::Rollout],
            (true, true) => &[StateKind::DataOrder, StateKind::Rollout],
        }
    }
}

/// Judges the dataloader state and the transfer queue. `one_file`: whether SFT uses a single file, if known.
pub(crate) fn judge_data(
    (expect, step): (&ExpectedLayout, Step),
    survey: &StepFiles<'_>,
    layout: VerlLayout,
    one_file: Option<bool>,
    roles: &[RoleState],
    neighbours: &Neighbours<'_>,
    findings: &mut Vec<Finding>,
) -> DataState {
    let mut state = DataState::default();
    let parts = survey.data_parts.iter().map(|(_, f)| f.fact.mtime).min();
    let one = survey.data.map(|f| f.fact.mtime);
    let (oldest, read) = match layout {
        VerlLayout::Sft if one_file == Some(true) => (one.or(parts), one.is_some()),
        VerlLayout::Sft => (parts.or(one), parts.is_some() || one_file.is_none() && one.is_some()),
        VerlLayout::Ppo | VerlLayout::Unknown => (one, one.is_some()),
    };
    if !read {
        state.no_data = true;
        let what = match oldest {
            None => "is missing",
            Some(_) => "was written by verl's other SFT trainer, and this one looks for another file",
        };
        findings.push(Finding::warning(
            "no_data_state",
            format!(
                "the state of the dataloader {what}: after a resume the epoch's data starts again from its beginning"
            ),
        ));
    }
    match layout {
        VerlLayout::Sft if survey.data_parts.is_empty() => {
            findings.extend(survey.data.into_iter().flat_map(|data| data.findings()));
        }
        VerlLayout::Sft => judge_parts(survey, roles, neighbours, findings),
        VerlLayout::Ppo | VerlLayout::Unknown => {
            if let Some(data) = survey.data {
                findings.extend(data.findings());
            }
            state.no_queue = queue::judge(expect, step, survey, findings);
        }
    }
    state.parts = u32::try_from(survey.data_parts.len()).unwrap_or(u32::MAX);
    findings.extend(order_of_times(oldest, roles));
    state
}

/// One part per data-parallel rank, or only the first (the Ray trainer): a gap means a killed save.
fn judge_parts(survey: &StepFiles<'_>, roles: &[RoleState], neighbours: &Neighbours<'_>, findings: &mut Vec<Finding>) {
    for (part, file) in &survey.data_parts {
        let mut found = file.findings();
        for finding in &mut found {
            finding.rank = Some(*part);
        }
        findings.append(&mut found);
    }
    findings.extend(uneven(survey));
    let world = roles.first().and_then(|r| r.world).unwrap_or(1);
    let there = RankSet::of(survey.data_parts.iter().map(|(part, _)| *part));
    let n = there.count();
    if n == 0 {
        return;
    }
    // The data-parallel size divides the world size: ranks that share a sequence share a loader.
    let regular = there.only_block().is_some_and(|(from, _)| from == 0) && n <= world && world.is_multiple_of(n);
    let usual = neighbours.data_parts(world);
    let wanted = if usual > n { usual } else { world };
    if !regular || usual > n {
        let absent = there.missing_of(wanted);
        let detail = format!("dataloader state of {} ranks is missing: {absent}", absent.count());
        let mut finding = Finding::error("data_state_missing", Verdict::Incomplete, detail);
        if let Some(first) = absent.first() {
            finding = finding.in_file(format!("data_{first}.pt"));
            finding.rank = Some(first);
        }
        findings.push(finding);
    }
}

/// Ranks read their data in step: a part with another batch count may belong to another save.
fn uneven(survey: &StepFiles<'_>) -> Option<Finding> {
    let mut counted = survey
        .data_parts
        .iter()
        .filter_map(|(part, file)| Some((*part, file, file.torch()?.batches?)));
    let (first, _, batches) = counted.next()?;
    let (part, file, other) = counted.find(|(_, _, n)| *n != batches)?;
    let detail = format!(
        "it has given out {other} batches, and the dataloader of rank {first} {batches}: it may be of another step"
    );
    let mut finding = Finding::warning("data_of_other_step", detail).in_file(file.path);
    finding.rank = Some(part);
    Some(finding)
}

/// Shards newer than the file written after them: a save into an older step's directory, or a copy. Only a warning: a
/// copy of a whole checkpoint is whole.
fn order_of_times(data: Option<i64>, roles: &[RoleState]) -> Option<Finding> {
    let newest = roles.iter().filter_map(|r| r.newest_shard).max()?;
    let behind = newest.saturating_sub(data?);
    (behind > SLACK_NS).then(|| {
        Finding::warning(
            "order_of_times",
            format!(
                "shards are {} s newer than the dataloader's state, which is written after them: either copied in another order, or overwritten by a save that was killed",
                behind / 1_000_000_000
            ),
        )
    })
}
