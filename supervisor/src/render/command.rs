//! Commands for display: quoted, without secrets.

use supervise_config::{redact_word, redact_words};

/// A word without secrets: `key=secret` and `--key=secret` lose the secret.
#[must_use]
pub fn shown_word(word: &str) -> String {
    redact_word(word)
}

/// A whole command, quoted and without secrets.
#[must_use]
pub fn shown_command(words: &[String]) -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+{}".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else if word.contains('\'') && !word.contains(['"', '$', '`', '\\', '!']) {
            format!("\"{word}\"")
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    redact_words(words)
        .into_iter()
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A command for the operator to run, who fills in the hidden values.
#[must_use]
pub fn proposed(words: &[String]) -> String {
    let shown = shown_command(words);
    match redact_words(words) == words {
        true => shown,
        false => format!("{shown} (with your own value for each ***)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_quoted_and_without_secrets() {
        let words = [
            "python",
            "a b",
            "trainer.api_key=hush",
            "--wandb_token=hush",
            "x='y'",
            "$'a",
        ]
        .map(str::to_owned);
        assert_eq!(
            shown_command(&words),
            r#"python 'a b' 'trainer.api_key=***' '--wandb_token=***' "x='y'" '$'\''a'"#
        );
    }
}
