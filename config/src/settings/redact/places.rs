//! Settings that say where a secret is stored: `password_file=/run/secrets/db`. Such a path is not a secret.

/// Whether the name ends like that of a path, and the value looks like a path.
pub(super) fn is_place(name: &str, value: &str) -> bool {
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or_default();
    let names_place = last.len() < name.len()
        && ["file", "filename", "path", "dir", "directory"]
            .iter()
            .any(|end| last.eq_ignore_ascii_case(end));
    names_place && (looks_like_path(value) || is_file(value))
}

/// Whether a value is a path. A secret in base64 may begin like one.
pub(super) fn is_path(value: &str) -> bool {
    let is_random = |part: &str| {
        part.len() >= 16
            && part.bytes().any(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b.is_ascii_uppercase())
            && part.bytes().any(|b| b.is_ascii_lowercase())
    };
    value.starts_with(['/', '~']) && !value.split('/').any(is_random)
        || value.starts_with("./")
        || value.starts_with("../")
}

/// Accepts `/a/b`, `./a`, `a/b`.
pub(super) fn looks_like_path(value: &str) -> bool {
    let is_plain = |part: &str| {
        let mixed = part.bytes().any(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b.is_ascii_uppercase())
            && part.bytes().any(|b| b.is_ascii_lowercase());
        !mixed || part.len() < 8
    };
    is_path(value)
        || value.contains('/')
            && !value.contains("://")
            && !value.contains(['+', '=', ' '])
            && value.split('/').all(is_plain)
}

/// Accepts `token.txt` and plain words.
fn is_file(value: &str) -> bool {
    let stem = value.rsplit_once('.').map_or(value, |(stem, _)| stem);
    !stem.is_empty()
        && stem.len() < 32
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && (stem.len() < value.len() || stem.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b)))
}

#[cfg(test)]
mod tests {
    use super::super::{know_secret, redact, redact_text, redact_words};

    #[test]
    fn places_of_secrets_keep_their_values() {
        for plain in [
            "password_file=/run/secrets/db",
            "password_file=path",
            "x --password-file conf/pw-1.txt --lr 1",
            "x --api-key-path=/etc/key1",
            "credentials_file: creds.json, SECRETS_DIR=/run/secrets",
            "'ssh_key_dir': '~/.ssh', \"client_secret_path\": \"a/b.json\"",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
        assert_eq!(redact("db.password_file", "/run/db"), "/run/db");
        let words = ["--password-file", "conf/pw.txt", "PASSWORD_FILE=/a"].map(str::to_owned);
        assert_eq!(redact_words(&words), words);
        know_secret("password_file", "conf/of-mine/pw.txt");
        assert_eq!(redact_text("open conf/of-mine/pw.txt"), "open conf/of-mine/pw.txt");
        for (text, shown) in [
            ("password_file=hush1", "password_file=***"),
            ("password_file='hush now 1'", "password_file='***'"),
            ("password=/run/db1", "password=***"),
        ] {
            assert_eq!(redact_text(text), shown);
        }
    }
}
