//! Access to the pages with a token, stored in a file that only this user can read.

use crate::error::CliError;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName};
use camino::{Utf8Path, Utf8PathBuf};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::sync::Mutex;
use supervise_host::io_worker::{read_own, write_whole};

/// Length of a token, in hexadecimal digits.
const DIGITS: usize = 64;

#[derive(Debug)]
pub(super) struct Access {
    token: String,
    /// Name of the cookie. Browsers share cookies between all ports of a host.
    name: String,
    link: Mutex<Option<String>>,
    /// Included in the forms of pages: a request with it comes from a page that was read.
    pub(super) form_key: String,
    pub(super) file: Utf8PathBuf,
    pub(super) public_read: bool,
}

impl Access {
    /// Reads the existing token, so that browsers stay logged in, or makes a new one.
    pub(super) fn new(place: &Utf8Path, port: Option<u16>, public_read: bool) -> Result<Self, CliError> {
        let file = place.join("serve.token");
        let failed = |e: std::io::Error| CliError::environment(format!("{file}: the token cannot be kept: {e}"));
        let known = read_own(&file, DIGITS as u64 + 1).ok();
        let known = known.and_then(|bytes| String::from_utf8(bytes).ok());
        let known = known.map(|text| text.trim().to_owned()).filter(|t| is_token(t));
        let token = match known {
            Some(token) => token,
            None => {
                let token = random().map_err(failed)?;
                write_whole(&file, format!("{token}\n").as_bytes(), 0o600).map_err(failed)?;
                token
            }
        };
        let link = random().map_err(failed)?;
        Ok(Self {
            token,
            name: port.map_or_else(|| "supervise".to_owned(), |port| format!("supervise-{port}")),
            form_key: random().map_err(failed)?,
            link: Mutex::new(Some(link)),
            file,
            public_read,
        })
    }

    /// The key of the link, which works once.
    pub(super) fn link(&self) -> String {
        self.link.lock().ok().and_then(|l| l.clone()).unwrap_or_default()
    }

    /// Uses up the link. Returns true the first time.
    pub(super) fn take(&self, key: &str) -> bool {
        let Ok(mut link) = self.link.lock() else { return false };
        let is = link.as_ref().is_some_and(|l| same(l, key));
        if is {
            *link = None;
        }
        is
    }

    pub(super) fn is_token(&self, given: &str) -> bool {
        same(&self.token, given.trim())
    }

    pub(super) fn is_form_key(&self, given: &str) -> bool {
        same(&self.form_key, given)
    }

    /// Returns true if the request carries the token, as a cookie or a bearer token.
    pub(super) fn bears(&self, headers: &HeaderMap) -> bool {
        let cookie = texts(headers, COOKIE)
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().strip_prefix(self.name.as_str())?.strip_prefix('='))
            .any(|value| self.is_token(value));
        cookie || self.is_bearer(headers)
    }

    /// Returns true if the request carries a bearer token, which no browser sends on its own.
    pub(super) fn is_bearer(&self, headers: &HeaderMap) -> bool {
        texts(headers, AUTHORIZATION)
            .filter_map(|v| v.strip_prefix("Bearer "))
            .any(|v| self.is_token(v))
    }

    pub(super) fn cookie(&self) -> String {
        let Self { name, token, .. } = self;
        format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000")
    }
}

fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok())
}

fn is_token(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn random() -> std::io::Result<String> {
    let mut bytes = [0_u8; DIGITS / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    }))
}

/// Compares in constant time.
fn same(a: &str, b: &str) -> bool {
    let different = a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y));
    a.len() == b.len() && different == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_opens_once_and_the_token_as_cookie_or_bearer() {
        let dir = tempfile::tempdir().unwrap();
        let place = Utf8Path::from_path(dir.path()).unwrap();
        let access = Access::new(place, Some(8617), false).unwrap();
        let link = access.link();
        assert!(is_token(&link) && is_token(&access.token) && link != access.token);
        assert!(!access.take("") && !access.take(&access.token) && access.take(&link) && !access.take(&link));
        let with = |name, value: String| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        let token = access.token.clone();
        assert!(access.bears(&with(COOKIE, format!("a=b; supervise-8617={token}"))));
        assert!(access.bears(&with(AUTHORIZATION, format!("Bearer {token}"))));
        let other = format!("supervise-86170={token}");
        for wrong in ["", "supervise-8617=", "supervise-8617=x", "xsupervise-8617=1", &other] {
            assert!(!access.bears(&with(COOKIE, wrong.to_owned())), "{wrong}");
        }
        assert!(!access.bears(&with(AUTHORIZATION, format!("Bearer {}", &token[1..]))));
        assert!(Access::new(place, None, false).unwrap().is_token(&token), "it is kept");
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&access.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
