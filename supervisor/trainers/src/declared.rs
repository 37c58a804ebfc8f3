//! Trainers that are declared in a TOML file instead of being written in Rust.
//!
//! A declaration says how steps are named, which files a step holds, what shows that a save has ended, and what lines mean.
//! It runs nothing: it can at worst misjudge names. Presets are compiled in; `supervise trainer show` prints them.

mod adapter;
mod compile;
mod entry;
mod judge;
mod launch;
mod lines;
mod outline;
mod parse;
mod part;
mod pattern;
mod read;
mod recognize;
mod schema;
mod settings;
mod source;
mod start;
mod steps;
mod words;

pub(crate) use adapter::DeclaredAdapter;
pub use outline::{DeclarationOutline, MatchedLine, PartOutline};
pub use recognize::{DeclaredMatch, fits_word, recognize};
pub use source::{DeclarationProblem, LARGEST};
pub use steps::DeclaredStepTracker;

use crate::adapter::ExpectedLayout;
use camino::{Utf8Path, Utf8PathBuf};
use pattern::NamePattern;
use schema::{
    DeclaredCommand, DeclaredPart, DeclaredResume, DeclaredSettings, DeclaredSteps, DeclaredTracker, FinishMark,
    LineRule,
};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use supervise_core::checkpoint::StateKind;
use supervise_core::event::scan::ScanRule;
use supervise_core::spec::{DeclaredTrainer, TrainerKind};

/// The declarations that are compiled in.
const PRESETS: [(&str, &str); 4] = [
    ("skyrl", include_str!("../presets/skyrl.toml")),
    ("torchtitan", include_str!("../presets/torchtitan.toml")),
    ("dcp", include_str!("../presets/dcp.toml")),
    ("nanogpt", include_str!("../presets/nanogpt.toml")),
];

/// Said of a trainer that takes the step its command names, if there are no words to name one.
const NO_WORDS: &str = "[resume] in its declaration has no words for a step: it starts as it was written";

/// A trainer as its file declares it.
#[derive(Debug)]
pub struct Declaration {
    kind: TrainerKind,
    name: String,
    title: String,
    package: Option<String>,
    read: Vec<String>,
    command: DeclaredCommand,
    settings: DeclaredSettings,
    steps: DeclaredSteps,
    parts: Vec<DeclaredPart>,
    finish: FinishMark,
    /// Files that nobody needs.
    spare: Vec<NamePattern>,
    tracker: Option<DeclaredTracker>,
    resume: DeclaredResume,
    rules: Vec<LineRule>,
    text: String,
}

impl Declaration {
    /// Reads a declaration. `taken`: names that belong to other trainers.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str, taken: &[String]) -> Result<Self, Vec<DeclarationProblem>> {
        parse::parse(text, taken)
    }

    /// The name that a text with mistakes declares, if it can be read that far.
    #[must_use]
    pub fn name_in(text: &str) -> Option<String> {
        parse::name_in(text)
    }

    /// Its name in commands, and in journals.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn kind(&self) -> TrainerKind {
        self.kind
    }

    /// Its name in sentences.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its TOML.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if these words start this trainer.
    #[must_use]
    pub fn is_called(&self, command: &[String]) -> bool {
        let starts = |words: &Vec<String>| {
            let mut left = command.iter();
            words.iter().all(|word| left.any(|c| fits_word(word, c)))
        };
        let has = |either: &String| either.split('|').any(|word| command.iter().any(|c| fits_word(word, c)));
        self.command.any.iter().any(starts) && self.command.needs.iter().all(has)
    }

    /// An empty tracker for a checkpoint root.
    #[must_use]
    pub fn tracker(self: &Arc<Self>) -> DeclaredStepTracker {
        DeclaredStepTracker::new(Arc::clone(self))
    }

    /// Identifies its text.
    #[must_use]
    pub fn digest(&self) -> String {
        DeclaredTrainer::digest_of(&self.text)
    }

    /// Returns true if another declaration takes the same steps for whole.
    #[must_use]
    pub fn judges_like(&self, other: &Self) -> bool {
        let told = |d: &Self| format!("{:?}", (&d.steps, &d.parts, &d.finish, &d.spare, &d.tracker));
        told(self) == told(other)
    }

    /// The setting that determines the checkpoint root.
    fn root_key(&self) -> String {
        let key = self.settings.root.iter().find_map(|source| source.keys.first());
        key.map_or("supervisor.root", String::as_str).to_owned()
    }

    /// State that no step holds.
    fn never_saved(&self) -> Vec<StateKind> {
        let all: BTreeSet<StateKind> = self.parts.iter().flat_map(|p| p.never_saved.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Why a resume adds nothing to the command.
    #[must_use]
    pub fn no_resume_words(&self) -> &'static str {
        match self.is_watched_only() {
            true => NO_WORDS,
            false => "nothing is added to the command: the trainer finds the step by itself",
        }
    }

    /// Returns true if nothing can be said to the trainer that makes it resume from a step.
    fn is_watched_only(&self) -> bool {
        self.steps.is_given && self.resume.at.is_empty() && self.resume.script.is_none()
    }

    /// The tracker of a run: what no step holds is mentioned once, and makes no resume incomplete.
    fn run_tracker(self: &Arc<Self>, expect: &ExpectedLayout) -> DeclaredStepTracker {
        DeclaredStepTracker::in_run(Arc::clone(self), expect.clone())
    }

    fn scan_rules(&self) -> Vec<ScanRule> {
        let rule = |(n, rule): (usize, &LineRule)| ScanRule {
            not_if: rule.not_if.as_ref().map(|not| not.as_str().to_owned()),
            ..ScanRule::new(
                &format!("{}.{}{}", self.name, rule.line.means.replace(':', "_"), n + 1),
                rule.pattern.as_str(),
                rule.line.kind.clone(),
            )
        };
        self.rules.iter().enumerate().map(rule).collect()
    }
}

/// Directory next to a checkpoint root for everything that must not be in it.
#[must_use]
pub fn outside_store(root: &Utf8Path) -> Utf8PathBuf {
    let name = root.file_name().unwrap_or("root");
    root.with_file_name(format!(".supervise.{name}"))
}

/// The declarations that are compiled in, in the order in which they are asked.
pub fn presets() -> &'static [Arc<Declaration>] {
    static READ: LazyLock<Vec<Arc<Declaration>>> = LazyLock::new(|| {
        let read = |(_, text): &(&str, &str)| Declaration::parse(text, &[]).ok().map(Arc::new);
        PRESETS.iter().filter_map(read).collect()
    });
    &READ
}

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Arc<Declaration>> {
    presets().iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_read() {
        for (name, text) in PRESETS {
            let read = Declaration::parse(text, &[]);
            let read = read.unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
            assert_eq!(read.name(), name);
        }
        assert_eq!(presets().len(), PRESETS.len());
    }
}
