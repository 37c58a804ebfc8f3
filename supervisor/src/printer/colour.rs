//! Colors of our own lines, added last: the text is already safe, and a line's beginning determines its color.

use crate::lead::Lead;
use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

/// When to use colors (`--color`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// In a pipe too.
    Always,
    Never,
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

static CHOICE: AtomicU8 = AtomicU8::new(ColourChoice::Auto as u8);

/// Sets when lines are colored.
pub fn choose_colour(choice: ColourChoice) {
    CHOICE.store(choice as u8, Ordering::Relaxed);
}

/// Returns true if this terminal may show colors.
#[must_use]
pub fn has_colours() -> bool {
    is_on(&std::io::stdout())
}

fn is_on(to: &impl IsTerminal) -> bool {
    let asked = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    match CHOICE.load(Ordering::Relaxed) {
        c if c == ColourChoice::Always as u8 => true,
        c if c == ColourChoice::Never as u8 => false,
        _ => to.is_terminal() && !asked("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb"),
    }
}

/// Adds colors to lines, if this stream shows them.
pub(super) fn painted<'a>(text: &'a str, to: &impl IsTerminal) -> Cow<'a, str> {
    if !is_on(to) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive('\n').map(|line| match colour_of(line) {
        Some(colour) => format!("{colour}{}{PLAIN}\n", line.trim_end_matches('\n')),
        None => line.to_owned(),
    });
    Cow::Owned(lines.collect())
}

fn colour_of(line: &str) -> Option<&'static str> {
    let carets = line.trim_start().strip_prefix("| ").unwrap_or_default().trim();
    if !carets.is_empty() && carets.chars().all(|c| c == '^') {
        return Some(RED);
    }
    Some(match Lead::of(line)? {
        Lead::Error | Lead::Failed | Lead::GaveUp | Lead::NoCheckpoint => RED,
        Lead::Warning => YELLOW,
        Lead::Finished => GREEN,
        Lead::Note | Lead::Hint => FAINT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_marked_by_how_they_begin() {
        for (line, colour) in [
            ("error (usage): x", Some(RED)),
            ("12:04:31Z failed: the same error", Some(RED)),
            ("note: WARNING: x", Some(YELLOW)),
            ("note: x", Some(FAINT)),
            ("2026-11-21T12:04:31Z finished: step 2", Some(GREEN)),
            ("12:04:31Z attempt 2: resume", None),
            ("   |   ^^^^^^", Some(RED)),
            ("   |", None),
            ("11 |   retries: ^", None),
        ] {
            assert_eq!(colour_of(line), colour, "{line}");
        }
    }
}
