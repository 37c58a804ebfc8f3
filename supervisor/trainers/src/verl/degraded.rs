//! What is usable of a step that is not whole: whole weights, without a torn optimizer, random states or dataloader
//! state.
//!
//! Only damage to a single file whose content can be left out counts as a loss. If the step as a whole is in doubt
//! (files of two saves, another step's state, a missing marker), nothing is usable: the weights may be just as wrong.

use super::compatibility::kept_in;
use super::judge::VerlStepInput;
use super::names::{self, ShardContent};
use super::required_files;
use super::role::RoleState;
use super::step_files::StepFiles;
use camino::Utf8PathBuf;
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::{
    CheckpointSummary, Depth, Finding, FindingLevel, PartialStep, PinsHash, Resumability, StateKind, Verdict,
};

/// Findings which show that a file belongs to another save.
const OF_ANOTHER_SAVE: [&str; 8] = [
    "mixed_steps",
    "misplaced",
    "shards_do_not_tile",
    "step_differs",
    "role_differs",
    "rewritten",
    "rewritten_in_part",
    "file_changed",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loss<'a> {
    /// The optimizer or extra shards of a role.
    Of(&'a str, ShardContent),
    Data,
    Queue,
}

/// The usable rest; `None` if nothing is lost, or too much.
pub(crate) fn left(
    case: &VerlStepInput<'_>,
    summary: &CheckpointSummary,
    survey: &StepFiles<'_>,
    roles: &[RoleState],
) -> Option<PartialStep> {
    let torn = matches!(summary.verdict, Verdict::Incomplete | Verdict::Damaged);
    if !torn || roles.is_empty() || matches!(summary.resume, Resumability::Not { .. }) {
        return None;
    }
    let condemning = summary.findings.iter().filter(|f| f.level == FindingLevel::Error);
    let losses: BTreeSet<Loss<'_>> = condemning.map(|f| loss(f, roles)).collect::<Option<_>>()?;
    let holds: BTreeMap<String, Vec<String>> = roles
        .iter()
        .map(|role| {
            let gone = |word: &str| {
                ShardContent::ALL
                    .into_iter()
                    .any(|c| c.word() == word && losses.contains(&Loss::Of(&role.name, c)))
            };
            (
                role.name.clone(),
                role.words().into_iter().filter(|w| !gone(w)).collect(),
            )
        })
        .collect();
    if !holds.values().all(|held| held.iter().any(|c| c == "model")) {
        return None;
    }
    let aside = put_away(survey, &losses);
    Some(PartialStep {
        lost: lost(summary, roles, &losses),
        proven: proven(survey, case.depth, roles, &losses),
        pins: pins(case, &aside),
        holds,
        aside,
    })
}

/// The part that a finding condemns; `None` if more than an optional part is affected.
fn loss<'a>(finding: &Finding, roles: &'a [RoleState]) -> Option<Loss<'a>> {
    // Megatron's parts cannot be read if the file that describes them is torn.
    let undescribed = finding.code == "distcp_alone";
    let torn = undescribed || matches!(finding.verdict, Verdict::Incomplete | Verdict::Damaged);
    if !torn || OF_ANOTHER_SAVE.contains(&finding.code.as_ref()) {
        return None;
    }
    part_of(finding.file.as_ref()?.as_str(), roles)
}

fn part_of<'a>(path: &str, roles: &'a [RoleState]) -> Option<Loss<'a>> {
    if path == "data.pt" || names::data_part(path).is_some() {
        return Some(Loss::Data);
    }
    if path.starts_with("transfer_queue/") {
        return Some(Loss::Queue);
    }
    roles.iter().find_map(|role| {
        let inside = match role.name.as_str() {
            "" => path,
            name => path.strip_prefix(name)?.strip_prefix('/')?,
        };
        let content = if role.megatron {
            let dir = |c: &ShardContent| {
                inside
                    .strip_prefix(c.word())
                    .is_some_and(|rest| rest.starts_with("/dist_ckpt"))
            };
            ShardContent::ALL.into_iter().find(dir)?
        } else {
            names::shard(inside)?.content
        };
        (content != ShardContent::Model).then_some(Loss::Of(&role.name, content))
    })
}

/// State to move away because the trainer would load it. Ranks continue together: if one has no position, none may
/// have.
fn put_away(survey: &StepFiles<'_>, losses: &BTreeSet<Loss<'_>>) -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    if losses.contains(&Loss::Data) {
        out.extend(survey.data.map(|f| f.path.into()));
        out.extend(survey.data_parts.iter().map(|(_, f)| f.path.into()));
    }
    if losses.contains(&Loss::Queue) {
        out.push("transfer_queue".into());
    }
    out
}

fn lost(summary: &CheckpointSummary, roles: &[RoleState], losses: &BTreeSet<Loss<'_>>) -> Vec<StateKind> {
    let mut out = match &summary.resume {
        Resumability::Degraded { lost } => lost.clone(),
        _ => Vec::new(),
    };
    for loss in losses {
        match loss {
            Loss::Data => out.push(StateKind::DataOrder),
            Loss::Queue => out.push(StateKind::Rollout),
            Loss::Of(name, content) => {
                let megatron = roles.iter().any(|r| r.name == *name && r.megatron);
                let kinds = kept_in(megatron).into_iter().filter(|(c, _)| c == content);
                out.extend(kinds.flat_map(|(_, kinds)| kinds));
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// How deep the least proven of the remaining files was inspected.
fn proven(survey: &StepFiles<'_>, depth: Depth, roles: &[RoleState], losses: &BTreeSet<Loss<'_>>) -> Option<Depth> {
    let mut least = depth;
    required_files::each(survey, &mut |wanted| {
        let is_lost = part_of(wanted.file.path, roles).is_some_and(|part| losses.contains(&part));
        if !is_lost {
            least = least.min(wanted.file.report?.proven);
        }
        Some(())
    })?;
    Some(least)
}

fn pins(case: &VerlStepInput<'_>, aside: &[Utf8PathBuf]) -> PinsHash {
    let stays = |path: &str| !aside.iter().any(|a| camino::Utf8Path::new(path).starts_with(a));
    crate::kit::pins(case.entry.facts().filter(|(path, _)| stays(path)))
}
