//! Splitting a command line into words as a shell does, without expanding anything.

/// Splits at spaces outside quotes. Single quotes keep everything, double quotes let a backslash escape `"`, `\`, `$` and a backtick,
/// a backslash elsewhere escapes the next character.
pub fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed".to_owned()),
                    }
                }
            }
            '"' => double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("a backslash ends the command".to_owned()),
            },
            '#' if word.is_none() => {
                for c in chars.by_ref() {
                    if c == '\n' {
                        break;
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn double_quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            Some('"') => return Ok(()),
            Some('\\') => match chars.next() {
                Some('\n') => {}
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => {
                    word.push('\\');
                    word.push(c);
                }
                None => return Err("a double quote is not closed".to_owned()),
            },
            Some(c) => word.push(c),
            None => return Err("a double quote is not closed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn words_split_as_in_a_shell() {
        for (text, words) in [
            ("python -m x", vec!["python", "-m", "x"]),
            ("a 'b c' \"d e\" f\\ g", vec!["a", "b c", "d e", "f g"]),
            ("k='[\"x\"]'", vec!["k=[\"x\"]"]),
            ("a\\\n  b", vec!["a", "b"]),
            ("a '' b", vec!["a", "", "b"]),
            ("a #b\nc", vec!["a", "c"]),
            ("a#b \"\\$x \\n\"", vec!["a#b", "$x \\n"]),
            ("", vec![]),
        ] {
            assert_eq!(split_words(text).unwrap(), words, "{text}");
        }
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split_words(text).is_err(), "{text}");
        }
    }
}
