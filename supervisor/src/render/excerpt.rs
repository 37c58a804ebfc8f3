//! The line of a configuration file that an error is about, with carets under the mistake.

use super::terminal::line;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use supervise_config::{ConfigError, line_without_secret};
use unicode_width::UnicodeWidthStr;

/// Files whose text is kept for errors; a server reads many.
const FILES: usize = 8;
/// Characters shown on each side of the mistake.
const AROUND: usize = 60;

/// Name and text of the files that were read last. A pipe cannot be read again.
static READ: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());

/// Keeps the text of a file for errors about it.
pub(crate) fn keep_text(name: &str, text: &str) {
    let mut files = READ.lock().unwrap_or_else(PoisonError::into_inner);
    files.retain(|(kept, _)| kept != name);
    files.push_back((name.to_owned(), text.to_owned()));
    if files.len() > FILES {
        files.pop_front();
    }
}

/// The line of an error with carets, unless the line may hold a secret.
pub(crate) fn excerpt(e: &ConfigError) -> Option<String> {
    let (number, column) = (e.line?, usize::try_from(e.column?).ok()?);
    let files = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, text) = files
        .iter()
        .find(|(name, _)| Some(name.as_str()) == e.file.as_deref())?;
    let shown = line_without_secret(text, usize::try_from(number).ok()?)?;
    Some(marked(shown, &number.to_string(), column.saturating_sub(1)))
}

/// `at`: the character where the mistake begins.
fn marked(text: &str, number: &str, at: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = at.min(chars.len());
    let (head, rest) = chars.split_at(at);
    let length = rest
        .iter()
        .take_while(|c| !c.is_whitespace() && !":,#]}".contains(**c))
        .count();
    let (word, after) = rest.split_at(length.min(AROUND));
    let head: String = match head.len() > AROUND {
        true => ['…'].iter().chain(&head[head.len() - AROUND..]).collect(),
        false => head.iter().collect(),
    };
    let tail: String = match after.len() > AROUND {
        true => after[..AROUND].iter().chain(&['…']).collect(),
        false => after.iter().collect(),
    };
    let word: String = word.iter().collect();
    let (head, word) = (line(&head), line(&word));
    let (margin, indent) = (" ".repeat(number.len()), " ".repeat(head.width()));
    let carets = "^".repeat(word.width().max(1));
    format!(
        "{margin} |\n{number} | {head}{word}{}\n{margin} | {indent}{carets}\n",
        line(&tail)
    )
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn carets_are_under_the_word() {
        assert_eq!(
            marked("  retrys: 3", "11", 2),
            "   |\n11 |   retrys: 3\n   |   ^^^^^^\n"
        );
        assert_eq!(marked("界: {a: deep}", "1", 4), "  |\n1 | 界: {a: deep}\n  |      ^\n");
        assert_eq!(marked("a: \x1b[2J", "1", 3), "  |\n1 | a: \\x1b[2J\n  |    ^^^^^^^\n");
        assert_eq!(marked("a: [1", "1", 9), "  |\n1 | a: [1\n  |      ^\n");
    }

    #[test]
    fn a_long_line_is_cut_on_both_sides() {
        let text = format!("{}: x{}", "k".repeat(500), "y".repeat(500));
        let shown = marked(&text, "1", 502);
        assert!(shown.lines().all(|l| l.chars().count() < 200), "{shown}");
        assert!(shown.contains("…") && shown.contains('^'), "{shown}");
    }
}
