//! The tokens shared by OmegaConf's and Hydra's grammars: numbers, booleans, null, identifiers, escapes.
//!
//! Both grammars read an unquoted value as a run of such tokens. A single token has its own type; a longer run is a string. So `10` is a
//! number and `10-a` is not. The longest token wins, and among equally long ones the first in [`TokenKind`]'s order.

use crate::tree::ConfigValue;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Includes `inf` and `nan`.
    Float,
    Int,
    /// `true` or `false`, in any case.
    Bool,
    /// `null`, in any case.
    Null,
    /// One of `/ - \ + . $ % * @ ? |`.
    Mark,
    /// An identifier.
    Id,
    /// Escaped characters: a backslash before each.
    Escape,
    Space,
}

/// Finds the token at the start of a text, and its length in bytes.
pub fn word(text: &str) -> Option<(TokenKind, usize)> {
    let bytes = text.as_bytes();
    let candidates = [
        (TokenKind::Float, float(bytes)),
        (TokenKind::Int, int(bytes)),
        (TokenKind::Bool, keyword(bytes, b"true").max(keyword(bytes, b"false"))),
        (TokenKind::Null, keyword(bytes, b"null")),
        (
            TokenKind::Mark,
            usize::from(bytes.first().is_some_and(|byte| b"/-\\+.$%*@?|".contains(byte))),
        ),
        (TokenKind::Id, id(bytes)),
        (TokenKind::Escape, escape(bytes)),
        (TokenKind::Space, run(bytes, |byte| matches!(byte, b' ' | b'\t'))),
    ];
    let mut best: Option<(TokenKind, usize)> = None;
    for (kind, length) in candidates {
        if length > best.map_or(0, |(_, longest)| longest) {
            best = Some((kind, length));
        }
    }
    best
}

/// Converts a run of tokens to a value: typed if it is a single token, otherwise a string with escapes resolved.
pub fn value(words: &[(TokenKind, &str)]) -> Result<ConfigValue, String> {
    if let [(kind, text)] = words {
        return single(*kind, text);
    }
    Ok(ConfigValue::Str(
        words.iter().map(|(kind, text)| unescaped(*kind, text)).collect(),
    ))
}

/// Returns a token's text with escapes resolved.
pub fn unescaped(kind: TokenKind, text: &str) -> String {
    if kind == TokenKind::Escape {
        text.chars().skip(1).step_by(2).collect()
    } else {
        text.to_owned()
    }
}

fn single(kind: TokenKind, text: &str) -> Result<ConfigValue, String> {
    match kind {
        TokenKind::Null => Ok(ConfigValue::Null),
        TokenKind::Bool => Ok(ConfigValue::Bool(text.eq_ignore_ascii_case("true"))),
        TokenKind::Int => {
            let digits = text.replace('_', "");
            digits
                .parse()
                .map(ConfigValue::Int)
                .map_err(|_| format!("the whole number {text} is beyond what is supported"))
        }
        TokenKind::Float => {
            let digits = text.replace('_', "").to_ascii_lowercase();
            digits
                .parse()
                .map(ConfigValue::Float)
                .map_err(|_| format!("'{text}' is not a number"))
        }
        _ => Ok(ConfigValue::Str(unescaped(kind, text))),
    }
}

/// Counts the leading bytes that are in the set.
fn run(bytes: &[u8], set: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| set(**byte)).count()
}

fn keyword(bytes: &[u8], word: &[u8]) -> usize {
    match bytes.get(..word.len()) {
        Some(start) if start.eq_ignore_ascii_case(word) => word.len(),
        _ => 0,
    }
}

fn id(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(first) if first.is_ascii_alphabetic() || *first == b'_' => run(bytes, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
        }),
        _ => 0,
    }
}

fn escape(bytes: &[u8]) -> usize {
    bytes
        .chunks_exact(2)
        .take_while(|pair| pair[0] == b'\\' && b"\\()[]{}:=, \t".contains(&pair[1]))
        .count()
        * 2
}

fn sign(bytes: &[u8]) -> usize {
    usize::from(matches!(bytes.first(), Some(b'+' | b'-')))
}

/// Digits with single underscores between them.
fn digits(bytes: &[u8]) -> usize {
    let mut length = run(bytes, |byte| byte.is_ascii_digit());
    while length > 0 && bytes.get(length) == Some(&b'_') && bytes.get(length + 1).is_some_and(u8::is_ascii_digit) {
        length += 1 + run(&bytes[length + 1..], |byte| byte.is_ascii_digit());
    }
    length
}

/// `0`, or digits that do not begin with zero.
fn unsigned(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&b'0') { 1 } else { digits(bytes) }
}

fn int(bytes: &[u8]) -> usize {
    let sign = sign(bytes);
    match unsigned(&bytes[sign..]) {
        0 => 0,
        length => sign + length,
    }
}

fn float(bytes: &[u8]) -> usize {
    let sign = sign(bytes);
    let body = &bytes[sign..];
    let word = keyword(body, b"inf").max(keyword(body, b"nan"));
    let point = point_float(body);
    let with_exponent = [point, unsigned(body)]
        .into_iter()
        .map(|base| exponent(body, base))
        .max()
        .unwrap_or(0);
    match word.max(point).max(with_exponent) {
        0 => 0,
        length => sign + length,
    }
}

fn point_float(bytes: &[u8]) -> usize {
    let whole = unsigned(bytes);
    if bytes.get(whole) != Some(&b'.') {
        return 0;
    }
    let fraction = digits(&bytes[whole + 1..]);
    if whole == 0 && fraction == 0 {
        0
    } else {
        whole + 1 + fraction
    }
}

/// The length including an exponent after `base` bytes; 0 if there is none.
fn exponent(bytes: &[u8], base: usize) -> usize {
    if base == 0 || !matches!(bytes.get(base), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = sign(&bytes[base + 1..]);
    match digits(&bytes[base + 1 + sign..]) {
        0 => 0,
        length => base + 1 + sign + length,
    }
}

#[cfg(test)]
mod tests {
    use super::{TokenKind, word};

    #[test]
    fn the_longest_word_wins() {
        for (text, kind, length) in [
            ("10", TokenKind::Int, 2),
            ("010", TokenKind::Int, 1),
            ("1_000", TokenKind::Int, 5),
            ("1__0", TokenKind::Int, 1),
            ("1.", TokenKind::Float, 2),
            (".5", TokenKind::Float, 2),
            ("-1e-4", TokenKind::Float, 5),
            ("1e", TokenKind::Int, 1),
            ("inf", TokenKind::Float, 3),
            ("infinity", TokenKind::Id, 8),
            ("-nan", TokenKind::Float, 4),
            ("TRUE", TokenKind::Bool, 4),
            ("trueish", TokenKind::Id, 7),
            ("null", TokenKind::Null, 4),
            ("-", TokenKind::Mark, 1),
            ("\\\\", TokenKind::Escape, 2),
            ("\\x", TokenKind::Mark, 1),
            ("  a", TokenKind::Space, 2),
        ] {
            assert_eq!(word(text), Some((kind, length)), "{text}");
        }
        assert_eq!(word("é"), None);
    }
}
