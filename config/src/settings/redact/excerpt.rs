//! Which line of a YAML text may be shown in an error.

use super::LineRedactor;
use super::names::{Sense, sense};

/// How many lines above are searched for the start of a private key.
const ABOVE: usize = 400;

/// Returns a line by its number, which starts at 1. Returns `None` if the line may hold a secret: it looks like one, a key
/// above it names one, or it continues a value that began on an earlier line.
#[must_use]
pub fn line_without_secret(text: &str, number: usize) -> Option<&str> {
    let lines: Vec<&str> = text.lines().take(number).collect();
    let (line, above) = lines.split_last().filter(|_| lines.len() == number)?;
    let mut redactor = LineRedactor::default();
    for before in above.iter().skip(above.len().saturating_sub(ABOVE)) {
        redactor.line(before);
    }
    let is_open = has_key(line) && redactor.line(line) == *line && !names(line).any(|s| s == Sense::Surely);
    let mut depth = depth_of(line);
    for before in above.iter().rev().filter(|line| !is_blank(line)) {
        if depth_of(before) < depth {
            depth = depth_of(before);
            if names(before).any(|s| s != Sense::Not) {
                return None;
            }
        }
    }
    is_open.then_some(line)
}

/// The indentation. An item of a list is below its key even if both begin in the same column.
fn depth_of(line: &str) -> usize {
    let text = line.trim_start_matches(' ');
    2 * (line.len() - text.len()) + usize::from(text.starts_with("- "))
}

fn is_blank(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

/// `key: …`, `- …`, `"key": …`.
fn has_key(line: &str) -> bool {
    let text = line.trim_start();
    let key = text.trim_start_matches(['"', '\'']);
    let end = key.find(|c: char| !(c.is_alphanumeric() || "_-./".contains(c)));
    let rest = end.and_then(|end| key.get(end..)).unwrap_or_default();
    text.starts_with("- ") || rest.trim_start_matches(['"', '\'', ' ']).starts_with(':') && !key.starts_with(':')
}

/// What the words of a line look like.
fn names(line: &str) -> impl Iterator<Item = Sense> + '_ {
    let words = line.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)));
    words.filter(|word| !word.is_empty()).map(sense)
}

#[cfg(test)]
mod tests {
    use super::line_without_secret;

    fn shown(text: &str) -> Option<&str> {
        line_without_secret(text, text.lines().count())
    }

    #[test]
    fn a_line_of_settings_is_shown() {
        for text in [
            "a: 1\ntrainer:\n  sav_freq: 20",
            "supervisor:\n  retrys: 3",
            "x:\n  - one: two",
            "x: 1\n\"quoted\": [1, 2",
            "# api_key\nsupervisor:\n  # token\n  retrys: 3",
        ] {
            assert_eq!(shown(text), text.lines().last(), "{text}");
        }
    }

    #[test]
    fn a_line_that_may_hold_a_secret_is_not() {
        for text in [
            "wandb_api_key: hush",
            "api_key hush",
            "api_key hush: x",
            "a: {token: hush, b: 1}",
            "env:\n  WANDB_API_KEY: @hush",
            "api_keys:\n  - hush",
            "api_keys:\n- hush",
            "a:\n  api_keys:\n  - hush",
            "api_keys:\n  - a\n\n  # and\n  - hush",
            "api_key: >\n  hush\n  more: hush",
            "password: \"a\n  b: hush",
            "api: {key: [\n    a: hush",
            "x: \"a\n  hush",
            "url: https://me:hush@host/x",
            "key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  abc",
            "x: sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert_eq!(line_without_secret("a: 1", 2), None);
        assert_eq!(line_without_secret("a: 1", 0), None);
    }
}
