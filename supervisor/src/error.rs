//! The error that commands return: what failed, its kind, and what to do next.
//!
//! Internally, errors are enums with fields; here they become text with an exit code. Only [`CliError::render`] and
//! [`CliError::json`] format one. Names and values in it may come from other people, so they are escaped and stripped of secrets
//! here.

use crate::control;
use crate::exit::SuperviseExitCode;
use crate::lead::Lead;
use crate::render::excerpt::excerpt;
use crate::render::terminal::shown;
use std::fmt;
use supervise_config::{ConfigError, redact_text};
use supervise_core::checkpoint::Verdict;
use supervise_core::id::RunId;
use supervise_trainers::one_node::node_part;

/// Kind of failure; it decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The command line is wrong, or names something that does not exist.
    Usage,
    /// The trainer's or the supervisor's configuration is wrong.
    Config,
    /// A limit, permission or file-system problem.
    Environment,
    /// A bug in this program.
    Internal,
    /// The journal cannot be read or written.
    Journal,
    /// Another supervisor is running.
    LeaseHeld,
    /// SIGINT arrived before the run started.
    Interrupted,
    /// SIGTERM arrived before the run started.
    Terminated,
    /// An operator stopped it before it started.
    Stopped,
    /// No step of a checkpoint root is proven.
    NoProof,
    /// A checkpoint is unusable for the command.
    Checkpoint(Verdict),
}

impl ErrorKind {
    /// The documented exit code.
    #[must_use]
    pub fn exit(self) -> SuperviseExitCode {
        match self {
            Self::Usage => SuperviseExitCode::Usage,
            Self::Config => SuperviseExitCode::Config,
            Self::Environment => SuperviseExitCode::Environment,
            Self::Internal => SuperviseExitCode::Internal,
            Self::Journal => SuperviseExitCode::Journal,
            Self::LeaseHeld => SuperviseExitCode::LeaseHeld,
            Self::Interrupted => SuperviseExitCode::Interrupted,
            Self::Terminated => SuperviseExitCode::Terminated,
            Self::Stopped => SuperviseExitCode::Stopped,
            Self::NoProof => SuperviseExitCode::NoProof,
            Self::Checkpoint(Verdict::Incomplete) => SuperviseExitCode::Incomplete,
            Self::Checkpoint(Verdict::Damaged) => SuperviseExitCode::Damaged,
            Self::Checkpoint(Verdict::Unsafe) => SuperviseExitCode::Unsafe,
            Self::Checkpoint(Verdict::Unreadable) => SuperviseExitCode::Unreadable,
            Self::Checkpoint(Verdict::Unknown | Verdict::Whole) => SuperviseExitCode::Unknown,
        }
    }

    /// The kind in JSON.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Config => "configuration",
            Self::Environment => "environment",
            Self::Internal => "internal",
            Self::Journal => "journal",
            Self::LeaseHeld => "lease_held",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
            Self::Stopped => "stopped",
            Self::NoProof => "no_proof",
            Self::Checkpoint(verdict) => verdict.word(),
        }
    }

    /// The text before the message.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Config => "configuration",
            Self::Environment => "environment",
            Self::Internal => "internal error",
            Self::Journal => "journal",
            Self::LeaseHeld => "lease",
            Self::Interrupted | Self::Terminated => "interrupted",
            Self::Stopped => "stopped",
            Self::NoProof => "no proof",
            Self::Checkpoint(verdict) => verdict.word(),
        }
    }
}

/// An error as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    pub kind: ErrorKind,
    /// What failed, where and why, in one line.
    pub message: String,
    /// Further lines: a list of problems, or the last output of a program.
    pub lines: Vec<String>,
    /// Lines of files that it is about, each with the number of `lines` before it: for people only.
    excerpts: Vec<(usize, String)>,
    /// What to do next.
    pub hints: Vec<String>,
}

impl CliError {
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            lines: Vec::new(),
            excerpts: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// A usage error.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// A configuration error.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// An environment error.
    #[must_use]
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, message)
    }

    /// A bug in this program.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The journal cannot be read or written.
    #[must_use]
    pub fn journal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Journal, message)
    }

    /// A checkpoint is unusable for the command.
    #[must_use]
    pub fn checkpoint(verdict: Verdict, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Checkpoint(verdict), message)
    }

    /// Another supervisor is running.
    #[must_use]
    pub fn lease_held(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LeaseHeld, message)
    }

    /// The run, or the script, already has a supervisor on this machine.
    #[must_use]
    pub fn already_running(run: &RunId, command: &[String]) -> Self {
        let pid = control::supervisor_pid(run).map_or_else(String::new, |pid| format!(" (pid {pid})"));
        let held = Self::lease_held(format!("run {run} is already running{pid}"));
        // The run on another node must not be ended from here.
        match node_part(command) {
            Some(part) => held.hint(format!(
                "this command is {}, and the run may be that of another node, of which `supervise status {run}` tells more; one supervisor starts the ranks of all nodes: `supervise sbatch` and gang.nodes",
                part.words()
            )),
            None => held.hint(format!(
                "`supervise status {run}` shows it, `supervise stop {run}` ends it"
            )),
        }
    }

    /// A signal arrived before anything was started.
    #[must_use]
    pub fn interrupted(signal: i32) -> Self {
        let kind = match signal {
            libc::SIGINT => ErrorKind::Interrupted,
            _ => ErrorKind::Terminated,
        };
        let name = supervise_core::event::signal_name(signal);
        Self::new(kind, format!("{name} before anything was started"))
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds further lines.
    #[must_use]
    pub fn with_lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.lines.extend(lines);
        self
    }

    /// The documented exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.kind.exit().code()
    }

    /// The error as one JSON object: `{"error": {"kind", "exit_code", "message", "lines", "hints"}}`.
    #[must_use]
    pub fn json(&self) -> String {
        let plain = |texts: &[String]| texts.iter().map(|t| redact_text(t)).collect::<Vec<_>>();
        serde_json::json!({ "error": {
            "kind": self.kind.key(),
            "exit_code": self.exit_code(),
            "message": redact_text(&self.message),
            "lines": plain(&self.lines),
            "hints": plain(&self.hints),
        }})
        .to_string()
    }

    /// The error as text, with a trailing newline.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = format!(
            "{} ({}): {}\n",
            Lead::Error,
            self.kind.word(),
            shown(self.message.trim_end())
        );
        let excerpts = |after: usize| self.excerpts.iter().filter(move |(at, _)| *at == after);
        out.extend(excerpts(0).map(|(_, text)| text.as_str()));
        for (line, number) in self.lines.iter().zip(1..) {
            out.push_str(&shown(line));
            out.push('\n');
            out.extend(excerpts(number).map(|(_, text)| text.as_str()));
        }
        for hint in &self.hints {
            out.push_str(Lead::Hint.words());
            out.push(' ');
            out.push_str(&shown(hint));
            out.push('\n');
        }
        out
    }

    /// Several configuration errors as one, each with its location and hint.
    #[must_use]
    pub fn of_config(errors: &[ConfigError]) -> Self {
        match errors {
            [] => Self::config("the configuration is wrong"),
            [one] => Self::from(one.clone()),
            many => {
                let mut out = Self::config(format!("{} things are wrong in the configuration:", many.len()));
                for e in many {
                    let mut e = e.clone();
                    let hint = e.hint.take();
                    out.lines.push(e.to_string());
                    out.excerpts.extend(excerpt(&e).map(|text| (out.lines.len(), text)));
                    out.lines.extend(hint.map(|hint| format!("{} {hint}", Lead::Hint)));
                }
                out
            }
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(mut e: ConfigError) -> Self {
        let hint = e.hint.take();
        let mut out = Self::config(e.to_string());
        out.excerpts.extend(excerpt(&e).map(|text| (0, text)));
        out.hints.extend(hint);
        // The text may equal a hidden value, but it is what the trainer would get.
        if out.message.contains("***") {
            out.hints.push(
                "the text *** is there literally, as in a published script: write the real value instead".to_owned(),
            );
        }
        out
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use supervise_config::ErrorKind as ConfigKind;

    #[test]
    fn a_configuration_error_keeps_its_place_and_its_hint() {
        let e = ConfigError::new(ConfigKind::UnknownKey, "there is no such setting")
            .at(&Arc::from("a.yaml"), 3, 5)
            .with_key("retrys")
            .with_hint("did you mean `retries`?");
        let e = CliError::from(e);
        assert_eq!(e.exit_code(), 78);
        assert_eq!(
            e.render(),
            "error (configuration): a.yaml:3:5: retrys: there is no such setting\n  hint: did you mean `retries`?\n"
        );
    }

    #[test]
    fn several_mistakes_are_all_told() {
        let one = ConfigError::new(ConfigKind::BadValue, "first");
        let two = ConfigError::new(ConfigKind::BadValue, "second").with_hint("do that");
        let text = CliError::of_config(&[one, two]).render();
        assert!(
            text.contains("2 things") && text.contains("first") && text.contains("second\n  hint: do that"),
            "{text}"
        );
    }

    #[test]
    fn foreign_words_forge_no_line_and_tell_no_secret() {
        let e = CliError::usage("a\x1b[2J\nerror (internal): forged http://me:pw@host").hint("b\nc");
        assert_eq!(
            e.render(),
            "error (usage): a\\x1b[2J\\nerror (internal): forged http://***@host\n  hint: b\\nc\n"
        );
        let json: serde_json::Value = serde_json::from_str(&e.json()).unwrap();
        assert_eq!(
            (&json["error"]["kind"], &json["error"]["exit_code"]),
            (&"usage".into(), &64.into())
        );
        assert!(!e.json().contains("pw"), "{}", e.json());
    }

    #[test]
    fn every_kind_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Usage, 64),
            (ErrorKind::Config, 78),
            (ErrorKind::Environment, 69),
            (ErrorKind::Internal, 70),
            (ErrorKind::Journal, 74),
            (ErrorKind::LeaseHeld, 5),
            (ErrorKind::Interrupted, 130),
            (ErrorKind::Terminated, 143),
        ] {
            assert_eq!(CliError::new(kind, "x").exit_code(), code);
        }
    }
}
