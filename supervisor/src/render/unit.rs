//! A systemd unit for one run: the template of `systemd/supervise@.service` with this run's lines in it.

use camino::Utf8PathBuf;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("../../../systemd/supervise@.service");

/// Parts of a unit.
#[derive(Debug, Clone)]
pub struct Unit {
    /// `supervise-NAME.service`.
    pub name: String,
    /// A user's own service.
    pub user: bool,
    /// This program.
    pub program: Utf8PathBuf,
    /// Working directory, absolute.
    pub cwd: Utf8PathBuf,
    /// The trainer's YAML, absolute.
    pub config: Utf8PathBuf,
    /// The command after `--`.
    pub command: Vec<String>,
    /// Variables that are set.
    pub env: Vec<(String, String)>,
}

/// The text of the unit.
///
/// # Errors
/// A path or a word with a line break or another control character, which no unit can hold: named.
pub fn unit(u: &Unit) -> Result<String, String> {
    let mut words = vec![u.program.as_str(), "run", u.config.as_str()];
    if !u.command.is_empty() {
        words.push("--");
        words.extend(u.command.iter().map(String::as_str));
    }
    let exec: Result<Vec<String>, String> = words.into_iter().map(|w| quoted(w, true)).collect();
    let mut out = String::new();
    for line in TEMPLATE.lines() {
        let key = line.split('=').next().unwrap_or_default();
        match key {
            // What it says of instances and of the system's places is not about this one.
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
                let _ = writeln!(out, "ExecStart={}", exec.clone()?.join(" "));
            }
            "WorkingDirectory" => {
                let _ = writeln!(out, "WorkingDirectory={}", plain(u.cwd.as_str())?);
                environment(u, &mut out)?;
            }
            "StateDirectory" | "StateDirectoryMode" | "Environment" if u.user => {}
            _ if line.starts_with("# Services have no home") && u.user => {}
            "WantedBy" if u.user => out.push_str("WantedBy=default.target\n"),
            // A user's manager knows no such units.
            "After" | "Wants" if u.user => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Ok(out)
}

fn environment(u: &Unit, out: &mut String) -> Result<(), String> {
    out.push_str("# As it was in the shell that wrote this. Further variables, secrets too, belong into the file.\n");
    for (name, value) in &u.env {
        let _ = writeln!(out, "Environment={}", quoted(&format!("{name}={value}"), false)?);
    }
    let dir = if u.user {
        "%h/.config/supervise"
    } else {
        "/etc/supervise"
    };
    let _ = writeln!(out, "EnvironmentFile=-{dir}/{}.env", u.name);
    Ok(())
}

/// A word in quotes, as systemd.syntax(7) and systemd.service(5) read it: `%` starts a specifier, `$` in a command a variable.
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
    use crate::exit::{ALL, Exit};

    fn demo(user: bool) -> Unit {
        Unit {
            name: "ppo".into(),
            user,
            program: "/opt/my tools/supervise".into(),
            cwd: "/home/x y".into(),
            config: "/home/x y/100%.yaml".into(),
            command: vec!["python3".into(), "a\"b\\c$d".into()],
            env: vec![("PATH".into(), "/a b:/c$d".into())],
        }
    }

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        let text = unit(&demo(true)).unwrap();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        has(r#"ExecStart="/opt/my tools/supervise" "run" "/home/x y/100%%.yaml" "--" "python3" "a\"b\\c$$d""#);
        has("WorkingDirectory=/home/x y");
        has(r#"Environment="PATH=/a b:/c$d""#);
        has("WantedBy=default.target");
        assert!(!text.contains("StateDirectory") && !text.contains("%i"), "{text}");
        let text = unit(&demo(false)).unwrap();
        assert!(
            text.contains("StateDirectory=supervise\n") && text.contains("WantedBy=multi-user.target"),
            "{text}"
        );
        assert!(!text.contains("%i"), "{text}");
        let broken = Unit {
            command: vec!["a\nExecStop=/bin/x".into()],
            ..demo(true)
        };
        assert!(unit(&broken).is_err());
    }

    #[test]
    fn the_unit_starts_again_after_what_another_start_may_mend() {
        let line = |key: &str| TEMPLATE.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        let codes = |key: &str| -> Vec<u8> { line(key).split(' ').map(|c| c.parse().unwrap()).collect() };
        let ended: Vec<u8> = ALL.iter().filter(|e| e.is_final()).map(|e| e.code()).collect();
        assert_eq!(codes("RestartPreventExitStatus="), ended);
        assert_eq!(
            codes("SuccessExitStatus="),
            [Exit::Stopped.code(), Exit::Terminated.code()]
        );
    }
}
