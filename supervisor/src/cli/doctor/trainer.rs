//! The trainer's side: scalars that people read otherwise than the trainer, the interpreter, verl's version.

use super::{Check, Health};
use crate::prepare::Configured;
use crate::render::one_line;
use camino::Utf8Path;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use supervise_config::{Value, parse_scalar};

/// An interpreter has this long to say a version.
const PATIENCE: Duration = Duration::from_secs(30);
/// Suspicious scalars that are listed.
const LISTED: usize = 20;
const ASK: &str = "import sys,importlib.metadata as m\n\
def v(n):\n    try: return m.version(n)\n    except Exception: return '-'\n\
print(sys.version.split()[0], v('verl'), v('torch'), v('ray'))";

/// Scalars of a YAML that are not what they look like.
pub(super) fn scalars(file: &Utf8Path) -> Vec<Check> {
    let Ok(text) = std::fs::read_to_string(file) else {
        return Vec::new();
    };
    let mut found: Vec<Check> = text
        .lines()
        .enumerate()
        .filter_map(|(n, line)| Some((n + 1, suspicious(line)?)))
        .map(|(n, what)| Check::new("yaml", Health::Warning, format!("{file}:{n}: {what}")))
        .take(LISTED)
        .collect();
    if found.is_empty() {
        found.push(Check::new(
            "yaml",
            Health::Ok,
            format!("{file}: no scalar that is read otherwise than it looks"),
        ));
    }
    found
}

/// What is doubtful about the plain scalar of a line.
fn suspicious(line: &str) -> Option<String> {
    let (key, rest) = line.split_once(": ")?;
    let plain = rest.split(" #").next().unwrap_or(rest).trim();
    if key.trim_start().starts_with('#')
        || plain.is_empty()
        || plain.starts_with(['\'', '"', '[', '{', '&', '*', '|', '>', '!', '#'])
    {
        return None;
    }
    let key = key.trim().trim_start_matches("- ");
    let value = parse_scalar(plain).ok()?;
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    match &value {
        Value::Bool(b) if !plain.eq_ignore_ascii_case("true") && !plain.eq_ignore_ascii_case("false") => Some(format!(
            "`{key}: {plain}` is read as {b}: write {b}, or quote it if the word is meant"
        )),
        Value::Int(n) if plain.contains(':') => Some(format!(
            "`{key}: {plain}` is read as the number {n}: quote it, or write a unit"
        )),
        Value::Float(n) if plain.contains(':') => Some(format!("`{key}: {plain}` is read as the number {n}: quote it")),
        Value::Int(n) if plain.len() > 1 && plain.starts_with('0') && digits(plain) => Some(format!(
            "`{key}: {plain}` is read as the number {n}: leading zeros mean octal here, or are dropped"
        )),
        Value::Str(_) if looks_numeric(plain) => Some(format!(
            "`{key}: {plain}` is read as text, not as a number: write it in another way (1.0e-5)"
        )),
        _ => None,
    }
}

/// A number with an exponent or separators, as a person writes it.
fn looks_numeric(text: &str) -> bool {
    let plain = text.replace([',', '_'], "");
    plain.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-' || c == '+') && plain.parse::<f64>().is_ok()
}

/// Asks the command's interpreter which verl it would start.
pub(super) fn interpreter(command: &[String], configured: &Configured) -> Vec<Check> {
    let is_python = |w: &&String| {
        let name = w.rsplit('/').next().unwrap_or(w);
        name.strip_prefix("python")
            .is_some_and(|v| v.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    let Some(python) = command.iter().find(is_python) else {
        return vec![Check::new(
            "interpreter",
            Health::Note,
            "the command names no python: verl's version is not known",
        )];
    };
    let mut ask = Command::new(python);
    ask.arg("-c")
        .arg(ASK)
        .envs(&configured.settings.env)
        .current_dir(&configured.cwd);
    match output(ask) {
        Ok(text) => vec![said(python, &text)],
        Err(why) => vec![Check::new("interpreter", Health::Warning, format!("{python}: {why}"))],
    }
}

fn said(python: &str, text: &str) -> Check {
    let mut words = text.split_whitespace();
    let mut next = || words.next().unwrap_or("-").to_owned();
    let (version, verl, torch, ray) = (next(), next(), next(), next());
    if verl == "-" {
        return Check::new(
            "interpreter",
            Health::Warning,
            format!("{python} is Python {version}, and verl is not installed in it"),
        );
    }
    let text = format!("{python} is Python {version} with verl {verl}, torch {torch}, ray {ray}");
    let known = verl.starts_with("0.9.");
    Check::new(
        "interpreter",
        if known { Health::Ok } else { Health::Note },
        if known {
            text
        } else {
            text + "; checkpoints and lines are known of verl 0.9"
        },
    )
}

/// A program's output, or why there is none. It is ended when it takes too long.
fn output(mut command: Command) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("it cannot be started: {e}"))?;
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // Nothing more can be done about one that does not end.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not answer within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    let mut text = String::new();
    if let Some(out) = child.stdout.take() {
        out.take(4096).read_to_string(&mut text).map_err(|e| e.to_string())?;
    }
    Ok(one_line(&text, 300))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_that_are_not_what_they_look_like_are_told() {
        for (line, says) in [
            ("  shuffle: yes", "read as true"),
            ("  timeout: 1:30:00", "read as the number 5400"),
            ("  mode: off  # switch", "read as false"),
        ] {
            assert!(
                suspicious(line).is_some_and(|w| w.contains(says)),
                "{line}: {:?}",
                suspicious(line)
            );
        }
        for line in [
            "  lr: 1.0e-5",
            "  a: true",
            "  b: 'yes'",
            "# c: yes",
            "  d: [yes]",
            "  name: gsm8k",
            "  e: 17",
            "f:",
        ] {
            assert_eq!(suspicious(line), None, "{line}");
        }
    }

    #[test]
    fn an_interpreter_that_is_none_is_told() {
        let mut ask = Command::new("sh");
        ask.args(["-c", "echo 3.12.1 0.9.1 2.11.0 -"]);
        let text = output(ask).unwrap();
        assert_eq!(said("python3", &text).health, Health::Ok);
        assert_eq!(said("python3", "3.12.1 - - -").health, Health::Warning);
        let mut bad = Command::new("sh");
        bad.args(["-c", "exit 3"]);
        assert!(output(bad).unwrap_err().contains("ended with"));
    }
}
