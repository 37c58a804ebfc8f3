//! The diagnosis of logs, as text and as JSON.

use super::one_line;
use super::terminal::shown;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use supervise_config::redact_text;
use supervise_core::diagnosis::{LogDoubt, LogLine, LogVerdict, exception_name};
use supervise_core::rulebook::failure_line::{FailureLine, said_of};
use supervise_core::rulebook::taxonomy::{FailureClass, letter};

/// Longest line that is shown as text.
const LONG: usize = 600;

/// A log line without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineView {
    /// The log, as named on the command line.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    pub text: String,
}

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnoseView {
    /// Failure class, or `none`.
    pub class: String,
    /// What the class means; `null`: it is one of the user's.
    pub meaning: Option<String>,
    /// The response to a first failure, one of `R Rb R1 S N F W K`, or `none`.
    pub action: String,
    /// `high`, `medium` or `low`.
    pub confidence: String,
    /// The line that shows it; `null`: the exit code does, or nothing.
    pub root: Option<LineView>,
    /// The exception that the root line names, without its module; `null` if it names none.
    pub exception: Option<String>,
    /// Later lines that it caused.
    pub cascade: Vec<LineView>,
    pub runner_up: Option<String>,
    pub step: Option<u64>,
    pub advice: Option<String>,
    /// Why the logs may be incomplete; `null`: no doubt.
    pub doubt: Option<String>,
    /// Runs that wrote into one log; the last one is told of.
    pub runs: u32,
}

impl DiagnoseView {
    /// Logs have these names; `rules` are the user's.
    #[must_use]
    pub fn of(v: &LogVerdict, names: &[String], rules: &[FailureLine]) -> Self {
        let place = |p: &LogLine| LineView {
            file: names.get(p.file).cloned().unwrap_or_default(),
            line: p.line,
            text: redact_text(&p.text),
        };
        let doubt = v.doubt.map(|(file, why)| {
            let name = names.get(file).map_or("", String::as_str);
            format!("{name} {}", why.words())
        });
        let none = || "none".to_owned();
        Self {
            advice: v.class.as_ref().and_then(|class| advice_on(class, rules)),
            meaning: v
                .class
                .as_ref()
                .and_then(|class| class.row())
                .map(|row| row.meaning.to_owned()),
            class: v.class.clone().map_or_else(none, String::from),
            action: v.action.map_or_else(none, |a| letter(a).to_owned()),
            confidence: v.confidence.word().to_owned(),
            root: v.root.as_ref().map(place),
            exception: v.root.as_ref().and_then(|p| exception_name(&p.text)).map(str::to_owned),
            cascade: v.cascade.iter().map(place).collect(),
            runner_up: v.runner_up.clone().map(String::from),
            step: v.step,
            doubt,
            runs: v.runs,
        }
    }
}

/// What the operator should do about a failure: from the rulebook, or from the user's rule.
#[must_use]
pub fn advice_on(class: &FailureClass, rules: &[FailureLine]) -> Option<String> {
    let own = || said_of(rules, class, |line| line.advice.clone());
    class.row().map(|row| row.advice.to_owned()).or_else(own)
}

/// The cause first, then its evidence, what followed, and what to do.
#[must_use]
pub fn words(v: &DiagnoseView) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    if v.class == "none" {
        let _ = match &v.doubt {
            Some(why) => writeln!(out, "no failure was found, but {} (low confidence)", shown(why)),
            None => writeln!(
                out,
                "no failure: no line of these logs tells one; a log that just stops may be that of a process that was killed"
            ),
        };
        if v.runs > 1 {
            let _ = writeln!(out, "  the log holds {} runs; this is of the last", v.runs);
        }
        return out;
    }
    let _ = match &v.meaning {
        Some(words) => writeln!(out, "{words} [{}]", v.class),
        None => writeln!(out, "{}", v.class),
    };
    let _ = writeln!(out, "  answer: {} ({} confidence)", meaning(&v.action), v.confidence);
    match &v.root {
        Some(root) => {
            let _ = writeln!(out, "  {}", at(root));
            if let Some(why) = &v.doubt {
                let no_text = why.ends_with(LogDoubt::Binary.words());
                let end = if no_text { ": this may be no line of a log" } else { "" };
                let _ = writeln!(out, "  {}{end}", shown(why));
            }
        }
        None => {
            let _ = match &v.doubt {
                Some(why) => writeln!(out, "  no line tells it: {}", shown(why)),
                None => writeln!(out, "  no line tells it"),
            };
        }
    }
    if v.runs > 1 {
        let _ = writeln!(out, "  the log holds {} runs; this is of the last", v.runs);
    }
    if let Some(step) = v.step {
        let _ = writeln!(out, "  the newest step before it: {step}");
    }
    let mut told: BTreeSet<&str> = v.root.iter().map(|root| root.text.as_str()).collect();
    let others = v.cascade.iter().filter(|line| told.insert(&line.text));
    for (n, line) in others.enumerate() {
        if n == 0 {
            let _ = writeln!(out, "also seen:");
        }
        let _ = writeln!(out, "  {}", at(line));
    }
    if let Some(other) = &v.runner_up {
        let _ = writeln!(out, "else it would be {other}");
    }
    if let Some(advice) = &v.advice {
        let _ = writeln!(out, "to do: {advice}");
    }
    out
}

fn at(line: &LineView) -> String {
    format!("{}:{}: {}", shown(&line.file), line.line, one_line(&line.text, LONG))
}

fn meaning(letter: &str) -> &'static str {
    match letter {
        "R" => "relaunch",
        "Rb" => "relaunch after a pause",
        "R1" => "relaunch once, then stop",
        "S" => "stop, a relaunch cannot help",
        "N" => "relaunch without that node",
        "F" => "fall back to the checkpoint before",
        "W" => "wait until it is mended, then relaunch",
        "K" => "take evidence, end it, relaunch",
        _ => "only reported",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::diagnosis::LogReader;

    fn view(log: &str, exit: Option<i32>) -> DiagnoseView {
        let mut reading = LogReader::new(&[]).unwrap();
        reading.begin();
        reading.feed(log.as_bytes());
        reading.end_log();
        DiagnoseView::of(&reading.verdict(exit), &["train.log".to_owned()], &[])
    }

    #[test]
    fn the_cause_comes_first_and_its_secrets_are_hidden() {
        let log = "step 1 loss 0.5\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n\
            torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. token=hf_abcdefghijklmnopqrstuvwxyz0123\n";
        let v = view(log, Some(1));
        assert_eq!((v.class.as_str(), v.action.as_str()), ("mem.cuda_oom", "R1"));
        let text = words(&v);
        assert!(
            text.starts_with("The GPU ran out of memory [mem.cuda_oom]\n  answer: relaunch once, then stop (high confidence)\n  train.log:4: torch"),
            "{text}"
        );
        assert!(!text.contains("hf_abcdef"), "{text}");
    }

    #[test]
    fn a_healthy_log_is_no_failure() {
        let v = view("step 1 loss 0.5\nstep 2 loss 0.4\n", Some(0));
        assert_eq!((v.class.as_str(), v.action.as_str(), v.root), ("none", "none", None));
    }
}
