//! Words for bash and sbatch: each is quoted to survive unchanged, or refused.

use std::fmt::Write as _;

/// Longest line that every sbatch release takes.
const LINE: usize = 4096;

/// Quotes the words of a command for bash, on one line.
pub(crate) fn shell_words<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

/// Quotes a word for bash. Characters that are not displayed as they are, or could be mistaken for others, are
/// written as bytes (`$'…'`), so that copying from a screen or an editor does not change them.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.,:=/@%+-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.chars().all(is_shown) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut out = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_shown(c) => out.push(c),
            c => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Three digits, so that a following digit is not read as part of the number. Writing into a
                    // String cannot fail.
                    let _ = write!(out, "\\{byte:03o}");
                }
            }
        }
    }
    out + "'"
}

/// Quotes a word for an `#SBATCH` line.
///
/// sbatch knows double quotes, a backslash before any character, and `#` for a comment; older releases end a line at
/// `#` even inside quotes, and newer ones blank out the keywords of heterogeneous jobs (`packjob`, `hetjob`)
/// anywhere.
///
/// # Errors
/// Why no line can contain it.
pub(crate) fn batch_word(word: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.,:;=/@%+-[]()*&|!".contains(c);
    if !word.chars().all(is_shown) {
        return Err(format!(
            "expected words that a line of #SBATCH can hold, found {word:?}: it holds characters that cannot be shown"
        ));
    }
    if word.len() > LINE {
        let length = word.len();
        return Err(format!(
            "expected words of up to {LINE} bytes for a line of #SBATCH, found {length}"
        ));
    }
    let several = ["packjob", "hetjob"]
        .iter()
        .any(|part| word.to_ascii_lowercase().contains(part));
    if !word.is_empty() && !word.starts_with(':') && !several && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    let mut out = "\"".to_owned();
    for c in word.chars() {
        if matches!(c, '"' | '\\' | '#') || several && matches!(c, 'j' | 'J') {
            out.push('\\');
        }
        out.push(c);
    }
    Ok(out + "\"")
}

/// Returns true if a character is displayed as itself: false for blanks other than the space, control characters, and
/// characters that change the order or shape of others.
fn is_shown(c: char) -> bool {
    let blank = c.is_whitespace() && c != ' ';
    let format = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    !(blank || c.is_control() || format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_as_they_are() {
        for (word, expected) in [
            ("a.yaml", "a.yaml"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("a b", "'a b'"),
            ("größe", "'größe'"),
            ("a\tb", r"$'a\tb'"),
            ("a\nb", r"$'a\nb'"),
            ("a\u{2028}1", r"$'a\342\200\2501'"),
            ("\u{1}'\\", r"$'\001\'\\'"),
        ] {
            assert_eq!(shell_word(word), expected, "{word:?}");
        }
    }

    #[test]
    fn a_line_of_sbatch_quotes_or_refuses() {
        for (word, expected) in [
            ("--time=1-0", "--time=1-0"),
            ("--chdir=/my run", "\"--chdir=/my run\""),
            ("a#b", r##""a\#b""##),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("--chdir=/a/PackJobs", r#""--chdir=/a/Pack\Jobs""#),
            (":x", "\":x\""),
            ("", "\"\""),
        ] {
            assert_eq!(batch_word(word).as_deref(), Ok(expected), "{word:?}");
        }
        for wrong in [
            "a\tb",
            "a\nb",
            "a\u{2028}b",
            "a\u{a0}b",
            "a\u{202e}b",
            "a\u{200b}b",
            &"a".repeat(5000),
        ] {
            assert!(batch_word(wrong).is_err(), "{wrong:?}");
        }
    }
}
