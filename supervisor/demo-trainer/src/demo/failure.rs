//! How the demo trainer ends other than well, in the words a Python trainer would use.

use std::io;
use std::path::Path;

/// Why a rank ends early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The counterpart of an uncaught Python exception: a traceback and exit code 1.
    #[error("{class}: {message}")]
    Exception {
        /// The exception's class.
        class: &'static str,
        /// Its message.
        message: String,
        /// The function that raised it.
        function: &'static str,
    },
    /// An end that pretends to be a good one.
    #[error("leaving with exit code {0}")]
    Leave(u8),
    /// Another living trainer writes here: exit code 3, after a line in `violations`.
    #[error("another trainer is alive on this directory: {0}")]
    SecondWriter(String),
}

impl Failure {
    /// A `RuntimeError`.
    pub fn runtime(function: &'static str, message: impl Into<String>) -> Self {
        Failure::Exception {
            class: "RuntimeError",
            message: message.into(),
            function,
        }
    }

    /// A `ValueError`.
    pub fn value(function: &'static str, message: impl Into<String>) -> Self {
        Failure::Exception {
            class: "ValueError",
            message: message.into(),
            function,
        }
    }

    /// Exceptions that Python raises when the operating system refuses work on a file.
    pub fn file(function: &'static str, path: &Path, error: &io::Error) -> Self {
        let (class, text) = match error.raw_os_error() {
            Some(libc::ENOENT) => ("FileNotFoundError", "No such file or directory"),
            Some(libc::EACCES) => ("PermissionError", "Permission denied"),
            Some(libc::ENOSPC) => ("OSError", "No space left on device"),
            Some(libc::EDQUOT) => ("OSError", "Disk quota exceeded"),
            _ => ("OSError", "Input/output error"),
        };
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let message = format!("[Errno {errno}] {text}: '{}'", path.display());
        Failure::Exception {
            class,
            message,
            function,
        }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Exception { .. } => 1,
            Failure::Leave(code) => *code,
            Failure::SecondWriter(_) => 3,
        }
    }

    /// Text to print on stderr; empty where the end says nothing.
    pub fn report(&self) -> String {
        match self {
            Failure::Exception {
                class,
                message,
                function,
            } => format!(
                "Traceback (most recent call last):\n  File \"demo_trainer\", line 1, in {function}\n{class}: {message}\n"
            ),
            Failure::Leave(_) => String::new(),
            Failure::SecondWriter(_) => format!("{self}\n"),
        }
    }
}
