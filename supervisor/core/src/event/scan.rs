//! Line scanner: turns output into sightings with a table of rules, one pass per line, bounded work.
//!
//! Runs inside the guard, so that sightings survive the supervisor. A Python exception counts only at the end of a traceback: healthy
//! logs are full of `ModuleNotFoundError` in warnings.

mod filter;
mod model_text;
mod paths;
mod remark;
mod rule_id;
mod strip;
mod traceback;

pub(crate) use filter::Filter;
pub(crate) use paths::without_paths;
pub(crate) use remark::{SAMPLES, opens_sample};
pub use rule_id::{RuleId, RuleSource};
pub use strip::strip;
pub use traceback::TracebackScope;

use crate::checkpoint::StateKind;
use crate::event::{Sighting, TrainerPhase};
use crate::id::WorkerId;
use crate::observe::numbers::{StepMetrics, TrainingMetric, number_of};
use crate::rulebook::taxonomy::FailureClass;
use model_text::Samples;
use regex::bytes::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use strip::Prefix;
use thiserror::Error;
use traceback::{TracebackLine, Tracebacks};

/// Bytes of a line that are scanned and kept.
pub const LINE_LIMIT: usize = 4096;

/// Prefix of the ids of the user's rules.
pub(crate) const USER: &str = "user/";

/// Most progress rules that count in addition to the first match of a line.
const BESIDE: usize = 4;

/// Suffix of a rule's id if it matched model text.
const QUOTED: &str = ".quoted";

/// Meaning of a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    /// The first capture group is the finished step, the second one the last planned step.
    Step,
    /// A progress bar: the first capture group is its position, the second its length. It counts as steps only if its length is the last
    /// planned step.
    Bar,
    /// The trainer entered this phase; an optional capture group is the step.
    Enters(TrainerPhase),
    /// Progress other than the trainer's steps: the capture group is a rising number.
    Beat,
    /// A part of the trainer restarts in place, which takes time.
    Heals,
    /// The capture group is the last planned step.
    Total,
    /// The trainer says that it resumed; the capture group is the step.
    Resumed,
    /// The trainer says that it starts from scratch.
    Scratch,
    /// The trainer says that it resumes without this state.
    Lost(StateKind),
    /// The line of the printed trainer configuration with the path to resume from.
    ResumePath,
    /// The trainer says that it ended as planned.
    End,
    /// A training loop saved something that is no checkpoint of the run; the line says why.
    NotSaved,
    /// The trainer says that it failed; its cleanup may take hours.
    Failed,
    /// A failure of this class (`mem.cuda_oom`).
    Failure(FailureClass),
    /// An exception ended a traceback; the diagnosis classifies its text.
    Exception,
}

impl RuleKind {
    fn tells_progress(&self) -> bool {
        matches!(self, Self::Step | Self::Bar | Self::Beat)
    }
}

/// A rule: a regular expression for a line without colors and launcher prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRule {
    /// Stable id.
    pub id: String,
    /// Regular expression (bytes, Unicode classes off by default).
    pub pattern: String,
    /// Meaning of a match.
    pub kind: RuleKind,
    /// Keys of metrics in the line. If there are any, the line reports a training step only if it has one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(TrainingMetric, String)>,
    /// Texts separated by `|`. The expression, which may be empty, is tried only if the line contains one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// The rule does not apply to lines that match this expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_if: Option<String>,
}

impl ScanRule {
    /// Creates a rule that is tried on each line.
    #[must_use]
    pub fn new(id: &str, pattern: &str, kind: RuleKind) -> Self {
        Self {
            id: id.to_owned(),
            pattern: pattern.to_owned(),
            kind,
            keys: Vec::new(),
            holds: None,
            not_if: None,
        }
    }

    /// Creates a rule for lines that contain a text.
    #[must_use]
    pub fn holding(id: &str, holds: &str, pattern: &str, kind: RuleKind) -> Self {
        Self {
            holds: Some(holds.to_owned()),
            ..Self::new(id, pattern, kind)
        }
    }

    /// Adds the keys of the metrics in its lines.
    #[must_use]
    pub fn with_keys(mut self, keys: &[(TrainingMetric, &str)]) -> Self {
        self.keys = keys.iter().map(|(m, key)| (*m, (*key).to_owned())).collect();
        self
    }

    /// The metrics in a line; `None` if the rule has keys and the line has none of them.
    fn numbers(&self, line: &[u8]) -> Option<StepMetrics> {
        let mut out = StepMetrics::default();
        let mut found = self.keys.is_empty();
        for (what, key) in &self.keys {
            if let Some(n) = number_of(line, key) {
                out.set(*what, n);
                found = true;
            }
        }
        found.then_some(out)
    }
}

/// A rule's match in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanMatch {
    /// Meaning of the match.
    pub kind: RuleKind,
    /// The matched line and its position.
    pub sighting: Sighting,
    /// The last planned step, if a step line has it.
    pub total: Option<u64>,
    /// Metrics of a training step; `None`: the line reports something else, such as a validation.
    pub numbers: Option<StepMetrics>,
}

/// The compiled rules, with the state for tracebacks and model text.
pub struct Scanner {
    /// Rules that are tried on each line, and their indexes in `rules`.
    set: RegexSet,
    places: Vec<usize>,
    /// Rules that are tried if a line contains their text.
    filter: Filter,
    rules: Vec<(ScanRule, Option<Regex>)>,
    /// Expressions that exclude a line from a rule, by the rule's index.
    not_if: Vec<(usize, Regex)>,
    prefix: Prefix,
    tracebacks: Tracebacks,
    samples: Samples,
    /// Whether the last line was model text.
    quoted: bool,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scanner({} rules)", self.rules.len())
    }
}

/// Error of compiling the rules.
#[derive(Debug, Error)]
pub enum ScanError {
    /// A pattern is not a regular expression, or the table is too large.
    #[error(transparent)]
    Pattern(#[from] regex::Error),
    /// Too many texts.
    #[error(transparent)]
    Texts(#[from] aho_corasick::BuildError),
}

impl Scanner {
    /// Compiles the rules. A rule with a text is compiled when its text first occurs.
    ///
    /// # Errors
    /// A pattern is not a regular expression, or the table is too large.
    pub fn new(rules: Vec<ScanRule>) -> Result<Self, ScanError> {
        let (mut places, mut patterns) = (Vec::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate().filter(|(_, r)| r.holds.is_none()) {
            places.push(at);
            patterns.push(rule.pattern.as_str());
        }
        let set = RegexSet::new(patterns)?;
        let held = rules.iter().enumerate();
        let filter = Filter::new(held.filter_map(|(at, r)| Some((at, r.holds.as_deref()?, r.pattern.as_str()))))?;
        let excluding = rules.iter().enumerate();
        let not_if = excluding
            .filter_map(|(at, r)| Some((at, r.not_if.as_deref()?)))
            .map(|(at, pattern)| Ok((at, Regex::new(pattern)?)))
            .collect::<Result<_, regex::Error>>()?;
        let rules = rules
            .into_iter()
            .map(|r| match r.holds {
                None => Regex::new(&r.pattern).map(|x| (r, Some(x))),
                Some(_) => Ok((r, None)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            set,
            places,
            filter,
            rules,
            not_if,
            prefix: Prefix::new()?,
            tracebacks: Tracebacks::new()?,
            samples: Samples::new()?,
            quoted: false,
        })
    }

    /// Scans one line (without its newline). The first matching rule wins.
    pub fn line(&mut self, worker: WorkerId, number: u64, line: &[u8]) -> Option<ScanMatch> {
        self.all(worker, number, line).pop()
    }

    /// Like `line`, preceded by progress matches of the same line: a log line printed after a progress bar shares its line.
    pub fn all(&mut self, worker: WorkerId, number: u64, line: &[u8]) -> Vec<ScanMatch> {
        let plain = strip(&line[..line.len().min(LINE_LIMIT)]);
        let (source, text) = self.prefix.split(&plain);
        let before = &plain[..plain.len() - text.len()];
        self.quoted = self.samples.line(worker.0, source, before, text);
        match self.tracebacks.line(worker.0, source, text) {
            TracebackLine::Exception { .. } if self.user_rule(text).is_some() => {}
            TracebackLine::Exception { through, chained } => {
                let rule = match self.quoted {
                    true => RuleId {
                        source: RuleSource::Raised {
                            through: TracebackScope::Neither,
                            chained: false,
                        },
                        quoted: true,
                    },
                    false => RuleSource::Raised { through, chained }.into(),
                };
                let text = text.trim_ascii_start();
                return vec![hit(RuleKind::Exception, rule, worker, number, text, None)];
            }
            // Source code shows what a program can do, not what happened.
            TracebackLine::Code => return Vec::new(),
            TracebackLine::Inside if text.starts_with(b"  ") => return Vec::new(),
            TracebackLine::Inside | TracebackLine::Other => {}
        }
        let matched = self.set.matches(text);
        let counts = |at: &usize| !self.not_if.iter().any(|(of, regex)| of == at && regex.is_match(text));
        let always = || {
            matched
                .iter()
                .filter_map(|at| self.places.get(at))
                .copied()
                .filter(counts)
        };
        let Some(first) = always().chain(self.filter.first(&without_paths(text))).min() else {
            return Vec::new();
        };
        let is_step = self.rules.get(first).is_some_and(|(r, _)| r.kind == RuleKind::Step);
        let beside = |at: &usize| *at != first && self.rules.get(*at).is_some_and(|(r, _)| r.kind.tells_progress());
        let others = always().filter(beside).take(if is_step { 0 } else { BESIDE });
        others
            .chain([first])
            .filter_map(|at| self.by_rule(at, worker, number, text))
            .collect()
    }

    fn by_rule(&self, at: usize, worker: WorkerId, number: u64, text: &[u8]) -> Option<ScanMatch> {
        let (rule, regex) = self.rules.get(at)?;
        if matches!(rule.kind, RuleKind::Failure(_)) && !rule.id.starts_with(USER) && remark::is_remark(text) {
            return None;
        }
        if matches!(rule.kind, RuleKind::Failure(_)) && !rule.id.starts_with(USER) && self.is_supposed(at, text) {
            return None;
        }
        let captures = regex.as_ref().and_then(|r| r.captures(text));
        let digits = |group| {
            let bytes = captures.as_ref()?.get(group)?.as_bytes();
            // Large numbers may have thousands separators.
            std::str::from_utf8(bytes).ok()?.replace(',', "").parse().ok()
        };
        let mut found = hit(
            rule.kind.clone(),
            rule.id.as_str().into(),
            worker,
            number,
            text,
            digits(1),
        );
        found.total = digits(2).filter(|_| matches!(rule.kind, RuleKind::Step | RuleKind::Bar));
        found.numbers = rule.numbers(text);
        if self.quoted && matches!(rule.kind, RuleKind::Failure(_)) {
            found.sighting.rule.quoted = true;
        }
        Some(found)
    }

    /// Returns true if the matched text follows a condition, so that it only may happen. An exception did happen.
    fn is_supposed(&self, at: usize, text: &[u8]) -> bool {
        let is_raised =
            || memchr::memmem::find(text, b"Error: ").is_some() || memchr::memmem::find(text, b"error: ").is_some();
        let before = remark::before_a_condition(text);
        before.is_some_and(|before| !is_raised() && self.filter.first(&without_paths(before)) != Some(at))
    }

    fn user_rule(&self, text: &[u8]) -> Option<usize> {
        if !self.rules.iter().any(|(rule, _)| rule.id.starts_with(USER)) {
            return None;
        }
        let mut matches = self.set.matches(text).into_iter().filter_map(|at| self.places.get(at));
        matches
            .find(|at| self.rules.get(**at).is_some_and(|(rule, _)| rule.id.starts_with(USER)))
            .copied()
    }

    /// The line as its process printed it: without colors and without the prefixes of launchers and loggers.
    #[must_use]
    pub fn message(&self, line: &[u8]) -> Vec<u8> {
        let plain = strip(&line[..line.len().min(LINE_LIMIT)]);
        self.prefix.split(&plain).1.to_vec()
    }

    /// Discards open tracebacks and model texts.
    pub fn clear(&mut self) {
        self.tracebacks.clear();
        self.samples.clear();
        self.quoted = false;
    }

    /// Returns true inside a traceback or model text, where each line counts.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.tracebacks.any() || self.samples.any()
    }

    pub(crate) fn is_raising(&self) -> bool {
        self.tracebacks.any()
    }

    pub(crate) fn end_samples(&mut self) {
        self.samples.clear();
    }

    /// Returns true if the last line was model text, which reports nothing that happened here.
    #[must_use]
    pub fn is_quoted(&self) -> bool {
        self.quoted
    }
}

fn hit(kind: RuleKind, rule: RuleId, worker: WorkerId, line: u64, text: &[u8], number: Option<u64>) -> ScanMatch {
    ScanMatch {
        kind,
        sighting: Sighting {
            rule,
            worker,
            line,
            text: String::from_utf8_lossy(text).into_owned(),
            number,
            count: 1,
        },
        total: None,
        numbers: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rulebook::taxonomy::Class;

    fn scanner() -> Scanner {
        Scanner::new(vec![
            ScanRule::new("step", r"\bstep:(\d+) - ", RuleKind::Step),
            ScanRule::new(
                "oom",
                r"CUDA out of memory",
                RuleKind::Failure(Class::MemCudaOom.into()),
            ),
        ])
        .unwrap()
    }

    #[test]
    fn a_step_line_is_found_behind_ray_prefix_and_colour() {
        let mut s = scanner();
        let line = b"\x1b[36m(TaskRunnerV1 pid=71, ip=10.0.0.1)\x1b[0m step:12 - loss:0.5";
        let hit = s.line(WorkerId(0), 3, line).unwrap();
        assert_eq!(hit.kind, RuleKind::Step);
        assert_eq!(hit.sighting.number, Some(12));
    }

    #[test]
    fn a_line_about_a_step_may_say_how_many_there_are() {
        let rule = ScanRule::new("step", r"Train step (\d+)/(\d+) done", RuleKind::Step);
        let mut s = Scanner::new(vec![rule]).unwrap();
        let hit = s
            .line(WorkerId(0), 1, b"Epoch 1/2 Step 3/4 Train step 3/8 done.")
            .unwrap();
        assert_eq!((hit.sighting.number, hit.total), (Some(3), Some(8)));
        assert_eq!(scanner().line(WorkerId(0), 1, b"step:3 - x").unwrap().total, None);
    }

    #[test]
    fn a_line_may_tell_a_step_beside_what_it_means_first() {
        let mut s = Scanner::new(vec![
            ScanRule::new("saves", r"Saving to \d+", RuleKind::Enters(TrainerPhase::Save)),
            ScanRule::new("bar", r"^\s*\d+%\|[^|]*\|\s*(\d+)/(\d+) \[", RuleKind::Bar),
            ScanRule::new("step", r"step (\d+)", RuleKind::Step),
            ScanRule::new("beat", r" (\d+)/\d+ ", RuleKind::Beat),
            ScanRule::new(
                "oom",
                r"CUDA out of memory",
                RuleKind::Failure(Class::MemCudaOom.into()),
            ),
        ])
        .unwrap();
        let mut rules = |line: &str| {
            let hits = s.all(WorkerId(0), 1, line.as_bytes());
            let named = |h: ScanMatch| format!("{} {:?}/{:?}", h.sighting.rule, h.sighting.number, h.total);
            hits.into_iter().map(named).collect::<Vec<_>>()
        };
        assert_eq!(
            rules(" 50%|##  | 2/4 [00:00<00:01]Saving to 2"),
            ["bar Some(2)/Some(4)", "beat Some(2)/None", "saves None/None"]
        );
        // The bar of something other than training still counts as progress.
        assert_eq!(
            rules(" 50%|##  | 2/4 [00:00"),
            ["beat Some(2)/None", "bar Some(2)/Some(4)"]
        );
        // A step match is enough; later rules cannot make the line a failure.
        assert_eq!(rules("step 3 2/4 : CUDA out of memory"), ["step Some(3)/None"]);
        assert_eq!(rules("CUDA out of memory"), ["oom None/None"]);
    }

    #[test]
    fn an_exception_counts_only_at_the_end_of_a_traceback() {
        let mut s = scanner();
        assert!(
            s.line(WorkerId(0), 1, b"ModuleNotFoundError: No module named 'vllm'")
                .is_none()
        );
        assert!(
            s.line(WorkerId(0), 2, b"[rank1]: Traceback (most recent call last):")
                .is_none()
        );
        assert!(s.line(WorkerId(0), 3, b"[rank1]:   File \"x.py\", line 1").is_none());
        let hit = s.line(WorkerId(0), 4, b"[rank1]: torch.cuda.FooError: broken").unwrap();
        assert_eq!(hit.kind, RuleKind::Exception);
        assert_eq!(hit.sighting.text, "torch.cuda.FooError: broken");
        assert!(s.line(WorkerId(0), 5, b"KeyError: 'x'").is_none());
    }

    #[test]
    fn a_rule_does_not_apply_to_lines_that_it_excludes() {
        let mut rule = ScanRule::new("step", r"step (\d+)", RuleKind::Step);
        rule.not_if = Some("validate".to_owned());
        let other = ScanRule::new("other", "step", RuleKind::Enters(TrainerPhase::Validate));
        let mut s = Scanner::new(vec![rule, other]).unwrap();
        let mut named = |line: &[u8]| s.line(WorkerId(0), 1, line).map(|hit| hit.sighting.rule.to_string());
        assert_eq!(named(b"step 3").as_deref(), Some("step"));
        assert_eq!(named(b"validate step 3").as_deref(), Some("other"));
    }

    #[test]
    fn a_long_line_is_cut_not_kept() {
        let mut s = scanner();
        let mut line = b"CUDA out of memory ".to_vec();
        line.resize(1 << 20, b'x');
        assert!(s.line(WorkerId(0), 1, &line).unwrap().sighting.text.len() <= LINE_LIMIT);
    }
}
