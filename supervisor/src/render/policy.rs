//! The rules of the policy, as a table and as stable JSON.

use super::diagnose::advice_on;
use super::terminal::shown;
use serde::Serialize;
use supervise_core::diagnosis::action;
use supervise_core::policy::{Changes, PolicyRule, rule, rules};
use supervise_core::rulebook::failure_line::FailureLine;
use supervise_core::rulebook::taxonomy::letter;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleView {
    pub class: String,
    /// Its nature as a letter: T, D, H, C, O or ?.
    pub nature: &'static str,
    /// The response, as spelled in the settings.
    pub answer: &'static str,
    /// The response as a letter.
    pub letter: &'static str,
    /// After this many identical failures at the same step the run ends; `null`: only the retries count.
    pub ends_after: Option<u32>,
    /// A second failure before the first new step makes the checkpoint suspect.
    pub suspects_checkpoint: bool,
    pub costs_retry: bool,
    /// The shortest pause before a relaunch, in ms.
    pub pause_ms: u64,
    /// The setting that changed it.
    pub changed_by: Option<String>,
    pub advice: String,
}

/// All rules of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyView {
    pub version: u32,
    /// Attempts without progress before giving up.
    pub retries: u32,
    /// How often a run may step back to an earlier checkpoint.
    pub step_backs: u32,
    pub rules: Vec<RuleView>,
    pub lines: Vec<FailureLine>,
}

impl PolicyView {
    /// The built-in rules with the user's changes.
    #[must_use]
    pub fn of(changes: &Changes, lines: &[FailureLine], retries: u32, step_backs: u32) -> Self {
        let mut rules: Vec<RuleView> = rules(changes, lines)
            .into_iter()
            .map(|rule| view(rule, lines))
            .collect();
        let own = lines.iter().map(|l| &l.class).filter(|class| class.row().is_none());
        rules.extend(own.map(|class| view(rule(changes, lines, class, action(class)), lines)));
        rules.sort_by(|a, b| a.class.cmp(&b.class));
        rules.dedup_by(|a, b| a.class == b.class);
        Self {
            version: 1,
            retries,
            step_backs,
            rules,
            lines: lines.to_vec(),
        }
    }
}

fn view(rule: PolicyRule, lines: &[FailureLine]) -> RuleView {
    let known = rule.class.row();
    RuleView {
        nature: known.map_or("?", |r| r.kind.letter()),
        advice: advice_on(&rule.class, lines).unwrap_or_default(),
        answer: rule.answer.word(),
        letter: letter(rule.answer),
        ends_after: rule.proofs,
        suspects_checkpoint: rule.suspects,
        costs_retry: !rule.spared,
        pause_ms: rule.rest.0,
        changed_by: rule.changed,
        class: rule.class.into(),
    }
}

/// Cells of a rule: class, response, end, checkpoint, retry.
#[must_use]
pub fn cells(r: &RuleView) -> [String; 5] {
    let ends = match r.ends_after {
        Some(1) => "at once".to_owned(),
        Some(n) => format!("{n} times"),
        None => "retries".to_owned(),
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let answer = match r.pause_ms {
        0..60_000 => r.answer.to_owned(),
        ms => format!("{}, {} s pause", r.answer, ms / 1000),
    };
    [
        r.class.clone(),
        answer,
        ends,
        yes(r.suspects_checkpoint),
        yes(r.costs_retry),
    ]
}

/// The rules as a table.
#[must_use]
pub fn text(view: &PolicyView) -> String {
    let rows: Vec<Vec<String>> = view
        .rules
        .iter()
        .map(|r| {
            let from = r.changed_by.as_ref();
            let mut row = cells(r).to_vec();
            row.push(match from {
                None => "built in".to_owned(),
                // It may come from `rules` or from `policy`.
                Some(key) if key.starts_with("user.") => "yours".to_owned(),
                Some(key) => format!("yours: policy.{}", shown(key)),
            });
            row
        })
        .collect();
    let head = [
        "CLASS",
        "ANSWER",
        "ENDS AFTER",
        "SUSPECTS CHECKPOINT",
        "COSTS A RETRY",
        "FROM",
    ];
    let own = match view.lines.as_slice() {
        [] => String::new(),
        lines => {
            let cells = |l: &FailureLine| vec![shown(l.class.code()).to_string(), shown(&l.pattern).to_string()];
            let rows: Vec<Vec<String>> = lines.iter().map(cells).collect();
            format!("\n{}", super::table(&["YOURS (rules)", "PATTERN"], &rows))
        }
    };
    format!(
        "{}{own}\nENDS AFTER: so many times the same failure at the same step. A class that ends at once has a second try where the attempt proved a\n\
new step. SUSPECTS CHECKPOINT: twice before the first new step, an older checkpoint is tried (step_backs: {}).\n\
In all cases {} attempts in a row without a new step end the run (retries: {}).\n",
        super::table(&head, &rows),
        view.step_backs,
        view.retries.saturating_add(1),
        view.retries
    )
}
