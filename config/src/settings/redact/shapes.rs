//! Token shapes that mark a value as a secret, whatever its name.

/// Characters of a token after its prefix.
#[derive(Clone, Copy)]
enum CharClass {
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Dash,
    /// Capitals and digits.
    Capitals,
}

impl CharClass {
    fn has(self, b: u8) -> bool {
        match self {
            Self::Alnum => b.is_ascii_alphanumeric(),
            Self::Word => b.is_ascii_alphanumeric() || b == b'_',
            Self::Dash => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'),
            Self::Capitals => b.is_ascii_uppercase() || b.is_ascii_digit(),
        }
    }
}

/// Token prefixes of services, the characters that follow, and how many at least.
const TOKENS: [(&str, CharClass, usize); 24] = [
    ("hf_", CharClass::Alnum, 16),
    ("api_org_", CharClass::Alnum, 16),
    ("ghp_", CharClass::Alnum, 12),
    ("gho_", CharClass::Alnum, 12),
    ("ghu_", CharClass::Alnum, 12),
    ("ghs_", CharClass::Alnum, 12),
    ("ghr_", CharClass::Alnum, 12),
    ("github_pat_", CharClass::Word, 12),
    ("glpat-", CharClass::Dash, 16),
    ("AKIA", CharClass::Capitals, 12),
    ("ASIA", CharClass::Capitals, 12),
    ("xapp-", CharClass::Dash, 10),
    ("AIza", CharClass::Dash, 30),
    ("gsk_", CharClass::Alnum, 20),
    ("r8_", CharClass::Alnum, 30),
    ("npm_", CharClass::Alnum, 30),
    ("pypi-", CharClass::Dash, 30),
    ("nvapi-", CharClass::Dash, 20),
    ("wandb_v1_", CharClass::Word, 16),
    ("sk_live_", CharClass::Alnum, 16),
    ("rk_live_", CharClass::Alnum, 16),
    ("dckr_pat_", CharClass::Dash, 16),
    ("ya29.", CharClass::Dash, 20),
    ("hvs.", CharClass::Dash, 20),
];
/// Shortest token in bytes, which is Slack's (`xoxb-` and eight more).
const SHORTEST: usize = 13;
const _: () = {
    let mut n = 0;
    while n < TOKENS.len() {
        assert!(TOKENS[n].0.len() + TOKENS[n].2 >= SHORTEST);
        n += 1;
    }
};
/// Hexadecimal digits of a Weights & Biases key, which follows its name.
const WANDB: usize = 40;
/// Line widths of a private key: PEM, OpenSSH, MIME.
const KEY_LINES: [usize; 3] = [64, 70, 76];
/// A word with more slashes than this is a path.
const SLASHES: usize = 6;
/// How far before such a key its name may be, in bytes.
const NEAR: usize = 40;

/// Whether a token, or a line of a key, may contain this byte.
fn is_of_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/' | b'=')
}

/// Hides every token. Returns `None` if there is none.
pub(super) fn hide_tokens(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut kept, mut at) = (0, 0);
    while at < bytes.len() {
        // Most words are shorter than any token, and every printed line passes through here.
        let word = bytes
            .iter()
            .skip(at)
            .take(SHORTEST)
            .take_while(|b| is_of_word(**b))
            .count();
        if word < SHORTEST {
            at += word.max(1);
            continue;
        }
        let length = text.get(at..).and_then(|rest| {
            let named = prefixed(rest);
            // A token recognized only by its form must be a word of its own.
            if named.is_none() && begins(bytes.get(..at).unwrap_or_default()) {
                return shaped(text, at);
            }
            named
        });
        match length {
            Some(n) => {
                out.push_str(text.get(kept..at).unwrap_or_default());
                out.push_str("***");
                at += n;
                kept = at;
            }
            None => at += 1,
        }
    }
    if kept == 0 {
        return None;
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    Some(out)
}

/// Whether a word may begin after these bytes: at the start, after a non-word byte, or after an escape whose end only looks like a word
/// (`\n`, `\x1b[31m`, `\u0027`, `%3D`, a color).
fn begins(before: &[u8]) -> bool {
    let Some(last) = before.last() else { return true };
    let escape = |mark: &[u8], digits: usize| {
        let (head, end) = before.split_at(before.len().saturating_sub(digits));
        head.ends_with(mark) && end.len() == digits && end.iter().all(u8::is_ascii_hexdigit)
    };
    let colour = || {
        let numbers = before.strip_suffix(b"m").unwrap_or_default();
        let kept = numbers.iter().rposition(|b| !b.is_ascii_digit() && *b != b';');
        kept.is_some_and(|at| numbers.get(at) == Some(&b'['))
    };
    !(last.is_ascii_alphanumeric() || *last == b'_')
        || last.is_ascii_alphabetic() && before.len() > 1 && before.get(before.len() - 2) == Some(&b'\\')
        || escape(b"%", 2)
        || escape(b"\\x", 2)
        || escape(b"\\u", 4)
        || colour()
}

/// Returns the length of the token that begins here with a service's prefix, whatever precedes it.
fn prefixed(rest: &str) -> Option<usize> {
    let (prefix, of, least) = TOKENS.into_iter().find(|(prefix, ..)| rest.starts_with(prefix))?;
    let n = rest.bytes().skip(prefix.len()).take_while(|b| of.has(*b)).count();
    (n >= least).then_some(prefix.len() + n)
}

/// Returns the length of the token that begins here, by its form.
fn shaped(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let run = |from: usize, of: CharClass| rest.bytes().skip(from).take_while(|b| of.has(*b)).count();
    if rest.starts_with("sk-") {
        let n = run(3, CharClass::Dash);
        let body = rest.get(3..3 + n)?;
        return body.split(['-', '_']).any(is_random).then_some(3 + n);
    }
    if rest.starts_with("xox") && rest.as_bytes().get(4) == Some(&b'-') {
        let n = run(5, CharClass::Dash);
        return (n >= 8).then_some(5 + n);
    }
    if rest.starts_with("eyJ") {
        return web_token(rest);
    }
    if let Some(length) = key_line(text, at) {
        return Some(length);
    }
    let hex = rest
        .bytes()
        .take_while(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        .count();
    let ends = !rest.as_bytes().get(hex).is_some_and(|b| b.is_ascii_alphanumeric());
    (hex == WANDB && ends && follows_wandb(text, at)).then_some(hex)
}

/// Returns the length of a private key's line: a base64 word exactly as wide as such a line.
fn key_line(text: &str, at: usize) -> Option<usize> {
    let is_base64 = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    let bytes = text.as_bytes();
    let (before, escape) = (at.checked_sub(1), at.checked_sub(2));
    let is_escaped = escape.and_then(|b| bytes.get(b)) == Some(&b'\\');
    if !is_escaped && before.and_then(|b| bytes.get(b)).is_some_and(is_base64) {
        return None;
    }
    let length = bytes.iter().skip(at).take(100).take_while(|b| is_base64(b)).count();
    let word = bytes.get(at..at + length).filter(|w| KEY_LINES.contains(&w.len()))?;
    let has = |of: fn(&u8) -> bool| word.iter().any(of);
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let slashes = word.iter().filter(|b| **b == b'/').count();
    (mixed && slashes <= SLASHES).then_some(length)
}

/// Whether a part is too long to be an ordinary word.
fn is_random(part: &str) -> bool {
    let mixed = part.bytes().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    part.len() >= 20 || part.len() >= 16 && mixed
}

/// `header.claims.signature`; the signature is optional.
fn web_token(rest: &str) -> Option<usize> {
    let run = |from: usize| rest.bytes().skip(from).take_while(|b| CharClass::Dash.has(*b)).count();
    let head = run(0);
    if head < 10 || rest.as_bytes().get(head) != Some(&b'.') {
        return None;
    }
    let claims = run(head + 1);
    if claims < 4 {
        return None;
    }
    let end = head + 1 + claims;
    let signed = rest.as_bytes().get(end) == Some(&b'.');
    Some(if signed { end + 1 + run(end + 1) } else { end })
}

fn follows_wandb(text: &str, at: usize) -> bool {
    let before = text.as_bytes().get(at.saturating_sub(NEAR)..at).unwrap_or_default();
    before.to_ascii_lowercase().windows(5).any(|w| w == b"wandb")
}
