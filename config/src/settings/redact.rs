//! Hiding secrets where settings, commands, environments and texts are shown or stored.
//!
//! By name (`WANDB_API_KEY=…`, `--token …`, `{api_key: …}`) and by value: logins and signatures in URLs, addresses of
//! webhooks, what looks like a token (`hf_…`, `sk-…`, `ghp_…`) or a private key, and values that this process was given under the
//! name of a secret. What is hidden becomes `***`.

mod known;
mod lines;
mod shapes;
mod text;
mod tree;

pub use known::{know_secret, know_values, known_secrets};
pub use lines::{LineRedactor, redact_lines};
pub use text::{redact_text, redacted};
pub use tree::redacted_yaml;

/// Words that make a name secret.
const SECRET: [&str; 12] = [
    "secrets",
    "passwords",
    "passwd",
    "passphrase",
    "passphrases",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "cookies",
    "webhook",
    "webhooks",
];

/// Text before a last `pass` that is one through data, and before a last `pwd` that is a working directory.
const HARMLESS_PASS: [&str; 13] = [
    "forward", "backward", "first", "second", "single", "one", "two", "multi", "num", "max", "per", "full", "by",
];
const HARMLESS_PWD: [&str; 12] = [
    "old", "init", "initial", "orig", "original", "start", "work", "working", "current", "previous", "prev", "last",
];

/// Text before `key` where the name only names a column or a field: `prompt_key`, `image_key`.
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

/// Text before `token` where it is one of a text: `pad_token`, `max_token`.
const OF_TEXT: [&str; 14] = [
    "pad", "eos", "bos", "unk", "cls", "sep", "mask", "max", "min", "per", "special", "stop", "image", "video",
];

/// Words that make a key or a token secret beyond doubt, before it: `api_key`, `hf_token`.
const OF_ACCESS: [&str; 21] = [
    "api",
    "access",
    "private",
    "secret",
    "signing",
    "encryption",
    "license",
    "account",
    "wandb",
    "hf",
    "hub",
    "huggingface",
    "auth",
    "bearer",
    "github",
    "gitlab",
    "slack",
    "session",
    "refresh",
    "service",
    "swanlab",
];

/// The value, or `***` where the name looks like a secret's. What looks like a secret inside the value is hidden as well.
pub fn redact(name: &str, value: &str) -> String {
    if is_secret(name) && !value.is_empty() && value != "null" {
        return "***".to_owned();
    }
    redact_text(value)
}

/// A word of a command: `key=secret` and `--key=secret` without the secret.
pub fn redact_word(word: &str) -> String {
    match word.split_once('=') {
        Some((key, value)) if !key.contains("://") => format!("{key}={}", redact(key, value)),
        _ => redact_text(word),
    }
}

/// A command: each word by itself, and the word after `--token`.
pub fn redact_words(words: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len());
    let mut named = false;
    for word in words {
        out.push(match named && !word.starts_with('-') && !word.is_empty() {
            true => "***".to_owned(),
            false => redact_word(word),
        });
        named = word.starts_with('-') && !word.contains('=') && is_secret(word);
    }
    out
}

/// From now on [`redact_text`] hides what [`redact_words`] hides of a command, wherever it stands: a trainer prints its arguments.
pub fn know_words(words: &[String]) {
    let assigned = words.iter().filter_map(|word| word.split_once('='));
    let named = words.windows(2).filter_map(|two| match two {
        [name, value] if name.starts_with('-') && !name.contains('=') && !value.starts_with('-') => {
            Some((name.as_str(), value.as_str()))
        }
        _ => None,
    });
    for (name, value) in assigned.chain(named) {
        know_secret(name, value.trim_matches(['"', '\'']));
    }
}

fn is_secret(name: &str) -> bool {
    let words = words(name);
    ends_as_password(name)
        || words.iter().enumerate().any(|(at, word)| {
            let word = word.as_str();
            let before = at.checked_sub(1).and_then(|b| words.get(b)).map_or("", String::as_str);
            let last = at + 1 == words.len();
            SECRET.contains(&word)
                || has_secret_end(word)
                || matches!(word, "key" | "pat") && !HARMLESS.contains(&before)
                // The socket of an agent (`SSH_AUTH_SOCK`) is a path.
                || word == "auth" && words.get(at + 1).is_none_or(|next| next != "sock")
                || word == "token" && is_access_token(&words, at, before)
                || last && has_token_end(word)
                || matches!(word, "keys" | "tokens") && OF_ACCESS.contains(&before)
                || last && word == "keys" && is_in_capitals(name) && !HARMLESS.contains(&before)
        })
}

/// `PGPASSWORD`, `CLIENTSECRET`, `OPENAI_APIKEY`, `apikeys`.
fn has_secret_end(word: &str) -> bool {
    ["secret", "password", "apikey", "apikeys"]
        .iter()
        .any(|end| word.ends_with(end))
}

/// `MYTOKEN`, but not `eostoken` or `subtoken`.
fn has_token_end(word: &str) -> bool {
    let before = word.strip_suffix("token").unwrap_or_default();
    !before.is_empty() && !OF_TEXT.contains(&before) && !matches!(before, "sub" | "num" | "next")
}

/// `DB_PASS` and `MYSQL_PWD`, but not `BYPASS`, `forward_pass`, `PWD`, `env.PWD` or `OLDPWD`.
fn ends_as_password(name: &str) -> bool {
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    let words = words(last.into_iter().next().unwrap_or_default());
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [.., before, "pass"] => !HARMLESS_PASS.contains(before),
        ["pass"] => true,
        [.., before, "pwd"] => !HARMLESS_PWD.contains(before),
        _ => false,
    }
}

/// A variable of several words: `DB_PASS`.
fn is_in_capitals(name: &str) -> bool {
    name.contains('_') && !name.contains(|c: char| c.is_ascii_lowercase())
}

/// `max_token_len` and `pad_token` count tokens of a text; `TOKEN` and `hf_token_file` do not.
fn is_access_token(words: &[String], at: usize, before: &str) -> bool {
    OF_ACCESS.contains(&before) || at + 1 == words.len() && !OF_TEXT.contains(&before)
}

/// Returns true if a name in the midst of a text is a secret's: only what is one beyond doubt.
fn is_surely_secret(name: &str) -> bool {
    let words = words(name);
    let in_capitals = is_in_capitals(name);
    let is_variable = !name.contains(|c: char| c.is_ascii_lowercase());
    in_capitals && ends_as_password(name)
        || words.iter().enumerate().any(|(at, word)| {
            let word = word.as_str();
            let before = at.checked_sub(1).and_then(|b| words.get(b)).map_or("", String::as_str);
            let last = at + 1 == words.len();
            matches!(
                word,
                "secrets"
                    | "passwords"
                    | "passwd"
                    | "passphrase"
                    | "passphrases"
                    | "credential"
                    | "credentials"
                    | "authorization"
            ) || has_secret_end(word)
                || matches!(word, "key" | "keys" | "pat" | "token") && OF_ACCESS.contains(&before)
                || last && is_variable && has_token_end(word)
                || last && in_capitals && matches!(word, "key" | "token" | "pat" | "auth") && !OF_TEXT.contains(&before)
                || last && in_capitals && word == "keys" && !HARMLESS.contains(&before)
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

#[cfg(test)]
mod tests {
    use super::{redact, redact_text, redact_words};

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
            "api_keys",
            "Authorization",
            "DB_PASS",
            "PASS",
            "MYSQL_PWD",
            "env.DB_PWD",
            "mysqlPwd",
            "MYTOKEN",
            "MY_KEYS",
            "MY_SECRETS",
            "DB_PASSWORDS",
            "CLIENTSECRET",
            "OPENAI_APIKEYS",
        ] {
            assert_eq!(redact(name, "hush"), "***", "{name}");
        }
        for name in [
            "tokenizer",
            "actor.ppo_max_token_len_per_gpu",
            "pad_token",
            "MAX_TOKENS",
            "data.prompt_key",
            "reward_fn_key",
            "monkey",
            "PATH",
            "author",
            "gang.gpus",
            "keys",
            "COMPASS",
            "BYPASS",
            "SSH_ASKPASS",
            "forward_pass",
            "pass_rate",
            "val/pass@8",
            "PWD",
            "OLDPWD",
            "env.PWD",
            "supervisor.env.OLDPWD",
            "HYDRA_ORIG_PWD",
            "SSH_AUTH_SOCK",
            "TOKENIZERS_PARALLELISM",
            "NUM_TOKENS",
            "TOTAL_TOKENS",
            "total_tokens",
            "eostoken",
            "batch_keys",
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

    #[test]
    fn values_that_are_secrets_are_hidden_by_their_shape() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        for secret in [
            "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
            "sk-proj-abcdEFGH1234abcdEFGH1234",
            "sk-1234567890abcdefghij",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "github_pat_11ABCDEFG0abcdefghij_klmnopqrst",
            "AKIAIOSFODNN7EXAMPLE",
            "xoxb-123456789012-abcdefGHIJKL",
            "xoxb-12345678",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        ] {
            for text in [
                secret.to_owned(),
                format!("a {secret} b"),
                format!("x='{secret}'"),
                format!("{{\"a\": \"{secret}\"}}"),
                format!("http://host/?q={secret}&r=1"),
                format!("http://host/%3Fq%3D{secret}"),
                format!("for \\n{secret}\\n"),
                format!("\\u0027{secret}\\u0027, \\x27{secret}"),
                format!("\x1b[1;31m{secret}\x1b[0m and \\x1b[33m{secret}\\x1b[0m"),
            ] {
                let shown = redact_text(&text);
                assert!(!shown.contains(secret) && shown.contains("***"), "{text}: {shown}");
                assert_eq!(redact_text(&shown), shown, "a second time changes nothing");
            }
        }
        for (text, shown) in [
            ("x_ghp_ABCDEFGHIJKLMNOPqrst1234", "x_***"),
            (r"https:\/\/user:passw0rd@host\/x", r"https:\/\/***@host\/x"),
            ("{'password': b'passw0rd'}", "{'password': b'***'}"),
            ("sent Bearer abcdefghijklmnop1234567 to it", "sent Bearer *** to it"),
            (
                "the Bearer authentication-scheme is missing",
                "the Bearer authentication-scheme is missing",
            ),
            (
                "flask-sk-learn, task-abcdefghijklmnopqrstu",
                "flask-sk-learn, task-abcdefghijklmnopqrstu",
            ),
        ] {
            assert_eq!(redact_text(text), shown);
        }
        assert_eq!(redact_text(&format!("wandb login {hex} now")), "wandb login *** now");
        assert_eq!(redact_text(&format!("commit {hex}")), format!("commit {hex}"));
    }

    #[test]
    fn a_secret_of_a_command_is_hidden_wherever_it_stands() {
        super::know_words(
            &[
                "--api-key",
                "k3y-of-Mine-zz",
                "--hub_token=t0ken-of-Mine",
                "--epochs",
                "3",
                "--key",
            ]
            .map(str::to_owned),
        );
        let said = "login with k3y-of-Mine-zz failed; args --hub_token t0ken-of-Mine --epochs 3";
        assert_eq!(
            redact_text(said),
            "login with *** failed; args --hub_token *** --epochs 3"
        );
    }

    #[test]
    fn addresses_that_let_anybody_in_are_hidden() {
        for (text, shown) in [
            (
                "https://hooks.slack.com/services/T0/B0/xyz",
                "https://hooks.slack.com/***",
            ),
            (
                "to https://discord.com/api/webhooks/1/abc, then",
                "to https://discord.com/api/webhooks/***, then",
            ),
            (
                "https://tok3n-of-a-person-0123@github.com/x",
                "https://***@github.com/x",
            ),
            ("redis://:p/w@h:6379/0", "redis://***@h:6379/0"),
            ("ssh://git@host/x", "ssh://git@host/x"),
            (
                "s3://b/k?X-Amz-Signature=abc123&y=1",
                "s3://b/k?X-Amz-Signature=***&y=1",
            ),
            ("Authorization: Bearer abc.def-123456", "Authorization: ***"),
            (
                "curl -H 'Authorization: Basic dXNlcjpwdw=='",
                "curl -H 'Authorization: ***'",
            ),
            ("env={WANDB_API_KEY: hush1,A:b}", "env={WANDB_API_KEY: ***,A:b}"),
            (
                r#"{\"api_key\": \"hush\", \"b\": 1}"#,
                r#"{\"api_key\": \"***\", \"b\": 1}"#,
            ),
            ("export HF_TOKEN=hush; python x", "export HF_TOKEN=***; python x"),
            ("MYTOKEN=hush DB_PASS=hush b", "MYTOKEN=*** DB_PASS=*** b"),
            ("MYSQL_PWD=hush MY_KEYS=hush,", "MYSQL_PWD=*** MY_KEYS=***,"),
            ("MY_SECRETS=hush PWD=/a/b", "MY_SECRETS=*** PWD=/a/b"),
        ] {
            assert_eq!(redact_text(text), shown);
        }
        for plain in [
            "trainer.default_local_dir: a directory is needed",
            "/ckpt/sk-qwen7b-grpo-v2/global_step_4",
            "data.prompt_key=prompt, token_level=3",
            "the password: it is not said",
            "a.api_key: there is no such setting",
            "https://host:8265/x@y and C:\\x",
            "ask-the-1234567890abcdefghij",
            "PASS: 12 of 12, TOTAL_TOKENS=123456 OLDPWD=/a1 BYPASS=yes1",
            "NUM_TOKENS: 4096, SSH_AUTH_SOCK=/run/agent.1, the token: a1",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }

    #[test]
    fn a_command_hides_the_word_after_a_secret_flag() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let shown = redact_words(&words(
            "x --api-key hush --max-tokens 5 --token --flag -v a=1 +env.HF_TOKEN=hush",
        ));
        assert_eq!(
            shown.join(" "),
            "x --api-key *** --max-tokens 5 --token --flag -v a=1 +env.HF_TOKEN=***"
        );
    }
}
