//! A line of a run as an entry of systemd's journal: run, progress and kind of line become fields.

use super::printable;
use crate::render::journal::kind;
use crate::render::record::is_urgent;
use camino::Utf8Path;
use supervise_core::event::EventKind;
use supervise_core::id::{RunId, Step};
use supervise_core::journal::record::{ActKind, Decision, JournalRecord, RunOutcome};
use supervise_core::state::RunState;
use supervise_host::journald::entry;

/// Priorities of syslog(3).
const ERROR: &str = "3";
const WARNING: &str = "4";
const INFO: &str = "6";

/// Fields that all lines share at one point of a run.
#[derive(Debug, Default)]
pub(super) struct EntryFields {
    fields: Vec<(&'static str, String)>,
    step: Option<Step>,
}

impl EntryFields {
    pub(super) fn of(s: &RunState, run: &RunId, root: Option<&Utf8Path>) -> Self {
        let mut fields = vec![
            ("SUPERVISE_RUN", run.0.clone()),
            ("SUPERVISE_TERM", s.term.0.to_string()),
        ];
        fields.extend(root.map(|root| ("SUPERVISE_ROOT", root.to_string())));
        fields.extend(s.attempt.iter().map(|a| ("SUPERVISE_ATTEMPT", a.no.0.to_string())));
        let step = s
            .attempt
            .as_ref()
            .map(|a| a.training.step.unwrap_or_else(|| a.order.from.step()));
        Self { fields, step }
    }

    /// Builds the entry of a line; `of`: the record it reports.
    pub(super) fn entry(&self, text: &str, of: Option<&JournalRecord>) -> Vec<u8> {
        let mut fields = vec![
            ("MESSAGE", printable(text)),
            ("PRIORITY", of.map_or(INFO, priority).to_owned()),
            ("SYSLOG_IDENTIFIER", "supervise".to_owned()),
        ];
        fields.extend(self.fields.iter().map(|(name, value)| (*name, printable(value))));
        let step = of.and_then(proven).or(self.step);
        fields.extend(step.map(|step| ("SUPERVISE_STEP", step.0.to_string())));
        if let Some(r) = of {
            fields.push(("SUPERVISE_KIND", kind(r)));
            fields.extend(code(r).map(|code| ("SUPERVISE_CODE", code)));
            fields.extend(class(r).map(|class| ("SUPERVISE_CLASS", printable(class))));
        }
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        entry(&fields)
    }
}

fn proven(r: &JournalRecord) -> Option<Step> {
    match r {
        JournalRecord::Decided {
            what: Decision::Mark { step },
            ..
        } => Some(*step),
        _ => None,
    }
}

fn code(r: &JournalRecord) -> Option<String> {
    match r {
        JournalRecord::Decided { reasons, .. } | JournalRecord::Intended { reasons, .. } => {
            Some(reasons.first()?.code.to_string())
        }
        JournalRecord::Fact(_) | JournalRecord::Ignored { .. } => None,
    }
}

fn class(r: &JournalRecord) -> Option<&str> {
    match r {
        JournalRecord::Decided {
            what: Decision::Diagnosed(d),
            ..
        } => Some(d.class.code()),
        _ => None,
    }
}

fn priority(r: &JournalRecord) -> &'static str {
    let ends = |outcome: &RunOutcome| match outcome {
        RunOutcome::Finished { .. } | RunOutcome::Stopped | RunOutcome::OutOfTime => INFO,
        _ => ERROR,
    };
    match r {
        JournalRecord::Decided {
            what: Decision::Finish { outcome },
            ..
        } => ends(outcome),
        JournalRecord::Intended { act, .. } => match &act.kind {
            ActKind::Finish(outcome) => ends(outcome),
            _ => INFO,
        },
        JournalRecord::Decided {
            what: Decision::Diagnosed(_) | Decision::Suspect { .. },
            ..
        } => WARNING,
        JournalRecord::Fact(e) if matches!(&e.kind, EventKind::GuardLost { .. } | EventKind::IoStalled { .. }) => {
            WARNING
        }
        r if is_urgent(r) => WARNING,
        _ => INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::{Term, Tick};
    use supervise_core::journal::reason::Reason;
    use supervise_core::journal::record::Diagnosis;
    use supervise_core::rulebook::action::FailureAction;

    #[test]
    fn a_decision_has_its_kind_its_code_and_its_class_and_no_secret() {
        let state = RunState {
            term: Term(2),
            ..RunState::default()
        };
        let run = RunId("0123456789abcdef".to_owned());
        let diagnosed = JournalRecord::Decided {
            at: Tick(1),
            what: Decision::Diagnosed(Diagnosis {
                class: "mem.cuda_oom".into(),
                action: FailureAction::Stop,
                answer: None,
                advice: None,
                fingerprint: 1,
                step: Some(Step(4)),
                text: String::new(),
                node: None,
                worker: None,
                at_start: false,
            }),
            reasons: vec![Reason::new("worker_failed", "worker 0 exited with code 1")],
        };
        let said =
            EntryFields::of(&state, &run, None).entry("WANDB_API_KEY=0123456789abcdef0123 failed", Some(&diagnosed));
        let said = String::from_utf8(said).unwrap();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        assert!(
            said.starts_with("MESSAGE=WANDB_API_KEY=") && !said.contains("0123456789abcdef0123"),
            "{said}"
        );
        assert_eq!(
            lines,
            [
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=supervise",
                "SUPERVISE_RUN=0123456789abcdef",
                "SUPERVISE_TERM=2",
                "SUPERVISE_KIND=decided.diagnosed",
                "SUPERVISE_CODE=worker_failed",
                "SUPERVISE_CLASS=mem.cuda_oom",
            ]
        );
    }
}
