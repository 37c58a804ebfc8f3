//! Options and word pairs in a text: `--api-key VALUE`, `\'--api-key\', \'VALUE\'`, `("Set-Cookie", "VALUE")`.

use super::is_option;
use super::names::is_surely_secret;
use super::places::is_place;
use super::values::{EMPTY, ends};

const QUOTES: [char; 3] = ['"', '\'', '\\'];

/// Hides the values of options that name secrets. Returns `None` if there are none.
pub(super) fn hide_flags(text: &str) -> Option<String> {
    if !text.contains("--") && !text.contains("\",") && !text.contains("\',") {
        return None;
    }
    let mut out = String::new();
    let (mut kept, mut from) = (0, 0);
    while let Some((start, end)) = next(text, &mut from) {
        out.push_str(text.get(kept..start).unwrap_or_default());
        out.push_str("***");
        (kept, from) = (end, end);
    }
    (kept > 0).then(|| out + text.get(kept..).unwrap_or_default())
}

/// The range of the next value after `from`.
fn next(text: &str, from: &mut usize) -> Option<(usize, usize)> {
    loop {
        let rest = text.get(*from..)?;
        let at = *from + rest.find(['-', ','])?;
        let found = match text.as_bytes().get(at) {
            Some(b',') => {
                *from = at + 1;
                behind_name(text, at)
            }
            _ => {
                let word = text.get(at..)?;
                let name = word.find(|c: char| !is_of_name(c)).unwrap_or(word.len());
                *from = at + name;
                let stands_alone = !text.get(..at)?.ends_with(|c: char| is_of_name(c) || c == '/');
                match stands_alone && word.starts_with("--") {
                    true => behind_option(text, at, at + name),
                    false => None,
                }
            }
        };
        if found.is_some() {
            return found;
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// `--name VALUE`, `--name 'VALUE'` and the same as a list of words.
fn behind_option(text: &str, at: usize, end: usize) -> Option<(usize, usize)> {
    let name = text.get(at..end)?;
    let after = text.get(end..)?;
    let gap = after.trim_start_matches([' ', '\t', ',', '"', '\'', '\\']);
    let between = after.get(..after.len() - gap.len())?;
    if !between.contains([' ', '\t', ',']) || !is_option(name) {
        return None;
    }
    // `--flag" VALUE`: a quote that only ends the option does not open a value.
    let open = between.rsplit([' ', '\t', ',']).next().unwrap_or_default();
    let found = value(text, text.len() - gap.len(), !open.is_empty(), gap.starts_with('-'))?;
    let said = text.get(found.0..found.1).unwrap_or_default();
    (!is_place(name, said)).then_some(found)
}

/// `"name", "VALUE"`, as pairs and lists of words are printed.
fn behind_name(text: &str, comma: usize) -> Option<(usize, usize)> {
    let before = text.get(..comma)?;
    let quoted = before.trim_end_matches(QUOTES);
    let name = quoted.rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
    let after = text.get(comma + 1..)?.trim_start_matches(' ');
    let word = after.trim_start_matches('b').trim_start_matches(QUOTES);
    let is_pair = quoted.len() < before.len() && after.trim_start_matches('b').starts_with(QUOTES);
    if !is_pair || name.starts_with('-') || !is_surely_secret(name) {
        return None;
    }
    value(text, text.len() - word.len(), true, false)
}

fn value(text: &str, start: usize, quoted: bool, is_option: bool) -> Option<(usize, usize)> {
    let rest = text.get(start..)?;
    let length = match quoted {
        true => rest.find(|c| QUOTES.contains(&c) || c == '\n'),
        false => rest.find(ends),
    };
    let said = rest.get(..length.unwrap_or(rest.len()))?;
    // `the --token option is missing` is a sentence.
    let is_word = !quoted && said.bytes().all(|b| b.is_ascii_lowercase());
    let is_none = said.len() < 2 || said.starts_with('$') || EMPTY.contains(&said) || is_option && !quoted;
    (!is_word && !is_none).then_some((start, start + said.len()))
}

#[cfg(test)]
mod tests {
    use super::super::redact_text;

    #[test]
    fn the_value_of_an_option_is_hidden_inside_a_text() {
        for (text, shown) in [
            ("sh -c 'x --api-key Hush-1 --lr 3'", "sh -c 'x --api-key *** --lr 3'"),
            ("x --api-key=Hush-1, --lr", "x --api-key=***, --lr"),
            ("x --token  \"two words\" --lr 1", "x --token  \"***\" --lr 1"),
            (
                r#"{"argv":"sh -c \"x --hf_token Hush-1\""}"#,
                r#"{"argv":"sh -c \"x --hf_token ***\""}"#,
            ),
            (
                "['x', '--api-key', 'Hush 1', '--lr']",
                "['x', '--api-key', '***', '--lr']",
            ),
            (r#"["--password","hush","--lr"]"#, r#"["--password","***","--lr"]"#),
            (
                "('Set-Cookie', 'a=b; c'), ('x', 'y')",
                "('Set-Cookie', '***'), ('x', 'y')",
            ),
            ("(b'authorization', b'Digest x')", "(b'authorization', b'***')"),
            ("--token=Hush-1", "--token=***"),
            ("--api-key -abc-1", "--api-key -abc-1"),
        ] {
            assert_eq!(redact_text(text), shown);
            assert_eq!(redact_text(shown), shown);
        }
        for plain in [
            "the --token option is missing",
            "--max-tokens 512 --prompt-key Some-1 --tokenizer /a/B1",
            "--answer_key Ground-Truth-1 --sort-key Col-1",
            "a -- b --, --token",
            "path/--token X1",
            "--token $HF_TOKEN",
            "('loss', '0.5'), ('image_token', '<image-1>')",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }

    #[test]
    fn headers_and_quoted_tokens_are_hidden_and_tokens_of_a_text_are_not() {
        for (text, shown) in [
            ("Set-Cookie: sid=\"a b\"; Path=/", "Set-Cookie: ***"),
            ("< set-cookie: sid=Ab1; Secure", "< set-cookie: ***"),
            ("curl -H \"Cookie: a=b; c=d\" x", "curl -H \"Cookie: ***\" x"),
            ("{'Cookie': 'a=b; c=d', 'x': 1}", "{'Cookie': '***', 'x': 1}"),
            ("Proxy-Authorization: Basic a b", "Proxy-Authorization: ***"),
            ("login(token='Ab1-cd2-ef3')", "login(token='***')"),
            (r#"{"token": "Ab1-cd2-ef3"}"#, r#"{"token": "***"}"#),
            (
                "u=https%3A%2F%2Fme%3Apw%40host%2Fx&y=1",
                "u=https%3A%2F%2F***%40host%2Fx&y=1",
            ),
        ] {
            assert_eq!(redact_text(text), shown);
            assert_eq!(redact_text(shown), shown);
        }
        for plain in [
            "eos_token='<|im_end|>', token='the', token='Hello'",
            "{\"token\": \"<|endoftext|>\", \"key\": \"global_step_12\"}",
            "answer_key='Some-Column-1' best_key='eval_reward-2'",
            "u=https%3A%2F%2Fhost%2Fx%40y&y=1",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }
}
