//! Reads what a command and its YAML say about a run.

use super::Declaration;
use super::schema::{SettingRule, SettingSource, StepNames};
use super::words;
use crate::command;
use crate::kit::home_path;
use crate::read::{ReadInput, ReadOutput};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{ConfigError, ConfigTree, ErrorKind, parse_trainer_yaml, python_str};
use supervise_core::checkpoint::Finding;
use supervise_core::id::Step;
use supervise_core::spec::{GangSpec, InPlaceSpec, Numbering, SavePolicy};

/// Texts that set nothing.
const NOTHING: [&str; 4] = ["", "null", "none", "~"];

struct SettingReader<'a> {
    of: &'a Declaration,
    input: &'a ReadInput<'a>,
    tree: Option<ConfigTree>,
    problems: Vec<ConfigError>,
    findings: Vec<Finding>,
}

pub(super) fn read(of: &Declaration, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    let mut reader = SettingReader {
        of,
        input,
        tree: None,
        problems: Vec::new(),
        findings: Vec::new(),
    };
    reader.tree = reader.config();
    let mut out = ReadOutput::blank(of.kind);
    out.command = input.command.to_vec();
    out.facts.settings = input.set.to_vec();
    if let Some(tree) = &reader.tree {
        out.tree = tree.clone();
    }
    out.root = reader.root();
    let every = reader.number(&of.settings.every).filter(|n| *n > 0);
    out.cadence.every = every.and_then(|n| u64::try_from(n).ok());
    let last = reader.number(&of.settings.last).filter(|n| *n > 0);
    out.last_step = last.and_then(|n| u64::try_from(n).ok()).map(Step);
    let keep = reader.number(&of.settings.keep).filter(|n| *n > 0);
    out.keep = keep.and_then(|n| u32::try_from(n).ok());
    let key = of.settings.keep.iter().find_map(|source| source.keys.first());
    out.facts.keep = out.keep.zip(key).map(|(n, key)| (key.clone(), n)).into_iter().collect();
    let world = reader.number(&of.settings.world).and_then(|n| u32::try_from(n).ok());
    out.world = world.or_else(|| command::torchrun_world(input.command));
    if let Some(workers) = input.workers {
        out.gang = GangSpec::ranks(workers);
        out.world = Some(workers);
    }
    if input.recovery {
        reader.rules();
    }
    if let StepNames::InPlace(_) = of.steps.names {
        out.saves = SavePolicy::InPlace(InPlaceSpec {
            // It follows from the checkpoint root, which the settings may name.
            store: Utf8PathBuf::new(),
            exit_says_nothing: false,
            spread: BTreeMap::new(),
            own: serde_json::Map::new(),
        });
    }
    out.numbering = match of.resume.first_step_confirms {
        true => Numbering::Steps,
        false => Numbering::Else,
    };
    out.not_restored = of.never_saved();
    out.has_tail = true;
    out.may_end_early = of.rules.iter().any(|rule| rule.line.means == "end");
    out.findings = findings(of, input);
    out.findings.append(&mut reader.findings);
    out.findings.extend(reader.elsewhere(out.root.as_deref()));
    out.recovery = input.recovery && !of.is_watched_only();
    match reader.problems.is_empty() {
        true => Ok(out),
        false => Err(reader.problems),
    }
}

fn findings(of: &Declaration, input: &ReadInput<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    let style = of.command.style;
    for word in &of.resume.guard {
        if words::value(style, input.command, word).is_some() || input.command.contains(word) {
            let detail = format!("{word}: a resume does not load all state of a step");
            out.push(Finding::warning("resume_in_part", detail));
        }
    }
    if let Some((name, _)) = &of.resume.script {
        out.push(Finding::note(
            "resumes_by_itself",
            format!("the script has to resume from ${name} if that is set: it names the proven step"),
        ));
    }
    if words::spelt(style, "key", "value").is_none() && !input.set.is_empty() {
        out.push(Finding::warning(
            "told_not_passed_on",
            "--set: this trainer takes no settings from its command line, so they are not passed on".to_owned(),
        ));
    }
    if input.recovery && of.is_watched_only() {
        out.push(Finding::warning(
            "watched_only",
            format!("{}: {}", of.title, super::NO_WORDS),
        ));
    }
    out
}

impl SettingReader<'_> {
    /// The configuration that was composed, else the file that the command names.
    fn config(&self) -> Option<ConfigTree> {
        if let Some(composed) = self.input.composed {
            return Some(composed.tree.clone());
        }
        let flag = self.of.command.config.as_ref()?;
        let named = words::value(self.of.command.style, self.input.command, flag)?;
        let text = (self.input.file)(&self.input.cwd.join(&named))?;
        let root = parse_trainer_yaml(&text, &named).ok()?;
        Some(ConfigTree { root })
    }

    fn set(&self, key: &str) -> Option<String> {
        let plain = key.trim_start_matches('-');
        self.input.set.iter().rev().find_map(|set| {
            let (name, value) = set.split_once('=')?;
            (name.trim_start_matches('+') == plain).then(|| value.to_owned())
        })
    }

    /// What the user said: `--set`, the command, then the YAML.
    fn said(&self, key: &str) -> Option<String> {
        let plain = key.trim_start_matches('-');
        let set = self.set(key);
        let word = || words::value(self.of.command.style, self.input.command, key);
        let in_file = || {
            let tree = self.tree.as_ref()?;
            let node = InterpolationResolver::new(tree, self.input.env).get(plain).ok()??;
            (!node.is_null()).then(|| python_str(&node.value))
        };
        set.or_else(word).or_else(in_file)
    }

    /// The first source that is said counts, then the first with a default.
    fn text(&self, sources: &[SettingSource]) -> Option<String> {
        let said = sources.iter().find_map(|source| self.of_source(source, false));
        said.or_else(|| sources.iter().find_map(|source| self.of_source(source, true)))
    }

    fn of_source(&self, source: &SettingSource, by_default: bool) -> Option<String> {
        let found = match &source.env {
            Some(env) => (self.input.env)(env)?,
            None => {
                let said: Vec<Option<String>> = source.keys.iter().map(|key| self.said(key)).collect();
                if !by_default && said.iter().all(Option::is_none) {
                    return None;
                }
                let parts = said
                    .into_iter()
                    .enumerate()
                    .map(|(at, said)| said.or_else(|| source.defaults.get(at).cloned()));
                let parts: Option<Vec<String>> = parts.collect();
                parts?.join("/")
            }
        };
        Some(match &source.then {
            Some(then) => format!("{}/{then}", found.trim_end_matches('/')),
            None => found,
        })
    }

    /// Refuses flags that name a path or a number and have no value. Returns true if there is one.
    fn refuse_bare(&mut self, sources: &[SettingSource]) -> bool {
        let is_set = |key: &str| self.set(key).is_some();
        let style = self.of.command.style;
        let keys = sources.iter().flat_map(|source| &source.keys);
        let mut bare = keys.filter(|key| words::is_bare(style, self.input.command, key) && !is_set(key));
        let Some(key) = bare.next().cloned() else {
            return false;
        };
        self.refuse(
            &key,
            "the command gives it no value".to_owned(),
            "write the value after it",
        );
        true
    }

    fn refuse(&mut self, key: &str, message: String, hint: &str) {
        let error = ConfigError::new(ErrorKind::BadValue, message).with_key(key);
        self.problems.push(error.with_hint(hint));
    }

    fn root(&mut self) -> Option<Utf8PathBuf> {
        let of = self.of;
        if self.refuse_bare(&of.settings.root) {
            return None;
        }
        let text = self.text(&of.settings.root)?;
        let key = of.root_key();
        if text.trim().is_empty() {
            self.refuse(&key, "the checkpoint root is empty".to_owned(), "give a directory");
            return None;
        }
        if text.contains("${") {
            self.refuse(
                &key,
                format!("{text} is filled in by the trainer, and not known here"),
                "set supervisor.root",
            );
            return None;
        }
        match home_path(self.input.cwd, self.input.env, &text) {
            Some(path) => Some(path),
            None => {
                let what = format!("the home directory that {text} begins with is not known");
                self.refuse(&key, what, "write the whole path");
                None
            }
        }
    }

    fn number(&mut self, sources: &[SettingSource]) -> Option<i64> {
        if self.refuse_bare(sources) {
            return None;
        }
        let text = self.text(sources)?;
        if NOTHING.contains(&text.to_lowercase().as_str()) {
            return None;
        }
        let add = sources.iter().map(|source| source.add).find(|add| *add != 0);
        match text.replace('_', "").parse::<i64>() {
            Ok(number) => Some(number.saturating_add(add.unwrap_or(0))),
            Err(_) => {
                let key = sources.iter().find_map(|s| s.keys.first()).cloned();
                let key = key.unwrap_or_default();
                self.refuse(&key, format!("expected a number, found {text}"), "write a whole number");
                None
            }
        }
    }

    /// A first start from a step of another root.
    fn elsewhere(&self, root: Option<&Utf8Path>) -> Option<Finding> {
        let said = |key: &String| Some((key.clone(), self.said(key)?));
        let (key, from) = self.of.settings.same_as_root.iter().find_map(said)?;
        let from_path = home_path(self.input.cwd, self.input.env, &from);
        let is_other = root.is_some_and(|root| from_path.is_some_and(|from| from != root));
        is_other.then(|| {
            let detail = format!("{key}: the first start loads {from}, a restart the newest proven step of this run");
            Finding::note("starts_elsewhere", detail)
        })
    }

    /// Settings with which the run must not start.
    fn rules(&mut self) {
        let is_one = |rule: &SettingRule, value: &str| rule.values.iter().any(|v| v.eq_ignore_ascii_case(value));
        for rule in &self.of.settings.must {
            let wanted = rule.values.join(" or ");
            match self.said(&rule.key) {
                Some(value) if is_one(rule, &value) => {}
                Some(value) => {
                    let what = format!("it is {value}, and has to be {wanted}: {}", rule.why);
                    self.refuse(&rule.key, what, "change it, or run it without resuming: --no-recovery");
                }
                // It may be set where nothing is read here.
                None => self.findings.push(Finding::warning(
                    "setting_unsaid",
                    format!(
                        "{}: neither the command nor its YAML says {wanted}: {}",
                        rule.key, rule.why
                    ),
                )),
            }
        }
        for rule in &self.of.settings.refuse {
            if let Some(value) = self.said(&rule.key).filter(|value| is_one(rule, value)) {
                let what = format!("it is {value}: {}", rule.why);
                self.refuse(&rule.key, what, "remove it, or run it without resuming: --no-recovery");
            }
        }
    }
}
