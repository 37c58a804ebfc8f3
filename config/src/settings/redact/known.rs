//! Secrets known by their value, because this process received them under the name of a secret.
//!
//! They come from an environment variable, a setting, or a key of the trainer's configuration. The trainer may print such a value
//! anywhere, without its name and in no recognizable shape. The values exist only in the memory of this process; other processes that
//! have to hide them receive them through a pipe.

use super::forms;
use super::names::{is_secret, is_surely_secret};
use super::needles::{NeedleSet, SHORTEST};
use super::places::{is_path, is_place};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// Longest value, in bytes, and the most values.
const LONGEST: usize = 64 << 10;
const MOST: usize = 1000;
/// Bytes of all values together: they are sent in one message.
const ALL: usize = 512 << 10;
/// Values that mean "none", or ordinary words.
const COMMON: [&str; 12] = [
    "anonymous",
    "changeme",
    "disabled",
    "enabled",
    "undefined",
    "required",
    "optional",
    "password",
    "passwords",
    "not-needed",
    "no-key-required",
    "localhost",
];

/// The values, and the needles, which are built on first use.
struct Known {
    values: Vec<String>,
    needles: Option<Arc<NeedleSet>>,
}

static KNOWN: RwLock<Known> = RwLock::new(Known {
    values: Vec::new(),
    needles: None,
});

/// From now on, [`redact_text`](super::redact_text) hides this value wherever it occurs, if its name is a secret's. Short and common
/// values, numbers and paths are not hidden.
pub fn know_secret(name: &str, value: &str) {
    if !is_secret(name) || value.len() > LONGEST || is_place(name, value) {
        return;
    }
    let surely = is_surely_secret(name);
    // A trainer prints a multi-line value in several lines, or with `\n` in one.
    let lines = value.split(['\n', '\r']).flat_map(|line| line.split("\\n"));
    know(lines.map(str::trim).filter(|line| is_hidden(line, surely)));
}

/// Adds the values that another process of the supervisor knows.
pub fn know_values(values: &[String]) {
    know(values.iter().map(String::as_str).filter(|v| v.len() >= SHORTEST));
}

/// Returns the hidden values, for a child process only; never write them to a file.
pub fn known_secrets() -> Vec<String> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).values.clone()
}

/// Returns the needles: every form in which a known value is printed.
pub fn known_needles() -> Arc<NeedleSet> {
    if let Some(needles) = &KNOWN.read().unwrap_or_else(PoisonError::into_inner).needles {
        return Arc::clone(needles);
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let made = Arc::new(NeedleSet::new(known.values.iter().flat_map(|value| forms::of(value))));
    Arc::clone(known.needles.insert(made))
}

fn know<'a>(values: impl Iterator<Item = &'a str>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    for value in values {
        let held: usize = known.values.iter().map(String::len).sum();
        let fits = known.values.len() < MOST && held.saturating_add(value.len()) <= ALL;
        if fits && known.values.iter().all(|k| k != value) {
            known.values.push(value.to_owned());
            known.needles = None;
        }
    }
}

/// Whether a value is long and odd enough to be a secret. `surely`: its name is certainly a secret's, such as a password's.
pub(super) fn is_hidden(value: &str, surely: bool) -> bool {
    let is_marker = value.starts_with("-----") && value.ends_with("-----");
    let is_number = value.parse::<f64>().is_ok();
    // A key that names a data set's column has such a name, and a plain word as its value.
    let is_word = value
        .bytes()
        .all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'.' | b'-'));
    value.len() >= SHORTEST
        && !(is_marker || is_number || is_path(value) || is_placeholder(value))
        && (surely || !is_word && !value.contains(char::is_whitespace))
        && !value.starts_with("${")
        && !COMMON.contains(&value.to_ascii_lowercase().as_str())
}

/// Whether a value is a placeholder in a published script, or a tokenizer's special word.
pub(super) fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let is_one_character = value
        .chars()
        .next()
        .is_none_or(|first| value.chars().all(|c| c == first));
    is_one_character
        || value.starts_with('<') && value.ends_with('>')
        || value.starts_with('[') && value.ends_with(']')
        || ["your_", "your-", "my_api_key", "my-api-key"]
            .iter()
            .any(|begin| lower.starts_with(begin))
        || [
            "placeholder",
            "changeme",
            "change_me",
            "change-me",
            "replace_me",
            "replace-me",
        ]
        .iter()
        .any(|word| lower.contains(word))
}

/// Hides known values, and the beginning of one that the end of the text cuts off.
pub(super) fn hide(text: &str) -> Cow<'_, str> {
    let needles = known_needles();
    if needles.is_empty() {
        return Cow::Borrowed(text);
    }
    let (body, end) = match text.strip_suffix('…') {
        Some(body) => (body, "…"),
        None => (text, ""),
    };
    let mut ranges = needles.ranges(body.as_bytes());
    for range in &mut ranges {
        *range = word(body.as_bytes(), range);
    }
    if let Some((at, _)) = needles.begun(body.as_bytes(), SHORTEST) {
        match ranges.last_mut().filter(|last| last.end >= at) {
            Some(last) => last.end = body.len(),
            None => ranges.push(at..body.len()),
        }
    }
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        // Two values may share a word.
        if range.start >= from {
            out.push_str(body.get(from..range.start).unwrap_or_default());
            out.push_str("***");
        }
        from = from.max(range.end);
    }
    out.push_str(body.get(from..).unwrap_or_default());
    out.push_str(end);
    Cow::Owned(out)
}

/// Extends a match to the ends of its word: it may be half of a value, and in base64 neighbouring characters contain some of its bits.
fn word(text: &[u8], found: &Range<usize>) -> Range<usize> {
    let is_of_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+');
    let before = text.get(..found.start).unwrap_or_default();
    let after = text.get(found.end..).unwrap_or_default();
    let mut start = before.iter().rposition(|b| !is_of_word(b)).map_or(0, |at| at + 1);
    // `\n`, `\x27`, `\u0027` and `%3D` only look as if a word continued.
    let escape = match (start.checked_sub(1).and_then(|at| text.get(at)), text.get(start)) {
        (Some(b'\\'), Some(b'u')) => 5,
        (Some(b'\\'), Some(b'x')) => 3,
        (Some(b'\\'), _) => 1,
        (Some(b'%'), _) => 2,
        _ => 0,
    };
    start = (start + escape).min(found.start);
    let end = after
        .iter()
        .position(|b| !is_of_word(b) && *b != b'=')
        .unwrap_or(after.len());
    start..found.end + end
}

#[cfg(test)]
mod tests {
    use super::super::redact_text;
    use super::*;

    #[test]
    fn a_value_is_hidden_wherever_it_stands_and_however_it_was_cut() {
        know_secret("SOME_API_KEY", "k9-odd-value-of-mine");
        know_secret("db.password", "with\"quote\\and-more");
        assert_eq!(redact_text("got k9-odd-value-of-mine, gone"), "got ***, gone");
        assert_eq!(redact_text("x'k9-odd-value-of-mine'k9-odd-value-of-mine"), "x'***'***");
        assert_eq!(redact_text("with\"quote\\and-more"), "***");
        let quoted = serde_json::to_string("a with\"quote\\and-more b").unwrap();
        assert_eq!(redact_text(&quoted), "\"a *** b\"");
        assert_eq!(redact_text("got k9-odd-value-of"), "got ***");
        assert_eq!(redact_text("got k9-odd-val…"), "got ***…");
        assert_eq!(redact_text("got k9-odd"), "got k9-odd");
        // Half of a value is hidden, with the whole word.
        assert_eq!(redact_text("got k9-odd-value-of other"), "got *** other");
        know_secret("HALF_TOKEN", "aa11-bb22-cc33-dd44-ee55");
        assert_eq!(redact_text(r"got \nc33-dd44-ee55 other"), r"got \n*** other");
        assert_eq!(redact_text("got k9-odd-va other"), "got k9-odd-va other");
    }

    #[test]
    fn a_value_is_hidden_in_the_forms_in_which_programs_write_it() {
        know_secret("FORMS_TOKEN", "f0rms/of+a=Secret?val");
        for (text, shown) in [
            ("hex 6630726d732f6f662b613d5365637265743f76616c.", None),
            ("hex 6630726D732F6F662B613D5365637265743F76616C.", None),
            ("u=f0rms%2Fof%2Ba%3DSecret%3Fval&b=1", Some("u=***&b=1")),
            (
                "u=f0rms%2fof%2ba%3dsecret%3fval&b",
                Some("u=f0rms%2fof%2ba%3dsecret%3fval&b"),
            ),
            ("u=f0rms%2fof%2ba%3dSecret%3fval&b", Some("u=***&b")),
            ("u=f0rms/of%2Ba%3DSecret%3Fval&b", Some("u=***&b")),
            (r"j f0rms\/of+a=Secret?val j", Some("j *** j")),
            ("first f0rms/of+a", Some("first ***")),
            ("Basic dTpmMHJtcy9vZithPVNlY3JldD92YWw=", None),
            ("Basic ZjBybXMvb2YrYT1TZWNyZXQ/dmFs", None),
        ] {
            let got = redact_text(text);
            match shown {
                Some(shown) => assert_eq!(got, shown),
                None => assert!(got.contains(" ***") && got.len() < 12, "{text}: {got}"),
            }
        }
    }

    #[test]
    fn a_value_of_several_lines_is_hidden_line_by_line() {
        know_secret(
            "SIGNING_KEY",
            "-----BEGIN X-----\nfirst-line-0\nsecond-line-1\nshort\n-----END X-----",
        );
        assert_eq!(redact_text("first-line-0\\nsecond-line-1"), "***\\n***");
        assert_eq!(redact_text("-----BEGIN X----- short"), "-----BEGIN X----- short");
    }

    #[test]
    fn short_common_and_harmless_values_stay() {
        for (name, value) in [
            ("WANDB_API_KEY", "disabled"),
            ("HF_TOKEN", "abc1234"),
            ("API_KEY", "1234567890"),
            ("API_KEY", "true"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/Keys/account-1.json"),
            ("data.sort_by_key", "data_source"),
            ("data.answer_key", "reward_model"),
            ("data.prompt_key", "Prompt-Number-1"),
            ("HOME", "Something-long-1"),
            ("API_KEY", "${oc.env:SOME_KEY}"),
            ("WANDB_API_KEY", "<your-key-of-wandb>"),
            ("HF_TOKEN", "YOUR_HF_TOKEN_1"),
            ("MY_SECRET", "************"),
            ("MY_SECRET", "xxxxxxxxxxxx"),
            ("tokenizer.new_token", "<|Some-Token-1|>"),
            ("data.answer_key", "Some Column-1"),
            ("DB_PASS", "abc1234"),
            ("MYSQL_PWD", "/home/me/Work-1"),
            ("PWD", "Some-Place-1"),
            ("OLDPWD", "Some-Place-2"),
            ("SSH_AUTH_SOCK", "Agent-Socket-1"),
            ("TOKENIZERS_PARALLELISM", "Not-At-All-1"),
            ("NUM_TOKENS", "Some-Tokens-1"),
            ("MAX_TOKENS", "Some-Tokens-2"),
        ] {
            know_secret(name, value);
            assert_eq!(redact_text(value), value, "{name}");
        }
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "/abcdEFGH1234abcdEFGH/x"),
            ("DB_PASSWORD", "only-letters"),
            ("some_key", "Mixed-Case"),
            ("DB_PASS", "letters-of-pass"),
            ("MYSQL_PWD", "letters-of-pwd"),
            ("MYTOKEN", "letters-of-token"),
            ("MY_KEYS", "letters-of-keys"),
            ("MY_SECRETS", "letters-of-secrets"),
        ] {
            know_secret(name, value);
            assert_eq!(redact_text(value), "***", "{name}");
        }
    }
}
