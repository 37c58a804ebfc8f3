//! Errors of a configuration.
//!
//! One error type for everything this crate reads. It keeps what went wrong, where (file, line, column, key) and what to do next
//! apart, so that a caller can print it, put it into JSON, or look at `kind`. [`ConfigError`] prints as
//! `file:line:column: key: message`, followed by the hint on its own line.

use std::fmt;
use std::sync::Arc;

use crate::tree::ValueOrigin;

/// The class of a configuration error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not well-formed.
    Syntax,
    /// A key stands twice in one mapping.
    DuplicateKey,
    /// A document is larger, deeper or expands further than allowed.
    Limit,
    /// A setting of that name does not exist.
    UnknownKey,
    /// A value has the wrong type.
    WrongType,
    /// A value has the right type and no meaning.
    BadValue,
    /// A key that is needed is absent.
    MissingKey,
    /// A value is `???`: the user has to fill it in.
    MandatoryMissing,
    /// Interpolations refer to each other in a circle.
    Cycle,
    /// An interpolation uses a resolver that is not known here.
    UnknownResolver,
    /// An interpolation cannot be evaluated.
    Interpolation,
    /// A defaults list cannot be composed.
    Compose,
    /// An override cannot be parsed or applied.
    Override,
}

/// One thing wrong with a configuration, with its place and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The class.
    pub kind: ErrorKind,
    /// The problem, a sentence fragment without place or hint.
    pub message: String,
    /// The file, or another name of the text.
    pub file: Option<Arc<str>>,
    /// The line, counted from one.
    pub line: Option<u32>,
    /// The column, counted from one.
    pub column: Option<u32>,
    /// The dotted key.
    pub key: Option<String>,
    /// The next thing to do.
    pub hint: Option<String>,
}

impl ConfigError {
    /// An error without a place.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            file: None,
            line: None,
            column: None,
            key: None,
            hint: None,
        }
    }

    /// Adds a place in a text.
    #[must_use]
    pub fn at(mut self, file: &Arc<str>, line: u32, column: u32) -> Self {
        self.file = Some(Arc::clone(file));
        self.line = Some(line);
        self.column = Some(column);
        self
    }

    /// Adds the place an origin names, if none is known yet.
    #[must_use]
    pub fn from_origin(mut self, origin: &ValueOrigin) -> Self {
        if self.file.is_some() {
            return self;
        }
        match origin {
            ValueOrigin::File { path, line, column } => self.at(path, *line, *column),
            other => {
                self.file = Some(Arc::from(other.to_string()));
                self
            }
        }
    }

    /// Adds the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}")?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
                if let Some(column) = self.column {
                    write!(f, ":{column}")?;
                }
            }
            write!(f, ": ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// Something doubtful that does not stop the reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFinding {
    /// A stable name, snake_case.
    pub code: &'static str,
    /// Findings, for a person.
    pub message: String,
    /// The place, where one is known.
    pub origin: Option<ValueOrigin>,
}
