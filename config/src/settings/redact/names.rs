//! Classifies names: `WANDB_API_KEY` names a secret, `data.answer_key` a column.

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

/// Words before a final `pass` that means a pass over data, and before a final `pwd` that means a working directory.
const HARMLESS_PASS: [&str; 13] = [
    "forward", "backward", "first", "second", "single", "one", "two", "multi", "num", "max", "per", "full", "by",
];
const HARMLESS_PWD: [&str; 12] = [
    "old", "init", "initial", "orig", "original", "start", "work", "working", "current", "previous", "prev", "last",
];

/// Words before `key` that make it a column or a field: `prompt_key`, `image_key`.
const HARMLESS: [&str; 106] = [
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
    "answer",
    "question",
    "query",
    "instruction",
    "context",
    "text",
    "content",
    "chosen",
    "rejected",
    "completion",
    "target",
    "source",
    "index",
    "group",
    "cache",
    "dataset",
    "data",
    "column",
    "field",
    "feature",
    "metric",
    "score",
    "reward",
    "state",
    "dict",
    "weight",
    "param",
    "module",
    "layer",
    "attention",
    "value",
    "loss",
    "logits",
    "sample",
    "batch",
    "split",
    "truth",
    "solution",
    "extra",
    "info",
    "env",
    "task",
    "role",
    "name",
    "tool",
    "turn",
    "domain",
    "category",
    "difficulty",
    "language",
    "teacher",
    "student",
    "ref",
    "raw",
    "gt",
    "test",
    "train",
    "val",
    "eval",
    "best",
    "monitor",
    "agent",
    "config",
    "hash",
    "order",
    "lookup",
    "join",
    "foreign",
    "partition",
    "map",
    "template",
    "chat",
    "system",
    "assistant",
    "tokenizer",
    "mm",
    "pixel",
    "override",
    "load",
    "save",
    "hot",
    "qkv",
    "uid",
    "row",
    "json",
    "dictionary",
];

/// Words before `token` that make it part of a text: `pad_token`, `max_token`.
const OF_TEXT: [&str; 55] = [
    "pad",
    "eos",
    "bos",
    "unk",
    "cls",
    "sep",
    "mask",
    "max",
    "min",
    "per",
    "special",
    "stop",
    "image",
    "video",
    "boi",
    "eoi",
    "boa",
    "eoa",
    "audio",
    "think",
    "thinking",
    "fim",
    "prefix",
    "suffix",
    "middle",
    "start",
    "end",
    "newline",
    "space",
    "dummy",
    "draft",
    "decoder",
    "bonus",
    "tool",
    "im",
    "eot",
    "sot",
    "text",
    "new",
    "first",
    "last",
    "next",
    "prev",
    "response",
    "prompt",
    "total",
    "num",
    "input",
    "output",
    "every",
    "each",
    "sub",
    "expert",
    "global",
    "placeholder",
];

/// Words before `key` or `token` that make it certainly a secret: `api_key`, `hf_token`.
const OF_ACCESS: [&str; 65] = [
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
    "openai",
    "anthropic",
    "azure",
    "aws",
    "gcp",
    "google",
    "cohere",
    "comet",
    "mlflow",
    "neptune",
    "clearml",
    "modelscope",
    "dashscope",
    "deepseek",
    "tavily",
    "serper",
    "jina",
    "groq",
    "mistral",
    "client",
    "app",
    "bot",
    "jwt",
    "csrf",
    "login",
    "admin",
    "master",
    "ssh",
    "tls",
    "ssl",
    "rsa",
    "hmac",
    "deploy",
    "registry",
    "docker",
    "npm",
    "pypi",
    "webhook",
    "feishu",
    "dingtalk",
    "telegram",
    "discord",
    "personal",
    "security",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sense {
    Not,
    /// A secret, or the name of a column.
    Perhaps,
    /// A secret, whatever the value looks like.
    Surely,
}

pub(super) fn is_secret(name: &str) -> bool {
    sense(name) > Sense::Not
}

pub(super) fn sense(name: &str) -> Sense {
    if ends_as_password(name) {
        return Sense::Surely;
    }
    let words = words(name);
    let segment = name.rsplit('.').next().unwrap_or(name);
    let begins = words.len() - self::words(segment).len();
    let is_variable = !segment.contains(|c: char| c.is_ascii_lowercase());
    let of_word = |(at, word): (usize, &String)| {
        let word = word.as_str();
        let before = at.checked_sub(1).and_then(|b| words.get(b)).map_or("", String::as_str);
        // The word before it in the same part of a dotted name.
        let own = if at > begins { before } else { "" };
        let last = at + 1 == words.len();
        let surely = SECRET.contains(&word)
            || has_secret_end(word)
            // An agent's socket (`SSH_AUTH_SOCK`) is a path.
            || word == "auth" && words.get(at + 1).is_none_or(|next| next != "sock")
            || matches!(word, "key" | "keys" | "pat" | "token" | "tokens") && OF_ACCESS.contains(&before)
            || last && word == "keys" && is_in_capitals(name) && !HARMLESS.contains(&own);
        let perhaps = matches!(word, "key" | "pat") && ends_as_key(&words, at) && !HARMLESS.contains(&own)
            || word == "token" && last && !OF_TEXT.contains(&own)
            || last && has_token_end(word);
        let is_alone = own.is_empty() && (word == "token" || begins == 0);
        match (surely, perhaps) {
            (true, _) => Sense::Surely,
            (false, true) if is_alone || is_variable => Sense::Surely,
            (false, true) => Sense::Perhaps,
            (false, false) => Sense::Not,
        }
    };
    words.iter().enumerate().map(of_word).max().unwrap_or(Sense::Not)
}

/// `SIGNING_KEY`, `MY_KEY_2`, `KEY_ID`, but not `key_value_heads` or `key_proj`.
fn ends_as_key(words: &[String], at: usize) -> bool {
    let is_end = |word: &String| {
        matches!(word.as_str(), "id" | "pem" | "base64" | "b64" | "hex") || word.bytes().all(|b| b.is_ascii_digit())
    };
    words.iter().skip(at + 1).all(is_end)
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

pub(super) fn is_surely_secret(name: &str) -> bool {
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
                    | "cookie"
            ) || has_secret_end(word)
                || matches!(word, "key" | "keys" | "pat" | "token") && OF_ACCESS.contains(&before)
                || last && is_variable && has_token_end(word)
                || last
                    && in_capitals
                    && matches!(word, "key" | "token" | "pat" | "auth")
                    && !OF_TEXT.contains(&before)
                    && !(word == "key" && HARMLESS.contains(&before))
                || last && in_capitals && word == "keys" && !HARMLESS.contains(&before)
        })
}

/// Splits a name into lower-case words: `WANDB_API_KEY`, `apiKey`, `a.b-c`.
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
