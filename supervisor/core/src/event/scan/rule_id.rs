//! Which rule matched a line.

use super::traceback::TracebackScope;
use super::{QUOTED, USER};
use serde::{Deserialize, Serialize};
use std::fmt;

const RAISED: &str = "py.exception";
const CHAINED: &str = ".chained";

/// The rule that a line matched. Journals hold it as a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RuleId {
    /// The rule.
    pub source: RuleSource,
    /// Whether the line is model text.
    pub quoted: bool,
}

/// The kind of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleSource {
    /// A rule of a table, by its name.
    Named(String),
    /// A rule of the user, by its number.
    User(String),
    /// The last line of a traceback.
    Raised {
        /// The part of the program that the traceback went through.
        through: TracebackScope,
        /// Whether another exception came before it in its chain.
        chained: bool,
    },
    /// An exception without a traceback.
    Loose,
    /// An exception without a traceback on the last line of a log.
    LastWords,
    /// Training records with non-finite metrics.
    Records,
    /// A start from scratch although a resume was wanted.
    FreshStart,
    /// A watchdog's words at the end of a log.
    Tail,
    /// A server's words that it shuts down.
    Shutdown,
}

impl RuleId {
    /// Returns true for the last line of a traceback.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        matches!(self.source, RuleSource::Raised { .. })
    }

    /// Returns true for an exception, with or without a traceback.
    #[must_use]
    pub fn is_exception(&self) -> bool {
        self.is_raised() || matches!(self.source, RuleSource::Loose | RuleSource::LastWords)
    }

    /// Returns true for an exception that is chained to the one before.
    #[must_use]
    pub fn is_chained(&self) -> bool {
        matches!(self.source, RuleSource::Raised { chained: true, .. })
    }

    /// Returns true for a rule of the user.
    #[must_use]
    pub fn is_users(&self) -> bool {
        matches!(self.source, RuleSource::User(_))
    }

    /// The part of the program that a traceback went through.
    #[must_use]
    pub fn through(&self) -> TracebackScope {
        match self.source {
            RuleSource::Raised { through, .. } => through,
            _ => TracebackScope::Neither,
        }
    }
}

impl From<RuleSource> for RuleId {
    fn from(source: RuleSource) -> Self {
        Self { source, quoted: false }
    }
}

impl From<&str> for RuleId {
    fn from(text: &str) -> Self {
        let (name, quoted) = match text.strip_suffix(QUOTED) {
            Some(name) => (name, true),
            None => (text, false),
        };
        let source = match name {
            "py.loose" => RuleSource::Loose,
            "py.last" => RuleSource::LastWords,
            "records" => RuleSource::Records,
            "start" => RuleSource::FreshStart,
            "tail" => RuleSource::Tail,
            "shutdown" => RuleSource::Shutdown,
            _ => match (name.strip_prefix(USER), name.strip_prefix(RAISED).and_then(raised)) {
                (Some(number), _) => RuleSource::User(number.to_owned()),
                (None, Some(raised)) => raised,
                (None, None) => RuleSource::Named(name.to_owned()),
            },
        };
        Self { source, quoted }
    }
}

fn raised(rest: &str) -> Option<RuleSource> {
    let (rest, chained) = match rest.strip_prefix(CHAINED) {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let through = TracebackScope::ALL.into_iter().find(|scope| scope.suffix() == rest)?;
    Some(RuleSource::Raised { through, chained })
}

impl From<String> for RuleId {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<RuleId> for String {
    fn from(rule: RuleId) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            RuleSource::Named(name) => f.write_str(name)?,
            RuleSource::User(number) => write!(f, "{USER}{number}")?,
            RuleSource::Raised { through, chained } => {
                let chained = if *chained { CHAINED } else { "" };
                write!(f, "{RAISED}{chained}{}", through.suffix())?;
            }
            RuleSource::Loose => f.write_str("py.loose")?,
            RuleSource::LastWords => f.write_str("py.last")?,
            RuleSource::Records => f.write_str("records")?,
            RuleSource::FreshStart => f.write_str("start")?,
            RuleSource::Tail => f.write_str("tail")?,
            RuleSource::Shutdown => f.write_str("shutdown")?,
        }
        f.write_str(if self.quoted { QUOTED } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_a_journal_is_read_and_written_as_it_is() {
        for text in [
            "mem.cuda_oom/3",
            "mem.cuda_oom/3.quoted",
            "user/2",
            "py.exception",
            "py.exception.quoted",
            "py.exception.save",
            "py.exception.chained",
            "py.exception.chained.reward",
            "py.exception.of_a_later_version",
            "py.loose",
            "py.last",
            "records",
            "start",
            "tail",
            "shutdown",
            "first_record",
        ] {
            let json = format!("\"{text}\"");
            let rule: RuleId = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&rule).unwrap(), json);
        }
    }

    #[test]
    fn the_scope_of_a_traceback_is_in_its_rule() {
        let rule = RuleId::from("py.exception.chained.save");
        assert_eq!((rule.through(), rule.is_chained()), (TracebackScope::Save, true));
        let rule = RuleId::from("store.save");
        assert_eq!((rule.through(), rule.is_raised()), (TracebackScope::Neither, false));
        assert!(RuleId::from("user/1.quoted").quoted && RuleId::from("user/1.quoted").is_users());
    }
}
