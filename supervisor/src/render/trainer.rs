//! Declared trainers: the list, and what a declaration understands of a checkpoint root.

use super::command::shown_command;
use super::count;
use super::terminal::shown;
use serde::Serialize;
use std::sync::Arc;
use supervise_core::checkpoint::{CheckpointSummary, Finding, Verdict};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;
use supervise_trainers::declared::{Declaration, DeclarationOutline, MatchedLine};

/// Names of files that are listed in one line.
const NAMED: usize = 8;

/// One declared trainer, or a file that does not load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrainerRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Releases whose source was read.
    pub read: Vec<String>,
    /// The user's file; none for a preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why the file does not load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl TrainerRow {
    /// The row of a declaration.
    #[must_use]
    pub fn of(declaration: &Arc<Declaration>, file: Option<String>) -> Self {
        let outline = declaration.outline();
        Self {
            name: Some(outline.name),
            title: Some(outline.title),
            read: outline.read,
            file,
            problem: None,
        }
    }

    /// The row of a file that does not load.
    #[must_use]
    pub fn unread(file: String) -> Self {
        Self {
            name: None,
            title: None,
            read: Vec::new(),
            file: Some(file),
            problem: None,
        }
    }
}

/// The declared trainers, as stable JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrainerList {
    pub version: u32,
    pub trainers: Vec<TrainerRow>,
}

impl TrainerList {
    /// The list as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for row in &self.trainers {
            let releases = match row.read.as_slice() {
                [] => String::new(),
                read => format!(" {}", read.join(", ")),
            };
            let file = row
                .file
                .as_ref()
                .map(|f| format!(" ({})", shown(f)))
                .unwrap_or_default();
            match (&row.name, &row.problem) {
                (Some(name), _) => {
                    let title = shown(row.title.as_deref().unwrap_or(name));
                    out.push_str(&format!("{:<14}{title}{}{file}\n", shown(name), shown(&releases)));
                }
                (None, problem) => {
                    let why = problem.as_deref().unwrap_or("it does not load");
                    out.push_str(&format!("{:<14}{}\n", "-", shown(why)));
                }
            }
        }
        out
    }
}

/// One step of a checked root.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedStep {
    #[serde(flatten)]
    pub summary: CheckpointSummary,
    /// Each part that is there, with the number of its files.
    pub parts: Vec<(String, usize)>,
    /// Files that belong to no part.
    pub untaken: Vec<String>,
}

/// One file, and whether its loss would be noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamageRow {
    pub file: String,
    pub gone: bool,
    /// Cut in half.
    pub cut: bool,
}

/// One damage to the tracker file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackerDamage {
    pub file: String,
    /// `gone`, `empty` or `garbage`.
    pub damage: &'static str,
    pub noticed: bool,
}

/// What a declaration understands of a checkpoint root, as stable JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainerCheckView {
    pub version: u32,
    pub path: String,
    pub declaration: DeclarationOutline,
    pub verdict: Verdict,
    pub tracker: TrackerState,
    pub steps: Vec<CheckedStep>,
    pub remarks: Vec<String>,
    /// Words of a resume from the newest whole step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Vec<String>>,
    /// Shown if there are none.
    #[serde(skip)]
    pub no_words: &'static str,
    /// Words of a fresh start.
    pub fresh: Vec<String>,
    /// Words that are taken out of the user's command first.
    pub strip: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<MatchedLine>>,
    pub damages: Vec<DamageRow>,
    /// Files of whole steps that were not tried, because there are so many.
    pub untried: usize,
    pub tracker_damages: Vec<TrackerDamage>,
}

impl TrainerCheckView {
    /// The view as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "{} as {}: {}\n",
            shown(&self.path),
            shown(&self.declaration.title),
            self.verdict
        );
        if self.steps.is_empty() {
            let names = self.declaration.steps.join(", ");
            out.push_str(&format!("  no step is here: looked for {}\n", shown(&names)));
        }
        for remark in &self.remarks {
            out.push_str(&format!("  note: {}\n", shown(remark)));
        }
        for step in &self.steps {
            out.push_str(&step_text(step));
        }
        out.push_str(&format!(
            "tracker: {}\n",
            tracker_text(&self.tracker, self.declaration.tracker.as_deref())
        ));
        if let Some(words) = &self.resume {
            out.push_str(&words_text("resume from the newest whole step", words, self.no_words));
        }
        out.push_str(&words_text(
            "fresh start",
            &self.fresh,
            "nothing is added to the command",
        ));
        if !self.strip.is_empty() {
            out.push_str(&words_text("removed from the command first", &self.strip, ""));
        }
        for line in self.lines.iter().flatten() {
            out.push_str(&line_text(line));
        }
        out.push_str(&self.damage_text());
        if !self.declaration.imports.is_empty() {
            let names = self.declaration.imports.join(", ");
            out.push_str(&format!(
                "its pickles may call {}: that counts only if `proof.trust_globals` in your settings names the same\n",
                shown(&names)
            ));
        }
        out
    }

    fn damage_text(&self) -> String {
        if self.damages.is_empty() {
            return String::new();
        }
        let word = |noticed: bool| if noticed { "noticed" } else { "missed" };
        let width = self
            .damages
            .iter()
            .map(|d| shown(&d.file).chars().count())
            .max()
            .unwrap_or_default();
        let width = width.clamp(4, 80);
        let mut out = format!("{:<width$}  {:<8}  cut\n", "file", "gone");
        for row in &self.damages {
            let file = shown(&row.file);
            out.push_str(&format!("{file:<width$}  {:<8}  {}\n", word(row.gone), word(row.cut)));
        }
        for row in &self.tracker_damages {
            let file = shown(&row.file);
            out.push_str(&format!("{file:<width$}  {}: {}\n", row.damage, word(row.noticed)));
        }
        if self.untried > 0 {
            out.push_str(&format!("{} more were not tried\n", count(self.untried as u64, "file")));
        }
        let missed: Vec<String> = self
            .damages
            .iter()
            .filter(|d| !d.gone)
            .map(|d| shown(&d.file))
            .collect();
        match missed.len() {
            0 if self.untried > 0 => out.push_str("every missing file of those is noticed\n"),
            0 => out.push_str("every missing file is noticed\n"),
            n => {
                let more = if n > NAMED { ", …" } else { "" };
                let some = missed.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
                out.push_str(&format!("not noticed if missing: {some}{more}\n"));
            }
        }
        out
    }
}

fn step_text(step: &CheckedStep) -> String {
    let summary = &step.summary;
    let parts: Vec<String> = step
        .parts
        .iter()
        .map(|(part, files)| format!("{part} ({files})"))
        .collect();
    // A file that cannot be read says no step.
    let number = match summary.step {
        Step(0) if summary.verdict != Verdict::Whole => "its step cannot be read".to_owned(),
        step => format!("step {step}"),
    };
    let mut out = format!(
        "  {} ({number}): {}; {}\n",
        shown(summary.id.0.as_str()),
        summary.verdict,
        if parts.is_empty() {
            "no part".to_owned()
        } else {
            shown(&parts.join(", "))
        }
    );
    for finding in &summary.findings {
        out.push_str(&format!("    {}\n", finding_text(finding)));
    }
    if !step.untaken.is_empty() {
        let more = if step.untaken.len() > NAMED { ", …" } else { "" };
        let some: Vec<&str> = step.untaken.iter().take(NAMED).map(String::as_str).collect();
        out.push_str(&format!("    in no part: {}{more}\n", shown(&some.join(", "))));
    }
    out
}

fn finding_text(finding: &Finding) -> String {
    shown(&finding.to_string())
}

fn tracker_text(tracker: &TrackerState, file: Option<&str>) -> String {
    let file = file.map(shown).unwrap_or_default();
    match tracker {
        TrackerState::Missing => format!("{file} is missing"),
        TrackerState::Empty => format!("{file} is empty"),
        TrackerState::Garbage(text) => format!("{file} holds {}", shown(text)),
        TrackerState::NotAFile(what) => format!("{file} is {}", shown(what)),
        TrackerState::Step(step) => format!("{file} names step {step}"),
        TrackerState::Unused => "none".to_owned(),
    }
}

fn words_text(what: &str, words: &[String], none: &str) -> String {
    match words {
        [] => format!("{what}: {none}\n"),
        words => format!("{what}: {}\n", shown_command(words)),
    }
}

fn line_text(line: &MatchedLine) -> String {
    let step = line.step.map(|step| format!(", step {step}")).unwrap_or_default();
    match &line.first {
        Some(first) => format!(
            "line {}: {}{step}, first: {}\n",
            shown(&line.means),
            super::count(line.lines, "time"),
            shown(first.trim())
        ),
        None => format!("line {}: never\n", shown(&line.means)),
    }
}
