//! A person at a browser: Chromium, driven by its own driver (W3C WebDriver, JSON over HTTP).

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use super::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Key of an element in the driver's answers (W3C WebDriver, section 12).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A window.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Looks if one is installed; where none is, that is said, and is an error in CI.
    #[must_use]
    pub fn is_here() -> bool {
        let is_here = ["/usr/bin/chromium", "/usr/bin/chromedriver"]
            .iter()
            .all(|program| Path::new(program).exists());
        if !is_here {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no browser");
            let _ = std::io::stderr().write_all(b"skipped: there is no browser: tests/testbed/browser.sh install\n");
        }
        is_here
    }

    /// Opens one so many pixels wide; `None` where there is none.
    #[must_use]
    pub fn open(width: u32) -> Option<Browser> {
        if !Browser::is_here() {
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("/usr/bin/chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .find_map(|line| {
                let line = line.unwrap();
                let port = line.rsplit_once("successfully on port ")?.1.trim_end_matches('.');
                port.parse().ok()
            })
            .unwrap();
        // It goes on to speak, and must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let args = [
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            format!("--window-size={width},1200"),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let mut browser = Browser {
            driver,
            port,
            session: String::new(),
            _profile: profile,
        };
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = if method == "POST" {
            body.to_string()
        } else {
            String::new()
        };
        let (port, length) = (self.port, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).unwrap();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        answer["value"].clone()
    }

    /// The answer, which may be an error.
    fn try_in_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    fn in_session(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.try_in_session(method, path, body);
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }

    /// Opens an address.
    pub fn go(&self, url: &str) {
        self.in_session("POST", "/url", &json!({"url": url}));
    }

    /// The address of the page.
    #[must_use]
    pub fn url(&self) -> String {
        self.in_session("GET", "/url", &Value::Null)
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The text of an element as it is shown; `None`: there is none.
    #[must_use]
    pub fn text(&self, selector: &str) -> Option<String> {
        let script = "const e = document.querySelector(arguments[0]); return e && e.innerText";
        let said = self.in_session("POST", "/execute/sync", &json!({"script": script, "args": [selector]}));
        said.as_str().map(str::to_owned)
    }

    /// The result of a script's body in the page.
    #[must_use]
    pub fn script(&self, body: &str) -> Value {
        self.in_session("POST", "/execute/sync", &json!({"script": body, "args": []}))
    }

    /// Asks for a command of Chromium's own protocol.
    pub fn command(&self, name: &str, params: &Value) {
        self.in_session("POST", "/goog/cdp/execute", &json!({"cmd": name, "params": params}));
    }

    /// From now on pages ask for nothing at intervals: only the server's events renew them.
    pub fn without_intervals(&self) {
        self.before_each_page("window.setInterval = () => 0");
    }

    /// From now on a script is run in each page before its own.
    pub fn before_each_page(&self, source: &str) {
        self.command("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": source }));
    }

    /// Waits for an element: the page is renewed while it is looked at.
    fn element(&self, selector: &str) -> String {
        let wanted = json!({"using": "css selector", "value": selector});
        eventually(selector, || {
            let found = self.try_in_session("POST", "/element", &wanted);
            let none = found["error"] == "no such element";
            assert!(none || found["error"].is_null(), "{selector}: {found}");
            found[ELEMENT].as_str().map(str::to_owned)
        })
    }

    /// Clicks on an element, as a person does: it must be in sight.
    pub fn click(&self, selector: &str) {
        eventually(selector, || {
            let path = format!("/element/{}/click", self.element(selector));
            let value = self.try_in_session("POST", &path, &json!({}));
            // The page was renewed between the look and the click.
            let message = value["message"].as_str().unwrap_or_default();
            let stale =
                value["error"] == "stale element reference" || message.contains("does not belong to the document");
            assert!(value["error"].is_null() || stale, "{selector}: {value}");
            (!stale).then_some(())
        });
    }

    /// Writes into a field.
    pub fn write(&self, selector: &str, text: &str) {
        let path = format!("/element/{}/value", self.element(selector));
        self.in_session("POST", &path, &json!({"text": text}));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.session.is_empty() {
            self.in_session("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
