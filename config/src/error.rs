//! Configuration errors.
//!
//! One error type covers everything this crate reads. It keeps the problem, the location (file, line, column, key) and the hint apart, so
//! that a caller can print it, put it into JSON, or match on `kind`. [`ConfigError`] prints as `file:line:column: key: message`, followed
//! by the hint on its own line.

use std::fmt;
use std::sync::Arc;

use crate::tree::ValueOrigin;

/// The class of a configuration error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    Syntax,
    DuplicateKey,
    /// A document is too large, nests too deeply or expands too far.
    Limit,
    UnknownKey,
    WrongType,
    /// The type is right but the value is not allowed.
    BadValue,
    MissingKey,
    /// A value is `???`: the user has to fill it in.
    MandatoryMissing,
    Cycle,
    UnknownResolver,
    Interpolation,
    Compose,
    Override,
}

/// One problem in a configuration, with its location and a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub kind: ErrorKind,
    /// The problem as a sentence fragment, without location or hint.
    pub message: String,
    /// The file, or another name for the text.
    pub file: Option<Arc<str>>,
    /// Counted from one.
    pub line: Option<u32>,
    /// Counted from one.
    pub column: Option<u32>,
    /// Dotted.
    pub key: Option<String>,
    /// What the user should do next.
    pub hint: Option<String>,
}

impl ConfigError {
    /// Creates an error without a location.
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

    /// Adds a location in a text.
    #[must_use]
    pub fn at(mut self, file: &Arc<str>, line: u32, column: u32) -> Self {
        self.file = Some(Arc::clone(file));
        self.line = Some(line);
        self.column = Some(column);
        self
    }

    /// Adds the location of an origin, unless one is already set.
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

    /// Adds what the user should do next.
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

/// Something doubtful that does not stop the parsing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFinding {
    /// A stable name in snake_case.
    pub code: &'static str,
    pub message: String,
    pub origin: Option<ValueOrigin>,
}
