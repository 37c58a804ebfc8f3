//! Scanner rules of the rulebook, and classification of exceptions.

use crate::event::Sighting;
use crate::event::scan::{Filter, RuleKind, ScanRule, TracebackScope, USER, without_paths};
use crate::journal::record::FailureAction;
use crate::rulebook::failure_line::FailureLine;
use crate::rulebook::taxonomy::{self, Class, FailureClass};
use std::sync::OnceLock;

/// The rulebook as scanner rules.
#[must_use]
pub fn failure_rules() -> Vec<ScanRule> {
    let mut rules = Vec::new();
    for row in taxonomy::rows() {
        for (n, line) in row.lines.iter().enumerate() {
            let kind = RuleKind::Failure(row.class.into());
            let id = format!("{}/{n}", row.code);
            rules.push(ScanRule::holding(&id, line.holds, &insensitive(line.regex), kind));
        }
    }
    rules
}

/// The user's failure lines as scanner rules; they take precedence over the rulebook's.
#[must_use]
pub fn user_rules(lines: &[FailureLine]) -> Vec<ScanRule> {
    let all = lines.iter().enumerate();
    let rule = |(n, line): (usize, &FailureLine)| {
        let kind = RuleKind::Failure(line.class.clone());
        ScanRule::new(&format!("{USER}{n}"), &line.pattern, kind)
    };
    all.map(rule).collect()
}

/// Stage of an attempt when an exception was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStage {
    /// No step yet, and nothing to load.
    Starting,
    /// No step yet, and a checkpoint to load.
    Resuming,
    /// At least one step.
    Stepping,
}

/// Classifies an exception by the last line of its traceback. Line patterns come first, because torch raises RuntimeError for almost
/// everything. A programming error before the first step is a startup error: a relaunch cannot help.
#[must_use]
pub(super) fn classify_exception(s: &Sighting, stage: AttemptStage) -> Class {
    let text = s.text.as_str();
    let class = by_text(s, stage);
    if s.rule.through() == TracebackScope::Init && never_met(class, text) {
        return Class::CommInit;
    }
    // Whether a reward request got no answer.
    let gone = match class {
        Class::EngineHttp | Class::CommConn => true,
        Class::HubRate => is_own_server(text),
        Class::CodeException => ["timed out", "Timeout", "onnect", "Request error"]
            .iter()
            .any(|w| text.contains(w)),
        _ => false,
    };
    match (s.rule.through() == TracebackScope::Reward && gone, class) {
        (true, _) => Class::RewardServer,
        (false, Class::HubRate) if is_own_server(text) => Class::EngineHttp,
        (false, class) => class,
    }
}

/// Returns true if the ranks never connected and none had exited.
fn never_met(class: Class, text: &str) -> bool {
    class == Class::CommNcclRemote && !text.contains("remote process exited")
}

/// Returns true for an error of a plain HTTP server: one of the run's own, never the hub.
fn is_own_server(text: &str) -> bool {
    text.contains(" Server Error: ") && text.contains("for url: http://")
}

/// Refines the class of a line by the stage of the attempt.
#[must_use]
pub(super) fn at_stage(class: Class, text: &str, stage: AttemptStage) -> Class {
    let lost = ["refused", "reset", "timed out"].iter().any(|w| text.contains(w));
    // Ranks that did a step were connected, so the network interface is right.
    match stage == AttemptStage::Starting && !lost && text.contains("Gloo connectFullMesh failed") {
        true => Class::CommGloo,
        false => class,
    }
}

fn by_text(s: &Sighting, stage: AttemptStage) -> Class {
    let text = s.text.as_str();
    if let Some(class) = by_line(text) {
        return at_stage(class, text, stage);
    }
    // The only messages from reading a truncated shard.
    let saving = s.rule.through() == TracebackScope::Save;
    let loading = stage == AttemptStage::Resuming || s.rule.through() == TracebackScope::Load;
    let cut = ["[Errno 22] Invalid argument", "CheckpointException", "EOFError"];
    let of_data = text.contains("DataLoader worker");
    // torch raises it for a load or a save alone, and before the first step nothing is saved.
    let of_torch = stage != AttemptStage::Stepping && !saving && text.contains("CheckpointException");
    if of_torch || loading && !of_data && cut.iter().any(|w| text.contains(w)) {
        return Class::CkptCorrupt;
    }
    let plain = without_paths(text.as_bytes());
    let holds = |needle: &str| memchr::memmem::find(&plain, needle.as_bytes()).is_some();
    let class = taxonomy::rows()
        .find(|row| row.errors.iter().any(|needle| holds(needle)))
        .map_or(Class::CodeException, |row| row.class);
    match class {
        Class::DataBadSample if s.rule.through() == TracebackScope::State => Class::CkptCorrupt,
        Class::CkptSaveFailed if !saving => Class::CodeException,
        Class::CodeException | Class::CodeTypeKey | Class::FileMissing if saving => Class::CkptSaveFailed,
        Class::CodeTypeKey if stage != AttemptStage::Stepping => Class::CodeAtStart,
        other => other,
    }
}

fn by_line(text: &str) -> Option<Class> {
    static FILTER: OnceLock<Option<Filter>> = OnceLock::new();
    let rules = || taxonomy::rows().flat_map(|row| row.lines.iter().map(move |line| (row, line)));
    let filter = FILTER.get_or_init(|| {
        let patterns: Vec<String> = rules().map(|(_, line)| insensitive(line.regex)).collect();
        let all = rules().zip(&patterns).enumerate();
        Filter::new(all.map(|(at, ((_, line), pattern))| (at, line.holds, pattern.as_str()))).ok()
    });
    let at = filter.as_ref()?.first(&without_paths(text.as_bytes()))?;
    rules().nth(at).map(|(row, _)| row.class)
}

/// Makes a rulebook expression case-insensitive; an empty one stays empty.
fn insensitive(regex: &str) -> String {
    match regex {
        "" => String::new(),
        regex => format!("(?i-u){regex}"),
    }
}

/// The rulebook's answer for a supervised run.
#[must_use]
pub fn action(class: &FailureClass) -> FailureAction {
    let supervised = class.row().and_then(|row| row.supervised_action);
    supervised.unwrap_or_else(|| taxonomy::action(class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::scan::Scanner;
    use crate::id::WorkerId;

    fn said(text: &str) -> Sighting {
        Sighting {
            rule: "py.exception".into(),
            worker: WorkerId(0),
            line: 1,
            text: text.to_owned(),
            number: None,
            count: 1,
        }
    }

    static EXAMPLES: &[(Class, &[&str], &[&str])] = &include!(concat!(env!("OUT_DIR"), "/examples.rs"));

    #[test]
    fn each_class_knows_its_examples_and_nothing_its_lookalikes() {
        let mut scanner = Scanner::new(failure_rules()).unwrap();
        let mut class_of = |line: &str| match scanner.line(WorkerId(0), 1, line.as_bytes()).map(|h| h.kind) {
            Some(RuleKind::Failure(class)) => Some(class.counts_as()),
            _ => None,
        };
        let mut wrong = Vec::new();
        for (class, examples, lookalikes) in EXAMPLES {
            for text in *examples {
                let raised = || classify_exception(&said(text), AttemptStage::Stepping);
                let found = class_of(text).unwrap_or_else(raised);
                if found != *class {
                    wrong.push(format!("{class:?}: its example is {found:?}: {text}"));
                }
            }
            let taken = lookalikes.iter().filter_map(|text| Some((class_of(text)?, text)));
            wrong.extend(taken.map(|(found, text)| format!("{class:?}: a look-alike is {found:?}: {text}")));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_class_of_another_version_is_unexplained() {
        assert_eq!(FailureClass::from("made.up").counts_as(), Class::ExitUnexplained);
    }

    #[test]
    fn an_exception_at_start_is_deterministic() {
        let action_at = |stage| action(&classify_exception(&said("KeyError: 'x'"), stage).into());
        assert_eq!(action_at(AttemptStage::Starting), FailureAction::Stop);
        assert_eq!(action_at(AttemptStage::Resuming), FailureAction::Stop);
        assert_eq!(action_at(AttemptStage::Stepping), FailureAction::RelaunchOnce);
    }

    #[test]
    fn a_position_that_cannot_be_read_is_no_sample() {
        let text = "json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 20 (char 19)";
        let through = |rule: &str| {
            let s = Sighting {
                rule: rule.into(),
                ..said(text)
            };
            by_text(&s, AttemptStage::Stepping)
        };
        assert_eq!(through("py.exception.state"), Class::CkptCorrupt);
        // `json.load` of a data set is a load as well.
        assert_eq!(through("py.exception.load"), Class::DataBadSample);
    }

    #[test]
    fn an_error_inside_a_save_is_one_of_the_save() {
        let inside = |rule: &str, text| {
            let s = Sighting {
                rule: rule.into(),
                ..said(text)
            };
            classify_exception(&s, AttemptStage::Stepping)
        };
        let text = "AttributeError: 'NoneType' object has no attribute 'config'";
        assert_eq!(inside("py.exception.save", text), Class::CkptSaveFailed);
        assert_eq!(inside("py.exception", text), Class::CodeTypeKey);
        assert_eq!(
            inside("py.exception.save", "PermissionError: [Errno 13] x"),
            Class::FilePermission
        );
    }

    #[test]
    fn ranks_that_stepped_have_the_right_interface() {
        let at = |stage| {
            classify_exception(
                &said("RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error"),
                stage,
            )
        };
        assert_eq!(
            (at(AttemptStage::Starting), at(AttemptStage::Stepping)),
            (Class::CommGloo, Class::CommConn)
        );
        let lost = said("RuntimeError: Gloo connectFullMesh failed with [pair.cc:99] Connection refused");
        assert_eq!(classify_exception(&lost, AttemptStage::Starting), Class::CommConn);
    }

    #[test]
    fn a_checkpoint_that_torch_cannot_load_is_a_reason_to_fall_back() {
        let text = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])";
        for stage in [AttemptStage::Starting, AttemptStage::Resuming] {
            assert_eq!(classify_exception(&said(text), stage), Class::CkptCorrupt);
        }
        assert_eq!(
            classify_exception(&said(text), AttemptStage::Stepping),
            Class::CodeException
        );
    }

    #[test]
    fn a_path_tells_nothing() {
        for path in ["/data/ENOSPC-test/x.py", "'/data/No space left/x.py'"] {
            let raised = said(&format!("RuntimeError: cannot import {path}"));
            assert_eq!(
                classify_exception(&raised, AttemptStage::Stepping),
                Class::CodeException,
                "{path}"
            );
        }
    }
}
