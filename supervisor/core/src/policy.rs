//! Policy rules: how failures of each class are answered. One row per class, as data, and one function that applies a
//! row.
//!
//! The class never decides alone. What also counts: whether the same failure happened before (fingerprint and step),
//! whether the attempt trained or proved a new step, and whether the resume point may be the cause.

pub mod backoff;
pub mod broken_nodes;

use crate::id::Ms;
use crate::journal::record::FailureAction;
use crate::rulebook::failure_line::{FailureLine, said_of};
use crate::rulebook::taxonomy::{self, Class, EndsAfter, FailureClass, FailureKind};
use std::collections::BTreeMap;

/// The user's changes: the answer to a class (`mem.cuda_oom`) or a family (`mem.*`).
pub type Changes = BTreeMap<String, FailureAction>;

/// If a restart was expected to help, this many equal failures at the same step are no accident.
const OFTEN: u32 = 3;

/// How failures of one class are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub class: FailureClass,
    pub answer: FailureAction,
    /// How many equal failures at the same step end the run; `None`: only the retries count.
    pub proofs: Option<u32>,
    /// Whether two equal failures before the first new step make the resume point suspect.
    pub suspects: bool,
    /// Whether it is not charged as a retry.
    pub spared: bool,
    pub rest: Ms,
    pub changed: Option<String>,
}

/// The rule for a class; `first`: the answer that the diagnosis gave.
#[must_use]
pub fn rule(changes: &Changes, lines: &[FailureLine], class: &FailureClass, first: FailureAction) -> PolicyRule {
    let change = entry(changes, class);
    let answer = change.map_or(first, |(_, action)| *action);
    let spared = !costs_retry(lines, class);
    PolicyRule {
        class: class.clone(),
        answer,
        proofs: proofs(class, answer, change.is_some(), spared),
        suspects: answer != FailureAction::Stop && blames_checkpoint(lines, class),
        spared,
        rest: match class.row().map(|row| row.pause).unwrap_or_default() {
            Ms(0) if answer == FailureAction::Wait => Ms::secs(5),
            pause => pause,
        },
        changed: change.map(|(key, _)| key.clone()),
    }
}

/// A rule for each class that ends attempts, in the order of the table.
#[must_use]
pub fn rules(changes: &Changes, lines: &[FailureLine]) -> Vec<PolicyRule> {
    let ends = |r: &&taxonomy::RulebookEntry| r.kind != FailureKind::Report;
    let rows = taxonomy::rows().filter(ends);
    rows.map(|row| {
        let class = row.class.into();
        rule(changes, lines, &class, crate::diagnosis::action(&class))
    })
    .collect()
}

/// Returns true if the name is a class of the table or one of the user's own.
#[must_use]
pub fn is_class(name: &str) -> bool {
    let own = name.strip_prefix("user.");
    let plain = |own: &str| {
        !own.is_empty()
            && own
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    Class::of_code(name).is_some() || own.is_some_and(plain)
}

/// The user's entry for a class. An entry for the class itself overrides one for its family.
fn entry<'a>(changes: &'a Changes, class: &FailureClass) -> Option<(&'a String, &'a FailureAction)> {
    let code = class.code();
    let family = code.split('.').next().unwrap_or(code);
    let whole = format!("{family}.*");
    changes.get_key_value(code).or_else(|| changes.get_key_value(&whole))
}

/// Returns true if a relaunch is charged, which it is not if the attempt was ended from outside.
fn costs_retry(lines: &[FailureLine], class: &FailureClass) -> bool {
    match class.row() {
        Some(row) => row.costs_retry,
        None => said_of(lines, class, |line| line.costs_retry).unwrap_or(true),
    }
}

/// Returns true if a checkpoint may be the cause. A class that this release does not know is treated like its family.
fn blames_checkpoint(lines: &[FailureLine], class: &FailureClass) -> bool {
    let of_family = || {
        taxonomy::rows()
            .filter(|row| class.is_in(row.family))
            .all(|row| row.blames_checkpoint)
    };
    match class.row() {
        Some(row) => row.blames_checkpoint,
        None => said_of(lines, class, |line| line.blames_checkpoint).unwrap_or_else(of_family),
    }
}

fn proofs(class: &FailureClass, answer: FailureAction, is_changed: bool, spared: bool) -> Option<u32> {
    match answer {
        FailureAction::Stop => Some(1),
        FailureAction::RelaunchOnce | FailureAction::Kill => Some(2),
        FailureAction::FallBack
        | FailureAction::Relaunch
        | FailureAction::RelaunchLater
        | FailureAction::Node
        | FailureAction::Wait => match class.row().map(|row| row.ends_after).unwrap_or_default() {
            EndsAfter::Times(n) if !is_changed => Some(n),
            EndsAfter::Retries => None,
            _ if answer == FailureAction::FallBack || spared => None,
            _ => Some(OFTEN),
        },
    }
}

/// What counts besides the class.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailureContext {
    /// Number of equal failures at the same step, including this one.
    pub same: u32,
    /// Whether an earlier one also came before a new step.
    pub at_the_start: bool,
    pub resumed: bool,
    /// Whether it trained a step beyond its resume point.
    pub trained: bool,
    /// Whether it proved a step beyond all earlier ones.
    pub progressed: bool,
    /// Whether the previous attempt failed in the same way before its first new step, from a newer checkpoint.
    pub stepped_back: bool,
    /// Whether there is an older checkpoint and the run may step back once more.
    pub may_step_back: bool,
}

/// The answer to one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureResponse {
    /// Launch another attempt.
    GoOn,
    /// Launch from an older checkpoint, because this one failed to load.
    FallBack,
    /// Launch from an older checkpoint, because this one is suspect.
    Suspect,
    End,
}

/// Applies a rule to a failure.
#[must_use]
pub fn next(rule: &PolicyRule, case: &FailureContext) -> FailureResponse {
    let at_the_start = case.resumed && !case.trained;
    if rule.answer == FailureAction::FallBack && (at_the_start || case.resumed && rule.changed.is_some()) {
        return FailureResponse::FallBack;
    }
    // If it was also seen after new steps, the checkpoint is not the cause.
    let again = case.at_the_start || case.stepped_back;
    if rule.suspects && at_the_start && again {
        return if case.may_step_back {
            FailureResponse::Suspect
        } else {
            FailureResponse::End
        };
    }
    // A deterministic class that made progress before is treated as transient once, unless the user said otherwise.
    let lenient = rule.answer == FailureAction::Stop && case.progressed && rule.changed.is_none();
    let proofs = if lenient { Some(2) } else { rule.proofs };
    match proofs {
        Some(n) if case.same >= n => FailureResponse::End,
        _ => FailureResponse::GoOn,
    }
}

/// Returns true if an entry of the setting names a class, or a family with at least one class.
#[must_use]
pub fn is_known(entry: &str) -> bool {
    match entry.strip_suffix(".*") {
        Some(name) => taxonomy::Family::of_code(name).is_some_and(|_| !name.contains('.')),
        None => !matches!(entry.into(), FailureClass::Unknown(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: impl Into<FailureClass>) -> PolicyRule {
        let class = class.into();
        rule(&Changes::new(), &[], &class, crate::diagnosis::action(&class))
    }

    #[test]
    fn a_checkpoint_is_suspected_only_if_it_may_be_the_cause() {
        for class in [
            Class::CkptCorrupt,
            Class::NativeCrash,
            Class::CodeException,
            Class::NumNan,
            Class::ExitUnexplained,
        ] {
            assert!(of(class).suspects, "{class:?}");
        }
        for class in [
            Class::MemCudaOom,
            Class::DiskFull,
            Class::CommStore,
            Class::GpuAppFault,
            Class::OpSignal,
            Class::CfgArgs,
            Class::KillUnknown,
            Class::HangStartup,
        ] {
            assert!(!of(class).suspects, "{class:?}");
        }
        assert!(!of("mem.of_a_newer_release").suspects);
    }

    #[test]
    fn a_class_ends_after_its_proofs() {
        let ends = |class: Class, same| {
            next(
                &of(class),
                &FailureContext {
                    same,
                    ..FailureContext::default()
                },
            ) == FailureResponse::End
        };
        assert!(ends(Class::CfgArgs, 1));
        assert!(!ends(Class::MemCudaOom, 1) && ends(Class::MemCudaOom, 2));
        assert!(!ends(Class::CommStore, 2) && ends(Class::CommStore, 3));
        assert!(!ends(Class::KillUnknown, 99) && !ends(Class::OpSignal, 99) && !ends(Class::DiskFull, 99));
    }

    #[test]
    fn progress_makes_a_deterministic_class_transient_once() {
        let case = |same| FailureContext {
            same,
            progressed: true,
            trained: true,
            ..FailureContext::default()
        };
        assert_eq!(next(&of(Class::CodeShape), &case(1)), FailureResponse::GoOn);
        assert_eq!(next(&of(Class::CodeShape), &case(2)), FailureResponse::End);
        let stop = Changes::from([("code.*".to_owned(), FailureAction::Stop)]);
        assert_eq!(
            next(
                &rule(&stop, &[], &Class::CodeShape.into(), FailureAction::Stop),
                &case(1)
            ),
            FailureResponse::End
        );
    }

    #[test]
    fn the_same_twice_before_a_new_step_suspects_the_checkpoint() {
        let at_the_start = FailureContext {
            same: 2,
            at_the_start: true,
            resumed: true,
            may_step_back: true,
            ..FailureContext::default()
        };
        assert_eq!(next(&of(Class::NativeCrash), &at_the_start), FailureResponse::Suspect);
        assert_eq!(next(&of(Class::MemCudaOom), &at_the_start), FailureResponse::End);
        let trained = FailureContext {
            trained: true,
            ..at_the_start
        };
        assert_eq!(next(&of(Class::NativeCrash), &trained), FailureResponse::End);
        let not_of_it = FailureContext {
            at_the_start: false,
            ..at_the_start
        };
        assert_eq!(next(&of(Class::NativeCrash), &not_of_it), FailureResponse::End);
        let nowhere = FailureContext {
            may_step_back: false,
            ..at_the_start
        };
        assert_eq!(next(&of(Class::NativeCrash), &nowhere), FailureResponse::End);
        let older = FailureContext {
            same: 1,
            at_the_start: false,
            stepped_back: true,
            ..at_the_start
        };
        assert_eq!(next(&of(Class::NativeCrash), &older), FailureResponse::Suspect);
    }

    #[test]
    fn the_users_entry_counts_and_a_class_before_its_family() {
        let changes = Changes::from([
            ("mem.*".to_owned(), FailureAction::Stop),
            ("mem.cuda_oom".to_owned(), FailureAction::Relaunch),
        ]);
        let of = |class: &str| {
            let class = class.into();
            rule(&changes, &[], &class, crate::diagnosis::action(&class))
        };
        assert_eq!(
            (of("mem.shm").answer, of("mem.shm").changed.as_deref()),
            (FailureAction::Stop, Some("mem.*"))
        );
        assert_eq!(
            (of("mem.cuda_oom").answer, of("mem.cuda_oom").proofs),
            (FailureAction::Relaunch, Some(OFTEN))
        );
        assert_eq!(of("memory.x").changed, None);
        assert!(rules(&changes, &[]).iter().filter(|r| r.changed.is_some()).count() > 4);
    }
}
