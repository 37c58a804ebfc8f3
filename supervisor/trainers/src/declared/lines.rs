//! Lines of output that a declaration explains.

use super::compile::regex;
use super::part;
use super::schema::{DeclaredLine, LineRule};
use super::source::{Problems, TableReader};
use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::RuleKind;
use supervise_core::policy::is_class;

const MEANINGS: [&str; 10] = [
    "step",
    "bar",
    "step_begins",
    "total",
    "save",
    "saved",
    "resumed",
    "fresh",
    "end",
    "validate",
];

/// What a line of this meaning is to the supervisor.
fn kind(means: &str) -> Option<RuleKind> {
    if let Some(lost) = means.strip_prefix("lost:") {
        return part::lost_kind(lost).map(RuleKind::Lost);
    }
    if let Some(class) = means.strip_prefix("failure:") {
        return is_class(class).then(|| RuleKind::Failure(class.into()));
    }
    Some(match means {
        "step" => RuleKind::Step,
        "bar" => RuleKind::Bar,
        "step_begins" | "saved" => RuleKind::Enters(TrainerPhase::Step),
        "total" => RuleKind::Total,
        "save" => RuleKind::Enters(TrainerPhase::Save),
        "resumed" => RuleKind::Resumed,
        "fresh" => RuleKind::Scratch,
        "end" => RuleKind::End,
        "validate" => RuleKind::Enters(TrainerPhase::Validate),
        _ => return None,
    })
}

pub(super) fn lines(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> Vec<LineRule> {
    let tables = top.tables("line", p);
    tables.into_iter().filter_map(|t| line(t, p)).collect()
}

fn line(mut t: TableReader<'_, '_>, p: &mut Problems<'_>) -> Option<LineRule> {
    let means = t.text("means", p);
    match &means {
        None => t.wrong(
            p,
            t.at,
            "means",
            "missing",
            format!("use one of {}", MEANINGS.join(", ")),
        ),
        Some(means) => {
            t.name = format!("[[line]] {}", means.value.chars().take(40).collect::<String>());
            let word = means.value.as_str();
            if kind(word).is_none() {
                let fix = match word.split_once(':') {
                    Some(("lost", _)) => format!("use lost: with {}", part::lost_words()),
                    Some(("failure", _)) => "`supervise policy show` lists the classes of failures".to_owned(),
                    _ => format!("use {}, lost:KIND or failure:CLASS", MEANINGS.join(", ")),
                };
                t.wrong(p, means.at, "means", format!("`{word}` is not known"), fix);
            }
        }
    }
    let text = t.text("match", p);
    if text.is_none() {
        t.wrong(p, t.at, "match", "missing", "write the line's regular expression");
    }
    let pattern = text.as_ref().and_then(|text| regex(&t, "match", text, p));
    let not_if = t.text("not_if", p).and_then(|text| regex(&t, "not_if", &text, p));
    t.later(&["numbers"], p);
    let has_step = pattern.as_ref().is_some_and(|r| r.captures_len() > 1);
    if let (Some(means), Some(text), true) = (&means, &text, pattern.is_some())
        && ["step", "bar", "step_begins", "saved", "total"].contains(&means.value.as_str())
        && !has_step
    {
        t.wrong(
            p,
            text.at,
            "match",
            "no group for the step",
            "put ( ) around the number",
        );
    }
    t.end(p);
    let means = means?;
    Some(LineRule {
        line: DeclaredLine {
            kind: kind(&means.value)?,
            means: means.value,
            has_step,
        },
        pattern: pattern?,
        not_if,
    })
}
