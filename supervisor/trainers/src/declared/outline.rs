//! A declaration in words, for people who check one.

use super::Declaration;
use super::launch::ResumePoint;
use super::schema::{DeclaredFiles, PartNeed, StepNames};
use serde::Serialize;
use std::collections::BTreeMap;
use supervise_config::redact_text;

/// Bytes of a log line that are matched.
const LINE: usize = 4096;

/// One part of a declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartOutline {
    pub name: String,
    pub roles: Vec<String>,
    /// Patterns of its files, or of its directories.
    pub files: Vec<String>,
    pub need: &'static str,
}

/// What a declaration says, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeclarationOutline {
    pub name: String,
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Releases whose source was read.
    pub read: Vec<String>,
    pub steps: Vec<String>,
    pub parts: Vec<PartOutline>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracker: Option<String>,
    /// Names that its pickles may call, if the settings trust them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
}

/// A line of a log that a declaration explains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchedLine {
    pub means: String,
    /// How many lines matched.
    pub lines: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The step in that line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl Declaration {
    /// What it says, in words.
    #[must_use]
    pub fn outline(&self) -> DeclarationOutline {
        let part = |part: &super::DeclaredPart| PartOutline {
            name: part.name.clone(),
            roles: part.roles.iter().map(|r| r.name.clone()).collect(),
            files: match &part.files {
                DeclaredFiles::Names(names) => names.iter().map(|n| n.text().to_owned()).collect(),
                DeclaredFiles::Sets(dirs) => dirs
                    .iter()
                    .map(|dir| dir.as_ref().map_or(".", |d| d.text()).to_owned())
                    .collect(),
                DeclaredFiles::Itself => vec![".".to_owned()],
            },
            need: match part.need {
                PartNeed::Always => "always",
                PartNeed::Sibling => "sibling",
                PartNeed::Optional => "optional",
            },
        };
        DeclarationOutline {
            name: self.name.clone(),
            title: self.title.clone(),
            package: self.package.clone(),
            read: self.read.clone(),
            steps: match &self.steps.names {
                StepNames::Dirs(dirs) => dirs.iter().map(|d| d.text().to_owned()).collect(),
                StepNames::InPlace(file) => vec![file.clone()],
            },
            parts: self.parts.iter().map(part).collect(),
            tracker: self.tracker.as_ref().map(|t| t.file.to_owned()),
            imports: self.parts.iter().flat_map(|p| p.imports.iter().cloned()).collect(),
        }
    }

    /// The words that a resume from a step adds to the command, and the variable it sets.
    #[must_use]
    pub fn resume_words(&self, root: &str, dir: &str, step: u64) -> Vec<String> {
        let at = ResumePoint { root, dir, step };
        let script = self.resume.script.iter();
        let script = script.map(|(name, value)| format!("env:{name}={}", at.fill(value)));
        self.resume.at.iter().map(|word| at.fill(word)).chain(script).collect()
    }

    /// The words that a fresh start adds to the command.
    #[must_use]
    pub fn fresh_words(&self, root: &str) -> Vec<String> {
        self.resume
            .fresh
            .iter()
            .map(|word| word.replace("{root}", root))
            .collect()
    }

    /// The words that are taken out of the user's command first.
    #[must_use]
    pub fn stripped_words(&self) -> &[String] {
        &self.resume.strip
    }

    /// What the lines of a log mean. Kinds of lines that never occur are listed without one.
    pub fn match_lines<'l>(&self, lines: impl Iterator<Item = &'l str>) -> Vec<MatchedLine> {
        let mut found: BTreeMap<usize, MatchedLine> = self
            .rules
            .iter()
            .enumerate()
            .map(|(n, rule)| {
                let line = MatchedLine {
                    means: rule.line.means.clone(),
                    lines: 0,
                    first: None,
                    step: None,
                };
                (n, line)
            })
            .collect();
        for line in lines {
            let end = (0..=LINE.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
            let line = &line[..end.unwrap_or_default()];
            for (n, rule) in self.rules.iter().enumerate() {
                let Some(groups) = rule.pattern.captures(line) else {
                    continue;
                };
                if rule.not_if.as_ref().is_some_and(|not| not.is_match(line)) {
                    continue;
                }
                let Some(seen) = found.get_mut(&n) else { continue };
                seen.lines += 1;
                if seen.first.is_none() {
                    seen.first = Some(redact_text(line));
                    let step = groups.get(1).filter(|_| rule.line.has_step);
                    seen.step = step.and_then(|s| s.as_str().parse().ok());
                }
            }
        }
        found.into_values().collect()
    }
}
