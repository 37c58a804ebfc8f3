//! Logins passed to `curl`: `-u user:password`, `--user 'user:password'`, `-uuser:password`.

use super::values::ends;

const LONG: [&str; 2] = ["--user", "--proxy-user"];
/// Options without a value, which may precede `u` in one word.
const FLAGS: &str = "#0123469BGILMNOSafgijklnpqsvR";

/// Hides the logins of `curl` commands. Returns `None` if there are none.
pub(super) fn hide_logins(text: &str) -> Option<String> {
    let curl = text.find("curl")?;
    let mut out = String::new();
    let (mut kept, mut from) = (0, curl);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find('-')).map(|at| from + at) {
        let Some((start, end)) = login(text, at) else {
            from = at + 1;
            continue;
        };
        out.push_str(text.get(kept..start).unwrap_or_default());
        out.push_str("***");
        (kept, from) = (end, end);
    }
    (kept > 0).then(|| out + text.get(kept..).unwrap_or_default())
}

/// The range of the login that the option at this offset takes.
fn login(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let before = text.get(..at)?;
    if !before.ends_with(|c: char| c.is_whitespace() || is_quote(c) || matches!(c, '[' | ',')) {
        return None;
    }
    // Another command begins where the first one ends: `curl x | python -u a:b`.
    let command = before.get(before.rfind("curl")?..)?;
    if is_over(command) {
        return None;
    }
    let word = text.get(at..)?;
    let name = LONG.iter().find(|name| word.starts_with(**name)).map(|name| name.len());
    let (length, is_short) = match name {
        Some(length) => (length, false),
        None => {
            let letters = word.strip_prefix('-')?;
            let flags = letters.find(|c| !FLAGS.contains(c))?;
            letters.get(flags..)?.strip_prefix(['u', 'U'])?;
            (flags + 2, true)
        }
    };
    let after = word.get(length..)?;
    let value = after.trim_start_matches(|c: char| matches!(c, ' ' | '\t' | '=' | ',') || is_quote(c));
    let opening = after.get(..after.len() - value.len())?;
    if opening.is_empty() && !is_short {
        return None;
    }
    let length = match opening.chars().rev().find(|c| *c != '\\').filter(|c| is_quote(*c)) {
        Some(quote) => value.find([quote, '\n']),
        None => value.find(ends),
    };
    let said = value.get(..length.unwrap_or(value.len()))?;
    let said = said.trim_end_matches('\\');
    let (user, password) = said.split_once(':')?;
    let is_shown = said == ":" || password.starts_with("//") || is_user_of_container(user, password);
    let start = text.len() - value.len();
    (!is_shown && !user.starts_with('$') && !user.starts_with('-')).then_some((start, start + said.len()))
}

/// Whether another command begins in this text. Operators between quotes do not count.
fn is_over(command: &str) -> bool {
    let mut quote = None;
    let mut last = ' ';
    for c in command.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '|' | ';') => return true,
            (None, '&') if last == '&' => return true,
            (None, '\n') if last != '\\' => return true,
            _ => {}
        }
        last = c;
    }
    false
}

/// `--user 1000:1000`.
fn is_user_of_container(user: &str, group: &str) -> bool {
    [user, group]
        .iter()
        .all(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::redact_text;

    #[test]
    fn logins_of_curl_are_hidden() {
        for (text, shown) in [
            ("curl -u me:hush https://h/x", "curl -u *** https://h/x"),
            ("curl -s -u 'me:h u;sh' x", "curl -s -u '***' x"),
            ("curl -u \"me:it's\" x", "curl -u \"***\" x"),
            ("+ curl -fsSL -ume:hush x", "+ curl -fsSL -u*** x"),
            ("curl -sSu me:hush x", "curl -sSu *** x"),
            ("curl -u'me:hush' x", "curl -u'***' x"),
            ("curl --user me:hush x", "curl --user *** x"),
            ("curl --user='me:hush' x", "curl --user='***' x"),
            ("curl --proxy-user me:hush -u a:b", "curl --proxy-user *** -u ***"),
            ("curl -u sk_of_mine: https://h", "curl -u *** https://h"),
            ("['curl', '-u', 'me:hush', 'x']", "['curl', '-u', '***', 'x']"),
            (r#"{"cmd": "curl -u \"me:hush\" x"}"#, r#"{"cmd": "curl -u \"***\" x"}"#),
            ("curl -H 'A: b; c' -u me:hush x", "curl -H 'A: b; c' -u *** x"),
            ("curl \\\n  -u me:hush \\\n  x", "curl \\\n  -u *** \\\n  x"),
            ("curl x; curl -u me:hush y", "curl x; curl -u *** y"),
        ] {
            assert_eq!(redact_text(text), shown);
            assert_eq!(redact_text(shown), shown);
        }
        for plain in [
            "curl -o a:b https://h/-u/a:b",
            "curl x | python -u train:main",
            "curl x && docker run --user me:group y",
            "docker run --user 1000:1000 x",
            "python -u train:main",
            "curl -u $LOGIN:$PASSWORD x",
            "curl --user-agent a:b x",
            "curl -u me https://h:80/x",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }
}
