//! Secrets in a text: known values, logins in URLs, webhook addresses, `name=secret`, `--name secret`, headers, tokens, private keys.

use super::flags::hide_flags;
use super::keys::hide_keys;
use super::known;
use super::logins::hide_logins;
use super::names::{Sense, is_secret, is_surely_secret, sense};
use super::places::{is_place, looks_like_path};
use super::shapes::hide_tokens;
use super::values::{EMPTY, ends};
use std::borrow::Cow;

/// Addresses that work without a login: the rest of the URL is the secret.
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
/// Parameters that only ever sign a URL, so that they are hidden outside one as well.
const SIGNED: [&str; 5] = [
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
    "x-goog-credential",
];
const SIGNATURES: [&str; 5] = ["sig", "signature", "token", "key", "auth"];
const BEARER: &str = "Bearer ";

/// Hides everything in the text that looks like a secret. Redacting twice changes nothing more.
pub fn redact_text(text: &str) -> String {
    redacted(text).into_owned()
}

/// Like [`redact_text`], but copies only if something is hidden: most printed lines have no secret.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut out = known::hide(text);
    // First, because later rules might hide the marks of a key.
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
    if let Some(hidden) = hide_logins(&out) {
        out = hidden.into();
    }
    if out.contains("</") {
        out = hide_elements(&out).into();
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

/// Hides the text after each mark; `secret` returns how many bytes.
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

/// Returns the length of the login that a URL begins with; 0: none, or nothing to hide.
fn login(address: &str) -> usize {
    let whole = address.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '`' | '<' | '>'));
    let whole = address.get(..whole.unwrap_or(address.len())).unwrap_or_default();
    let strict = whole.split(['/', '?', '#', ',']).next().unwrap_or_default();
    if let Some((login, _)) = strict.rsplit_once('@') {
        // A user name alone, as in `ssh://git@host`, is not a secret; a token in its place is.
        let hides = login != "***" && (login.contains(':') || login.len() >= 20);
        return if hides { login.len() } else { 0 };
    }
    // An unencoded password may contain a slash. Then the text in the port's place is not a number.
    let port = strict.rsplit_once(':').map(|(_, port)| port);
    let is_port = port.is_none_or(|p| p.is_empty() || p.bytes().all(|b| b.is_ascii_digit()) || p.ends_with(']'));
    match whole.rsplit_once('@') {
        Some((login, _)) if !is_port => login.len(),
        _ => 0,
    }
}

/// The same for a URL inside another one.
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

/// Returns the length of the token after `Bearer`; 0: it is a word of a sentence.
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

/// The range of the value after this sign, if its name is a secret's.
fn secret_after(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let before = without_color_at_end(text.get(..at)?.trim_end_matches([' ', '"', '\'', '\\']));
    let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
    let bare = before.get(..before.len() - name.len())?;
    // `ESC[31mpassword`
    let name = match bare.ends_with("\x1b[") {
        true => name.split_once('m').map_or(name, |(_, name)| name),
        false => name,
    };
    let in_url = bare.ends_with(['?', '&']);
    let lower = name.to_ascii_lowercase();
    let signed = SIGNED.iter().any(|end| lower.ends_with(end));
    let signs = in_url && SIGNATURES.contains(&lower.as_str()) || signed;
    let in_url = in_url || signed;
    let surely = signs || is_surely_secret(name) || name.starts_with("--") && super::is_option(name);
    if name.is_empty() || !(surely || is_secret(name) || lower == "pwd") {
        return None;
    }
    let after = without_color(text.get(at + 1..)?);
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
    // `api_key: there is no such setting` is about the name, so nothing is hidden.
    let is_word = gap && !quoted && !header && !said.bytes().any(|b| b.is_ascii_digit());
    if said.len() < 2 || is_word || said.starts_with('$') || EMPTY.contains(&said) {
        return None;
    }
    let assigned = !quoted && !gap && text.as_bytes().get(at) == Some(&b'=') && is_assigned(name, said);
    if !(surely || assigned || quoted && is_odd(name, said)) || is_place(name, said) {
        return None;
    }
    let start = text.len() - value.len();
    Some((start, start + length))
}

/// The end of a quoted value: a quote with as many backslashes as the opening one has. A quote with more of them belongs to the value.
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

/// Whether an unquoted value grants access: `token=Ab1-cd2-ef3`, but not `token=12` or `key=global_step_12`.
fn is_assigned(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_named = lower == "pwd" || lower.ends_with("token") || lower.ends_with("pwd") || lower.ends_with("_pass");
    let is_alone = lower == "pwd" || sense(name) == Sense::Surely;
    let is_mixed = value.bytes().any(|b| b.is_ascii_digit()) && value.bytes().any(|b| b.is_ascii_alphabetic());
    let is_long = value.len() >= 20 && !value.contains(['_', '-', '.', ':']);
    is_named
        && (is_alone || value.len() >= 16)
        && (is_mixed || is_long)
        && known::is_hidden(value, is_long)
        && !looks_like_path(value)
}

/// Removes the color escape at the start of a text: `ESC[31m`.
fn without_color(text: &str) -> &str {
    match text.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m')) {
        Some((numbers, rest)) if is_color(numbers) => rest,
        _ => text,
    }
}

fn without_color_at_end(text: &str) -> &str {
    let color = text.strip_suffix('m').and_then(|rest| rest.rsplit_once("\x1b["));
    match color {
        Some((rest, numbers)) if is_color(numbers) => rest,
        _ => text,
    }
}

fn is_color(numbers: &str) -> bool {
    numbers.bytes().all(|b| b.is_ascii_digit() || b == b';')
}

/// `<password>hush</password>`.
fn hide_elements(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((head, after)) = rest.split_once('>') {
        out.push_str(head);
        out.push('>');
        rest = after;
        let name = head.rsplit_once('<').map_or("", |(_, name)| name);
        let value = after.split_once("</").filter(|(_, end)| end.starts_with(name));
        if let Some((value, _)) = value
            && is_surely_secret(name)
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
            && value.len() > 1
            && !EMPTY.contains(&value)
        {
            out.push_str("***");
            rest = after.get(value.len()..).unwrap_or_default();
        }
    }
    out + rest
}

/// Whether a header's whole value is hidden, including blanks.
fn is_header(name: &str) -> bool {
    ["authorization", "proxy-authorization"]
        .iter()
        .any(|n| name.eq_ignore_ascii_case(n))
        || is_cookie(name)
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie") || name.eq_ignore_ascii_case("set-cookie")
}

/// The end of such a header's value. The values in it may be quoted too.
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

/// Whether a quoted value grants access if the name could also be that of a text token: `token='…'`.
fn is_odd(name: &str, value: &str) -> bool {
    let is_mixed = value.bytes().any(|b| b.is_ascii_digit()) && value.bytes().any(|b| b.is_ascii_alphabetic());
    let names_key = name.to_ascii_lowercase().ends_with("key");
    known::is_hidden(value, false) && (is_mixed || value.len() >= 20) && !(names_key && value.len() < 16)
}

#[cfg(test)]
mod tests {
    use super::redact_text;

    #[test]
    fn secrets_without_quotes_are_hidden() {
        for (text, shown) in [
            ("login with token=Ab1cd2ef3 failed", "login with token=*** failed"),
            ("token=abcdefghijklmnopqrstuvwx", "token=***"),
            ("GET /x?a=1&token=Ab1cd2ef3&b=2", "GET /x?a=1&token=***&b=2"),
            ("x?secret=hush1234&b=2", "x?secret=***&b=2"),
            ("secret=hush1234, password=hush1234", "secret=***, password=***"),
            ("my_token=0a1b2c3d4e5f6a7b8c9d", "my_token=***"),
            ("Uid=me;Pwd=Hush1234;x", "Uid=me;Pwd=***;x"),
            ("X-Amz-Signature=0a1b2c", "X-Amz-Signature=***"),
            (
                "h?X-Amz-Credential=AKIA/2024/us/s3/aws4&X-Amz-Signature=0a1b&y=1",
                "h?X-Amz-Credential=***&X-Amz-Signature=***&y=1",
            ),
            (
                r#""h\u0026X-Amz-Signature=0a1b2c\u0026y=1""#,
                r#""h\u0026X-Amz-Signature=***\u0026y=1""#,
            ),
            ("\x1b[31mpassword\x1b[0m=hush1", "\x1b[31mpassword\x1b[0m=***"),
            (
                "\x1b[1;31mtoken=\x1b[32mAb1cd2ef3\x1b[0m x",
                "\x1b[1;31mtoken=\x1b[32m***\x1b[0m x",
            ),
            (
                "<u>me</u><password>hush</password>",
                "<u>me</u><password>***</password>",
            ),
            (
                "{\"password\": \"ab\\\"cd\", \"x\": \"y\"}",
                "{\"password\": \"***\", \"x\": \"y\"}",
            ),
            (
                "{\"password\": \"ab\\\\\", \"x\": \"y\"}",
                "{\"password\": \"***\", \"x\": \"y\"}",
            ),
        ] {
            assert_eq!(redact_text(text), shown);
            assert_eq!(redact_text(shown), shown);
        }
    }

    #[test]
    fn ordinary_values_without_quotes_stay() {
        for plain in [
            "max_tokens=512 answer_key=Ground-Truth-1 pad_token=<pad> token=12 token=max",
            "eos_token_id=151645 num_tokens=12345678 token=12345678 token=1.5e-10",
            "tokenizer=/models/Qwen2.5-7B-Instruct tokenizer_path=Qwen/Qwen2.5-7B",
            "token=/run/secrets/tok1 token=conf/token1/file2 token=<|im_end|>",
            "key=global_step_12 best_key=eval_reward-2 pass=step_12345",
            "eos_token=endoftext1 image_token=image_pad_0001 token=the_next_token_of_this_text",
            "pwd=/a/b1/c2 PWD=/home/me1/x cwd=ab12345678 OLDPWD=/a1",
            "<token>Ab1cd2ef3</token> <answer>42</answer> <x>password</x>",
            "token=$HF_TOKEN1 token=${TOKEN1234} token=YOUR_TOKEN_1234",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }
}
