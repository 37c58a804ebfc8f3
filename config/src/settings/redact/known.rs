//! Secrets that are known by their value: this process was given them under a name that is a secret's.
//!
//! A variable of the environment, a setting, a key of the trainer's configuration. The trainer may print such a value anywhere,
//! without its name and in no known shape. The values live in the memory of this process alone; whoever is to hide them as well is
//! given them through a pipe.

use super::{is_secret, is_surely_secret};
use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

/// A shorter value may stand in any word. Bytes.
const SHORTEST: usize = 8;
/// Longest value, in bytes, and how many are known at most.
const LONGEST: usize = 64 << 10;
const MOST: usize = 1000;
/// Values that say that there is none, or that are words of everyday.
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

/// The longest first: a value may hold another one.
static KNOWN: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// From now on [`redact_text`](super::redact_text) hides this value wherever it stands, if its name is a secret's. Short and common
/// values, numbers and paths are not hidden.
pub fn know_secret(name: &str, value: &str) {
    if !is_secret(name) || value.len() > LONGEST {
        return;
    }
    let surely = is_surely_secret(name);
    // A trainer prints a value of several lines in several lines, or with `\n` in one.
    let lines = value.split(['\n', '\r']).flat_map(|line| line.split("\\n"));
    know(lines.map(str::trim).filter(|line| is_hidden(line, surely)));
}

/// Takes over the values that another process of ours knows.
pub fn know_values(values: &[String]) {
    know(values.iter().map(String::as_str).filter(|v| v.len() >= SHORTEST));
}

/// The values that are hidden: for a helper of ours, never for a file.
pub fn known_secrets() -> Vec<String> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn know<'a>(values: impl Iterator<Item = &'a str>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    for value in values {
        // As it stands, and as it stands in JSON, which is how most of what is hidden is written.
        let quoted: String = value.escape_default().collect();
        for form in [value, &value.replace('\\', "\\\\").replace('"', "\\\""), &quoted] {
            if known.len() < MOST && known.iter().all(|k| k != form) {
                known.push(form.to_owned());
            }
        }
    }
    known.sort_by_key(|value| std::cmp::Reverse(value.len()));
}

/// Returns true if a value is long and odd enough to be a secret. `surely`: its name leaves no doubt, as that of a password.
fn is_hidden(value: &str, surely: bool) -> bool {
    let is_marker = value.starts_with("-----") && value.ends_with("-----");
    let is_number = value.parse::<f64>().is_ok();
    // The key of a data set's column has such a name, and is a plain word.
    let is_word = value
        .bytes()
        .all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'.' | b'-'));
    value.len() >= SHORTEST
        && !(is_marker || is_number || is_path(value) || is_word && !surely)
        && !value.starts_with("${")
        && !COMMON.contains(&value.to_ascii_lowercase().as_str())
}

/// Returns true for a path. A secret in base64 may begin as one.
fn is_path(value: &str) -> bool {
    let is_random = |part: &str| {
        part.len() >= 16
            && part.bytes().any(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b.is_ascii_uppercase())
            && part.bytes().any(|b| b.is_ascii_lowercase())
    };
    value.starts_with(['/', '~']) && !value.split('/').any(is_random)
        || value.starts_with("./")
        || value.starts_with("../")
}

/// The text without the values that are known, and without the beginning of one that was cut off at its end.
pub(super) fn hide(text: &str) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let mut out = Cow::Borrowed(text);
    for value in known.iter() {
        if out.contains(value.as_str()) {
            out = Cow::Owned(out.replace(value.as_str(), "***"));
        }
    }
    let (body, end) = match out.strip_suffix('…') {
        Some(body) => (body, "…"),
        None => (out.as_ref(), ""),
    };
    match known.iter().filter_map(|value| begun(body, value)).max() {
        Some(length) => {
            let kept = body.get(..body.len() - length).unwrap_or_default();
            Cow::Owned(format!("{kept}***{end}"))
        }
        None => out,
    }
}

/// How much of the value stands at the end of the text, where that is enough to tell of it.
fn begun(text: &str, value: &str) -> Option<usize> {
    (SHORTEST..value.len().min(text.len() + 1)).rev().find(|n| {
        value
            .as_bytes()
            .get(..*n)
            .is_some_and(|head| text.as_bytes().ends_with(head))
    })
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
        assert_eq!(redact_text("got k9-odd-value-of other"), "got k9-odd-value-of other");
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
