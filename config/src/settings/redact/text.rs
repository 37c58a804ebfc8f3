//! Secrets inside a text: known values, logins in URLs, addresses of webhooks, `name=secret`, `--name secret`, headers, tokens,
//! private keys.

use super::flags::hide_flags;
use super::keys::hide_keys;
use super::known;
use super::names::{is_secret, is_surely_secret};
use super::places::is_place;
use super::shapes::hide_tokens;
use super::values::{EMPTY, ends};
use std::borrow::Cow;

/// Addresses that let in whoever knows them: what follows is the secret.
const WEBHOOKS: [&str; 10] = [
    "hooks.slack.com/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "webhook.office.com/",
    "logic.azure.com/",
    "hooks.zapier.com/",
    "api.telegram.org/bot",
    "open.feishu.cn/open-apis/bot/",
    "oapi.dingtalk.com/robot/",
    "qyapi.weixin.qq.com/cgi-bin/webhook/",
];
/// Parameters of a URL that sign it.
const SIGNATURES: [&str; 8] = [
    "sig",
    "signature",
    "x-amz-signature",
    "x-amz-credential",
    "x-goog-signature",
    "token",
    "key",
    "auth",
];
/// The scheme before a token in a header.
const BEARER: &str = "Bearer ";

/// The text without what looks like a secret. What is hidden once stays as it is a second time.
pub fn redact_text(text: &str) -> String {
    redacted(text).into_owned()
}

/// The same without a copy where nothing is hidden: most lines that are told hold no secret.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut out = known::hide(text);
    // Before anything that may hide the marks of a key alone.
    if let Some(hidden) = hide_keys(&out) {
        out = hidden.into();
    }
    if out.contains('/') {
        for mark in ["://", ":\\/\\/"] {
            if out.contains(mark) {
                out = hide_behind(&out, mark, login).into();
            }
        }
        for host in WEBHOOKS {
            if out.contains(host) {
                out = hide_behind(&out, host, |after| after.find(ends).unwrap_or(after.len())).into();
            }
        }
    }
    if out.contains("%3A%2F%2F") {
        out = hide_behind(&out, "%3A%2F%2F", encoded_login).into();
    }
    if out.contains(['=', ':']) {
        out = hide_pairs(&out).into();
    }
    if let Some(hidden) = hide_flags(&out) {
        out = hidden.into();
    }
    if out.contains(BEARER) {
        out = hide_behind(&out, BEARER, bearer).into();
    }
    match hide_tokens(&out) {
        Some(hidden) => hidden.into(),
        None => out,
    }
}

/// Text without what follows each of these marks: `secret` tells how much of it that is.
fn hide_behind(text: &str, mark: &str, secret: impl Fn(&str) -> usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        let (head, after) = rest.split_at(at + mark.len());
        out.push_str(head);
        let hidden = secret(after);
        if hidden > 0 {
            out.push_str("***");
        }
        rest = after.get(hidden..).unwrap_or_default();
    }
    out + rest
}

/// The length of the login that an address begins with; 0: it has none that hides anything.
fn login(address: &str) -> usize {
    let whole = address.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '`' | '<' | '>'));
    let whole = address.get(..whole.unwrap_or(address.len())).unwrap_or_default();
    let strict = whole.split(['/', '?', '#', ',']).next().unwrap_or_default();
    if let Some((login, _)) = strict.rsplit_once('@') {
        // A name alone, as in `ssh://git@host`, is none; a token in its place is.
        let hides = login != "***" && (login.contains(':') || login.len() >= 20);
        return if hides { login.len() } else { 0 };
    }
    // A password may hold a slash where somebody forgot to encode it: then what looks like a port is no number.
    let port = strict.rsplit_once(':').map(|(_, port)| port);
    let is_port = port.is_none_or(|p| p.is_empty() || p.bytes().all(|b| b.is_ascii_digit()) || p.ends_with(']'));
    match whole.rsplit_once('@') {
        Some((login, _)) if !is_port => login.len(),
        _ => 0,
    }
}

/// The same of an address inside another one.
fn encoded_login(address: &str) -> usize {
    let whole = address
        .find(|c: char| ends(c) || matches!(c, '&' | '/'))
        .unwrap_or(address.len());
    let host = address
        .get(..whole)
        .unwrap_or_default()
        .split("%2F")
        .next()
        .unwrap_or_default();
    match host.rsplit_once("%40") {
        Some((login, _)) if login.contains("%3A") || login.len() >= 20 => login.len(),
        _ => 0,
    }
}

/// The length of the token that stands after `Bearer`; 0: it is a word of a sentence.
fn bearer(after: &str) -> usize {
    let is_of_token = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    let token: Vec<u8> = after.bytes().take_while(is_of_token).collect();
    let is_odd = token.iter().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    if token.len() >= 16 && is_odd { token.len() } else { 0 }
}

/// `name=secret`, `name: secret`, `"name": "secret"`.
fn hide_pairs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut kept, mut from) = (0, 0);
    while let Some(found) = text.get(from..).and_then(|t| t.find(['=', ':'])) {
        let at = from + found;
        from = at + 1;
        let Some((start, end)) = secret_after(text, at) else {
            continue;
        };
        out.push_str(text.get(kept..start).unwrap_or_default());
        out.push_str("***");
        kept = end;
        from = end.max(from);
    }
    out + text.get(kept..).unwrap_or_default()
}

/// The place of the value after this sign, where its name is a secret's.
fn secret_after(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let before = text.get(..at)?.trim_end_matches([' ', '"', '\'', '\\']);
    let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
    let in_url = before
        .get(..before.len() - name.len())
        .is_some_and(|b| b.ends_with(['?', '&']));
    let signs = in_url && SIGNATURES.contains(&name.to_ascii_lowercase().as_str());
    let surely = signs || is_surely_secret(name) || name.starts_with("--") && super::is_option(name);
    if name.is_empty() || !(surely || is_secret(name)) {
        return None;
    }
    let after = text.get(at + 1..)?;
    let spaced = after.trim_start_matches(' ');
    // Bytes as Python prints them.
    let spaced = spaced
        .strip_prefix('b')
        .filter(|s| s.starts_with(['"', '\'']))
        .unwrap_or(spaced);
    let value = spaced.trim_start_matches(['"', '\'', '\\']);
    let (gap, quoted) = (spaced.len() < after.len(), value.len() < spaced.len());
    let opening = spaced.get(..spaced.len() - value.len())?;
    let header = !quoted && text.as_bytes().get(at) == Some(&b':') && is_header(name);
    let length = match quoted || header {
        true if header && is_cookie(name) => cookie(value),
        true if quoted => end_of_quoted(value, opening),
        true => value.find(['"', '\'', '\\', '\n']),
        false if in_url => value.find(|c| c == '&' || c == '#' || ends(c)),
        false => value.find(ends),
    };
    let length = length.unwrap_or(value.len());
    let said = value.get(..length)?;
    // `api_key: there is no such setting` speaks of the name, and hides nothing.
    let is_word = gap && !quoted && !header && !said.bytes().any(|b| b.is_ascii_digit());
    if said.len() < 2 || is_word || said.starts_with('$') || EMPTY.contains(&said) {
        return None;
    }
    if !(surely || quoted && is_odd(name, said)) || is_place(name, said) {
        return None;
    }
    let start = text.len() - value.len();
    Some((start, start + length))
}

/// Where a value between quotes ends: at a quote with as many backslashes as stand before the first one. More of them belong to the
/// value.
fn end_of_quoted(value: &str, opening: &str) -> Option<usize> {
    let backslashes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let Some(quote) = opening.chars().rev().find(|c| *c != '\\') else {
        return value.find(['"', '\'', '\\', '\n']);
    };
    let own = backslashes(opening.trim_end_matches('\\').strip_suffix(quote).unwrap_or_default());
    let mut from = 0;
    while let Some(found) = value.get(from..)?.find([quote, '\n']) {
        let at = from + found;
        let before = value.get(..at)?;
        let own_here = backslashes(before) % (2 * (own + 1));
        if value.get(at..)?.starts_with('\n') {
            return Some(at);
        }
        if own_here == own {
            return Some(at - own);
        }
        from = at + 1;
    }
    None
}

/// Headers whose whole value is hidden, blanks and all.
fn is_header(name: &str) -> bool {
    ["authorization", "proxy-authorization"]
        .iter()
        .any(|n| name.eq_ignore_ascii_case(n))
        || is_cookie(name)
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie") || name.eq_ignore_ascii_case("set-cookie")
}

/// Where the value of such a header ends. Quotes stand around the values in it as well.
fn cookie(value: &str) -> Option<usize> {
    let is_end = |at: usize, c: char| match c {
        '\'' | '\\' | '\n' => true,
        '"' => {
            let inner = value.get(..at).unwrap_or_default();
            !inner.ends_with('=') && inner.matches('"').count() % 2 == 0
        }
        _ => false,
    };
    value.char_indices().find(|(at, c)| is_end(*at, *c)).map(|(at, _)| at)
}

/// Returns true for a quoted value that is one of access, where the name may also be that of a token of a text: `token='…'`.
fn is_odd(name: &str, value: &str) -> bool {
    let is_mixed = value.bytes().any(|b| b.is_ascii_digit()) && value.bytes().any(|b| b.is_ascii_alphabetic());
    let names_key = name.to_ascii_lowercase().ends_with("key");
    known::is_hidden(value, false) && (is_mixed || value.len() >= 20) && !(names_key && value.len() < 16)
}
