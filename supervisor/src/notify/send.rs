//! `supervise __notify`: the only code that starts a command or `curl` to notify someone.
//!
//! A separate process, because the command may be on a hung mount. Each target has a deadline, after which its
//! process is killed. Nothing has to wait for it: a final notification may still be on its way after the supervisor
//! has exited.

use super::{Notification, NotifyResult, NotifyTargets};
use crate::environment;
use crate::printer;
use crate::render::one_line;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, BufRead};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use supervise_config::redact_text;
use supervise_config::settings::WebhookShape;
use supervise_core::event::ExitStatus;
use supervise_host::process::capture::{CaptureCommand, CaptureError, CapturedOutput, capture};
use supervise_host::process::own_program;

const LIMIT: Duration = Duration::from_secs(30);
/// `curl` gives up before it would be killed, and says why.
const CURL_SECONDS: u32 = 25;
/// Bytes of output read.
const OUTPUT: usize = 64 << 10;
const NOTE: usize = 300;
/// Longest message that Discord takes, in characters, with some margin.
const DISCORD: usize = 1900;

/// An order for the process. Its URL is a secret, so it is passed through a pipe only.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotifyJob {
    pub ways: NotifyTargets,
    pub notice: Notification,
}

/// Builds the command line of the process: it reads a [`NotifyJob`] as one line and answers with a list of
/// [`NotifyResult`].
#[must_use]
pub fn command(exe: &OsStr) -> Command {
    let mut command = Command::new(own_program(Path::new(exe)));
    command
        .arg0(exe)
        .arg("__notify")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // Keep it from receiving the terminal's interrupt.
    command.stderr(Stdio::null()).process_group(0);
    command
}

/// Runs the process. Returns the exit code.
#[must_use]
pub fn helper() -> i32 {
    let mut line = String::new();
    let Ok(Ok(job)) = io::stdin()
        .lock()
        .read_line(&mut line)
        .map(|_| serde_json::from_slice(line.as_bytes()))
    else {
        return 1;
    };
    if let Ok(text) = serde_json::to_string(&send(&job)) {
        // The reader may have exited.
        drop(printer::out_bytes(text.as_bytes()));
    }
    0
}

/// Sends to every target, one after the other.
#[must_use]
pub fn send(job: &NotifyJob) -> Vec<NotifyResult> {
    let came = |to: &str, result: Result<String, String>| NotifyResult {
        to: to.to_owned(),
        arrived: result.is_ok(),
        note: one_line(&redact_text(&result.unwrap_or_else(|why| why)), NOTE),
    };
    let text = plain(&job.notice).to_string() + "\n";
    let by_command = job.ways.command.as_ref().map(|words| {
        let said = started(words, text.as_bytes());
        came(
            "command",
            said.map_err(|e| format!("{}: {e}", words.first().map_or("", |w| w))),
        )
    });
    let by_webhook = job.ways.webhook.as_ref().map(|address| {
        let said = post(address, &body(job.ways.shape, &job.notice));
        // The text may quote the URL, which is a secret.
        let hide = |text: String| text.replace(address.as_str(), "***");
        came("webhook", said.map(hide).map_err(hide))
    });
    by_command.into_iter().chain(by_webhook).collect()
}

fn started(words: &[String], input: &[u8]) -> Result<String, String> {
    let said = run(words, input).map_err(|e| e.to_string())?;
    let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match said.status {
        ExitStatus::Code(0) => Ok(last(&said.output)),
        status => Err(format!("it {}: {}", status.words(), last(&said.errors))),
    }
}

fn run(words: &[String], input: &[u8]) -> Result<CapturedOutput, CaptureError> {
    let env: Vec<(String, String)> = environment::own().into_iter().collect();
    capture(&CaptureCommand {
        input,
        argv: words,
        env: &env,
        cwd: ".",
        limit: LIMIT,
        output: OUTPUT,
        errors: NOTE,
        stop: None,
    })
}

/// URL and body are passed on standard input: process listings show neither.
fn post(address: &str, body: &str) -> Result<String, String> {
    let argv = ["curl", "-q", "--config", "-"].map(str::to_owned);
    let config = config(address, body);
    match run(&argv, config.as_bytes()) {
        Err(CaptureError::Start(e)) if e.kind() == io::ErrorKind::NotFound => {
            Err("curl is not on this machine, and a webhook needs it: install it, or use on_event.command".to_owned())
        }
        Err(e) => Err(format!("curl: {e}")),
        Ok(said) if said.status.is_success() => Ok(String::new()),
        Ok(said) => {
            let errors = String::from_utf8_lossy(&said.errors).trim().to_owned();
            Err(format!("curl {}: {errors}", said.status.words()))
        }
    }
}

fn config(address: &str, body: &str) -> String {
    let options = [
        ("url", address),
        ("proto", "=http,https"),
        ("request", "POST"),
        ("header", "Content-Type: application/json"),
        ("data-raw", body),
    ];
    let mut out = String::from("silent\nshow-error\nfail\ngloboff\n");
    for (name, value) in options {
        out.push_str(&format!("{name} = \"{}\"\n", quoted(value)));
    }
    out + &format!("connect-timeout = 10\nmax-time = {CURL_SECONDS}\n")
}

/// A quoted value for a `curl` config file.
fn quoted(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

/// The notification as a program gets it. A test is not an event of a run.
fn plain(notice: &Notification) -> Value {
    let mut value = json!(notice);
    if notice.test {
        value["event"] = json!("test");
    }
    value
}

fn body(shape: WebhookShape, notice: &Notification) -> String {
    let value = match shape {
        WebhookShape::Plain => plain(notice),
        WebhookShape::Slack => {
            // These three characters have a meaning there.
            let text = message(notice)
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            json!({ "text": text })
        }
        WebhookShape::Discord => {
            let text: String = message(notice).chars().take(DISCORD).collect();
            json!({ "content": text, "allowed_mentions": { "parse": [] } })
        }
    };
    value.to_string()
}

fn message(n: &Notification) -> String {
    let mut out = format!("run {} on {}: {}\n", n.run, n.host, n.text);
    let number = |what: &str, n: Option<u64>| n.map(|n| format!("{what} {n}"));
    let facts = [
        n.attempt.map(|a| format!("attempt {a}")),
        number("step", n.step),
        number("proven", n.proven),
        n.exit_code.map(|c| format!("exit code {c}")),
        n.root.clone(),
        Some(n.time.clone()),
    ];
    out.push_str(&facts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    for line in &n.todo {
        out.push_str(&format!("\n{line}"));
    }
    if n.left_out > 0 {
        out.push_str(&format!("\n({} events before it were not told)", n.left_out));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::WallMs;

    fn notice() -> Notification {
        super::super::trial("0123456789abcdef", "node-1", WallMs(0))
    }

    fn ways(command: &[&str]) -> NotifyTargets {
        NotifyTargets {
            command: Some(command.iter().map(|w| (*w).to_owned()).collect()),
            webhook: None,
            shape: WebhookShape::Plain,
        }
    }

    #[test]
    fn a_command_gets_the_event_on_its_input() {
        let ways = ways(&["cat"]);
        let came = send(&NotifyJob { ways, notice: notice() });
        assert!(came[0].arrived, "{came:?}");
        assert!(came[0].note.contains("\"event\":\"test\""), "{came:?}");
        assert_eq!(plain(&notice())["test"], true);
        let ended = Notification {
            test: false,
            ..notice()
        };
        assert_eq!(plain(&ended)["event"], "finished");
        assert!(plain(&ended).get("test").is_none());
    }

    #[test]
    fn one_that_fails_is_told_with_its_words() {
        let fails = ways(&["sh", "-c", "echo no such pager >&2; exit 3"]);
        let came = send(&NotifyJob {
            ways: fails,
            notice: notice(),
        });
        assert!(
            !came[0].arrived && came[0].note.contains("code 3: no such pager"),
            "{came:?}"
        );
        let missing = ways(&["no-such-program-here"]);
        let came = send(&NotifyJob {
            ways: missing,
            notice: notice(),
        });
        assert!(
            !came[0].arrived && came[0].note.contains("cannot be started"),
            "{came:?}"
        );
    }

    #[test]
    fn each_kind_of_webhook_gets_its_form() {
        let n = notice();
        let get = |shape| -> serde_json::Value { serde_json::from_str(&body(shape, &n)).unwrap() };
        assert_eq!(get(WebhookShape::Plain)["run"], "0123456789abcdef");
        assert!(get(WebhookShape::Slack)["text"].as_str().unwrap().contains("node-1"));
        assert!(
            get(WebhookShape::Discord)["content"]
                .as_str()
                .unwrap()
                .contains("node-1")
        );
    }

    #[test]
    fn the_configuration_of_curl_holds_what_it_must_and_cannot_be_left() {
        let text = config(
            "https://x.example/a",
            "{\"a\":\"b\\\\c\"}\nurl = \"file:///etc/passwd\"",
        );
        assert!(text.contains("url = \"https://x.example/a\"\n"));
        assert_eq!(text.lines().filter(|l| l.starts_with("url")).count(), 1, "{text}");
        assert!(
            text.contains(r#"data-raw = "{\"a\":\"b\\\\c\"}\nurl = \"file"#),
            "{text}"
        );
    }
}
