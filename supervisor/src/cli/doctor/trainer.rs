//! Checks the trainer: YAML values that people misread, the interpreter, the trainer's version.

use super::{Check, Health};
use crate::path_access;
use crate::prepare::{self, DiscoveredCommand};
use crate::render::one_line;
use crate::render::plan::interpreter as described;
use camino::Utf8Path;
use supervise_config::{ConfigValue, MAX_BYTES, parse_scalar};
use supervise_host::interpreter::PythonInfo;
use supervise_trainers::ReleaseSeries;

const LISTED: usize = 20;

/// Values of a YAML that are not what they look like.
pub(super) fn scalars(file: &Utf8Path) -> Vec<Check> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    let Ok((text, true)) = path_access::read(file, limit) else {
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

/// Doubts about the plain scalar in a line.
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
        ConfigValue::Bool(b) if !plain.eq_ignore_ascii_case("true") && !plain.eq_ignore_ascii_case("false") => Some(
            format!("`{key}: {plain}` is read as {b}: write {b}, or quote it if the word is meant"),
        ),
        ConfigValue::Int(n) if plain.contains(':') => Some(format!(
            "`{key}: {plain}` is read as the number {n}: quote it, or write a unit"
        )),
        ConfigValue::Float(n) if plain.contains(':') => {
            Some(format!("`{key}: {plain}` is read as the number {n}: quote it"))
        }
        ConfigValue::Int(n) if plain.len() > 1 && plain.starts_with('0') && digits(plain) => Some(format!(
            "`{key}: {plain}` is read as the number {n}: leading zeros mean octal here, or are dropped"
        )),
        ConfigValue::Str(_) if looks_numeric(plain) => Some(format!(
            "`{key}: {plain}` is read as text, not as a number: write it in another way (1.0e-5)"
        )),
        _ => None,
    }
}

/// A number with an exponent or separators, as people write it.
fn looks_numeric(text: &str) -> bool {
    let plain = text.replace([',', '_'], "");
    plain.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-' || c == '+') && plain.parse::<f64>().is_ok()
}

pub(super) fn interpreter(d: &DiscoveredCommand) -> Vec<Check> {
    let package = prepare::package(d);
    let mut checks = match prepare::asked(d) {
        Ok(said) => found(&said, package),
        Err(why) => vec![Check::new(
            "interpreter",
            Health::Note,
            format!("{package}'s version is not known: {why}"),
        )],
    };
    if let Some(version) = &d.sources.settings.trainer_version {
        let text = format!("{version}, as supervisor.trainer_version says");
        checks.push(Check::new(package, known(version), text));
    }
    checks
}

fn found(said: &PythonInfo, package: &'static str) -> Vec<Check> {
    let text = format!("{} is {}", said.program, described(said));
    let mut checks = vec![Check::new("interpreter", Health::Ok, one_line(&text, 600))];
    checks.push(match (said.version(), said.source()) {
        (Some(version), Some(source)) => {
            let more = match known(version) {
                Health::Ok => "",
                _ => "; its defaults and layouts are not known here: only what the configuration itself says is used",
            };
            Check::new(package, known(version), format!("{version} in {}{more}", source.at))
        }
        (_, Some(source)) => Check::new(package, Health::Note, format!("{} does not say its version", source.at)),
        (_, None) => Check::new(
            package,
            Health::Warning,
            format!("{} cannot import {package}", said.program),
        ),
    });
    checks
}

fn known(version: &str) -> Health {
    ReleaseSeries::of(version).map_or(Health::Note, |_| Health::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_host::interpreter::PackageSource;

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
    fn what_the_interpreter_says_of_verl_is_judged() {
        let said = |verl: Option<&str>| PythonInfo {
            absent: verl.is_none(),
            program: "/venv/bin/python3".to_owned(),
            python: "3.12.1".to_owned(),
            packages: [("torch".to_owned(), "2.11.0".to_owned())].into(),
            package: "verl".to_owned(),
            sources: [(
                "verl".to_owned(),
                verl.map(|v| PackageSource {
                    at: "/venv/verl".to_owned(),
                    version: Some(v.to_owned()),
                }),
            )]
            .into(),
        };
        let health = |verl| found(&said(verl), "verl").last().map(|c| c.health);
        assert_eq!(
            found(&said(None), "verl")[0].text,
            "/venv/bin/python3 is Python 3.12.1, torch 2.11.0"
        );
        assert_eq!(health(Some("0.9.1")), Some(Health::Ok));
        assert_eq!(health(Some("0.10.0")), Some(Health::Note));
        assert_eq!(health(Some("")), Some(Health::Note));
        assert_eq!(health(None), Some(Health::Warning));
    }
}
