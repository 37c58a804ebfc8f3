//! Hiding secrets where settings and environments are shown or stored.

/// Words that make a name secret.
const SECRET: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "apikey",
    "auth",
];

/// What stands before `key` where the name only names a column or a field: `prompt_key`, `image_key`.
const HARMLESS: [&str; 20] = [
    "prompt",
    "response",
    "image",
    "images",
    "video",
    "videos",
    "audio",
    "audios",
    "messages",
    "tools",
    "thinking",
    "fn",
    "modality",
    "input",
    "output",
    "label",
    "sort",
    "primary",
    "public",
    "interaction",
];

/// The value, or `***` where the name looks like a secret's. A password inside a URL is hidden as well.
pub fn redact(name: &str, value: &str) -> String {
    if is_secret(name) && !value.is_empty() && value != "null" {
        return "***".to_owned();
    }
    hide_url_password(value)
}

fn is_secret(name: &str) -> bool {
    let words = words(name);
    words.iter().enumerate().any(|(at, word)| {
        let word = word.as_str();
        let harmless = at > 0 && HARMLESS.contains(&words[at - 1].as_str());
        SECRET.contains(&word)
            || matches!(word, "key" | "pat") && !harmless
            || word.ends_with("apikey")
            || word.ends_with("password")
    })
}

/// The words of a name, in lower case: `WANDB_API_KEY`, `apiKey`, `a.b-c`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && lower {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// `scheme://user:password@host` without user and password.
fn hide_url_password(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((login, _)) if login.contains(':') => format!("{scheme}://***{}", hide_url_password(&rest[login.len()..])),
        _ => format!(
            "{scheme}://{}{}",
            authority,
            hide_url_password(&rest[authority.len()..])
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for name in [
            "WANDB_API_KEY",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "env.OPENAI_APIKEY",
            "apiKey",
            "key",
            "PGPASSWORD",
            "wandb_key",
        ] {
            assert_eq!(redact(name, "hush"), "***", "{name}");
        }
        for name in [
            "tokenizer",
            "MAX_TOKENS",
            "data.prompt_key",
            "reward_fn_key",
            "monkey",
            "PATH",
            "author",
            "gang.gpus",
            "keys",
        ] {
            assert_eq!(redact(name, "shown"), "shown", "{name}");
        }
    }

    #[test]
    fn passwords_in_urls_are_hidden() {
        assert_eq!(redact("PROXY", "http://me:pw@host:80/x"), "http://***@host:80/x");
        assert_eq!(redact("PROXY", "http://host:80/x@y"), "http://host:80/x@y");
        assert_eq!(redact("P", "a http://u:p@h b://c:d@e"), "a http://***@h b://***@e");
    }
}
