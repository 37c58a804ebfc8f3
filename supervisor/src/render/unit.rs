//! A systemd unit for one run: the template `systemd/supervise@.service` filled in.

use camino::Utf8PathBuf;
use std::fmt::Write as _;
use supervise_config::{redact, redact_words};

const TEMPLATE: &str = include_str!("../../../systemd/supervise@.service");

/// Parts of a unit.
#[derive(Debug, Clone)]
pub struct SystemdUnit {
    pub name: String,
    pub user: bool,
    /// Path of this program.
    pub program: Utf8PathBuf,
    /// Working directory, absolute.
    pub cwd: Utf8PathBuf,
    /// The trainer's YAML, absolute.
    pub config: Utf8PathBuf,
    /// Named settings files, absolute.
    pub settings: Vec<Utf8PathBuf>,
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The file for secrets, because everyone can read the unit: absolute.
    pub secrets: Utf8PathBuf,
}

/// The texts of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitTexts {
    pub unit: String,
    /// Content of [`SystemdUnit::secrets`], if there are any secrets.
    pub secrets: Option<String>,
}

/// Name of the variable for the Nth word of the command. The name marks its value as a secret.
const WORD: &str = "SECRET_WORD_";

/// Renders the unit and the file with its secrets.
///
/// # Errors
/// Names a path or a word that a unit cannot contain: it has a line break or another control character.
pub fn unit(u: &SystemdUnit) -> Result<UnitTexts, String> {
    let settings = u.settings.iter().flat_map(|file| ["--settings", file.as_str()]);
    let mut exec: Vec<String> = [u.program.as_str(), "run", u.config.as_str()]
        .into_iter()
        .chain(settings)
        .map(|word| quoted(word, true))
        .collect::<Result<_, _>>()?;
    if !u.command.is_empty() {
        exec.push(quoted("--", true)?);
    }
    let mut secrets = String::new();
    for (n, (word, shown)) in u.command.iter().zip(redact_words(&u.command)).enumerate() {
        exec.push(quoted(word, true)?);
        if *word != shown {
            let name = format!("{WORD}{}", n + 1);
            let _ = writeln!(secrets, "{name}={}", assigned(word));
            exec.pop();
            exec.push(format!("\"${{{name}}}\""));
        }
    }
    let (open, hidden): (Vec<_>, Vec<_>) = u.env.iter().partition(|(name, value)| redact(name, value) == *value);
    for (name, value) in hidden {
        plain(value)?;
        let _ = writeln!(secrets, "{name}={}", assigned(value));
    }
    let secrets = (!secrets.is_empty()).then_some(secrets);
    let mut out = String::new();
    for line in TEMPLATE.lines() {
        let key = line.split('=').next().unwrap_or_default();
        match key {
            // Comments about instances and system paths do not apply to this unit.
            _ if line.starts_with("# One run per")
                || line.starts_with("# The command stands")
                || line.starts_with("# `supervise install") => {}
            "Description" => {
                let _ = writeln!(
                    out,
                    "Description=supervise: fault-tolerant training of {}",
                    u.name.replace('%', "%%")
                );
            }
            "ExecStart" => {
                let _ = writeln!(out, "ExecStart={}", exec.join(" "));
            }
            "WorkingDirectory" => {
                let _ = writeln!(out, "WorkingDirectory={}", plain(u.cwd.as_str())?);
                environment(u, &open, secrets.is_some(), &mut out)?;
            }
            "StateDirectory" | "StateDirectoryMode" | "Environment" if u.user => {}
            _ if line.starts_with("# Services have no home") && u.user => {}
            "WantedBy" if u.user => out.push_str("WantedBy=default.target\n"),
            // A user's manager does not know these units.
            "After" | "Wants" if u.user => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Ok(UnitTexts { unit: out, secrets })
}

fn environment(u: &SystemdUnit, env: &[&(String, String)], secrets: bool, out: &mut String) -> Result<(), String> {
    out.push_str("# As it was in the shell that wrote this. Further variables, secrets too, belong into the file.\n");
    for (name, value) in env {
        let _ = writeln!(out, "Environment={}", quoted(&format!("{name}={value}"), false)?);
    }
    let dir = if u.user {
        "%h/.config/supervise"
    } else {
        "/etc/supervise"
    };
    let _ = writeln!(out, "EnvironmentFile=-{dir}/{}.env", u.name);
    if secrets {
        out.push_str("# Secrets of the command: whoever may read this unit may not read them.\n");
        let _ = writeln!(out, "EnvironmentFile={}", plain(u.secrets.as_str())?);
    }
    Ok(())
}

/// Quotes a value for an environment file, see systemd.exec(5).
fn assigned(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '`' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

/// Quotes a word, see systemd.syntax(7) and systemd.service(5): `%` starts a specifier and, in a command, `$` a
/// variable.
fn quoted(word: &str, in_command: bool) -> Result<String, String> {
    let word = plain(word)?.replace('\\', "\\\\").replace('"', "\\\"");
    let word = if in_command { word.replace('$', "$$") } else { word };
    Ok(format!("\"{word}\""))
}

fn plain(word: &str) -> Result<String, String> {
    match word.chars().any(char::is_control) {
        true => Err(format!("expected words of one line for a unit, found {word:?}")),
        false => Ok(word.replace('%', "%%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{ALL, SuperviseExitCode};

    fn demo(user: bool) -> SystemdUnit {
        SystemdUnit {
            name: "ppo".into(),
            user,
            program: "/opt/my tools/supervise".into(),
            cwd: "/home/x y".into(),
            config: "/home/x y/100%.yaml".into(),
            settings: vec!["/etc/my settings.yaml".into()],
            command: vec!["python3".into(), "a\"b\\c$d".into()],
            env: vec![("PATH".into(), "/a b:/c$d".into())],
            secrets: "/home/x y/ppo.secrets.env".into(),
        }
    }

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        let UnitTexts { unit: text, secrets } = unit(&demo(true)).unwrap();
        assert_eq!((secrets, text.contains("secrets.env")), (None, false));
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        has(
            r#"ExecStart="/opt/my tools/supervise" "run" "/home/x y/100%%.yaml" "--settings" "/etc/my settings.yaml" "--" "python3" "a\"b\\c$$d""#,
        );
        has("WorkingDirectory=/home/x y");
        has(r#"Environment="PATH=/a b:/c$d""#);
        has("WantedBy=default.target");
        assert!(!text.contains("StateDirectory") && !text.contains("%i"), "{text}");
        let text = unit(&demo(false)).unwrap().unit;
        assert!(
            text.contains("StateDirectory=supervise\n") && text.contains("WantedBy=multi-user.target"),
            "{text}"
        );
        assert!(!text.contains("%i"), "{text}");
        let broken = SystemdUnit {
            command: vec!["a\nExecStop=/bin/x".into()],
            ..demo(true)
        };
        assert!(unit(&broken).is_err());
    }

    #[test]
    fn secrets_stand_in_a_file_of_their_own() {
        let command = ["x", "--token", "hu\"s$h-1", "a=b", "+env.HF_TOKEN=hush-2"].map(str::to_owned);
        let texts = unit(&SystemdUnit {
            command: command.to_vec(),
            ..demo(true)
        })
        .unwrap();
        let exec = r#""--" "x" "--token" "${SECRET_WORD_3}" "a=b" "${SECRET_WORD_5}""#;
        assert!(texts.unit.contains(exec), "{}", texts.unit);
        assert!(
            texts.unit.contains("\nEnvironmentFile=/home/x y/ppo.secrets.env\n"),
            "{}",
            texts.unit
        );
        assert!(
            !texts.unit.contains("hush") && !texts.unit.contains("s$h"),
            "{}",
            texts.unit
        );
        let secrets = "SECRET_WORD_3=\"hu\\\"s\\$h-1\"\nSECRET_WORD_5=\"+env.HF_TOKEN=hush-2\"\n";
        assert_eq!(texts.secrets.as_deref(), Some(secrets));
    }

    #[test]
    fn the_unit_starts_again_after_what_another_start_may_mend() {
        let line = |key: &str| TEMPLATE.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        let codes = |key: &str| -> Vec<u8> { line(key).split(' ').map(|c| c.parse().unwrap()).collect() };
        let ended: Vec<u8> = ALL.iter().filter(|e| e.is_final()).map(|e| e.code()).collect();
        assert_eq!(codes("RestartPreventExitStatus="), ended);
        assert_eq!(
            codes("SuccessExitStatus="),
            [SuperviseExitCode::Stopped.code(), SuperviseExitCode::Terminated.code()]
        );
    }

    #[test]
    fn the_job_for_kubernetes_ends_after_the_same_codes_and_has_the_same_time_to_end() {
        let job = include_str!("../../../examples/kubernetes/job.yaml");
        let of = |text: &'static str, key: &str| text.lines().find_map(|l| l.trim().strip_prefix(key)).unwrap();
        let codes = of(job, "values: ").trim_matches(['[', ']']);
        let codes: Vec<u8> = codes.split(", ").map(|c| c.parse().unwrap()).collect();
        // A stopped run must stay stopped: Kubernetes would replace a pod that exits by itself, whatever its code.
        let ended = ALL.iter().filter(|e| e.is_final() || **e == SuperviseExitCode::Stopped);
        assert_eq!(codes, ended.map(|e| e.code()).collect::<Vec<u8>>());
        let pod = of(job, "terminationGracePeriodSeconds: ");
        assert_eq!(pod, of(TEMPLATE, "TimeoutStopSec="));
        let ray = include_str!("../../../examples/kubernetes/rayjob.yaml");
        assert_eq!(pod, of(ray, "terminationGracePeriodSeconds: "));
        assert!(ray.contains(&format!(
            "name: RAY_JOB_STOP_WAIT_TIME_S\n                  value: \"{pod}\""
        )));
    }
}
