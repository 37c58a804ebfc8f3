//! Checks that the command can be executed.

use crate::error::CliError;
use crate::path_access;
use crate::render::shown_command;
use crate::render::words::shell_word;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use supervise_trainers::started_file::started_file;

/// The search path if PATH is not set.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The hint for `run` without a command.
pub const GIVE_A_COMMAND: &str = "give the command after --, or set supervisor.command";

/// Finds the program of a command the way the launch will.
pub(super) fn find(program: &str, cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Result<Utf8PathBuf, CliError> {
    if program.contains('/') {
        let path = cwd.join(program);
        return match () {
            () if !path_access::exists(&path) => Err(CliError::config(format!(
                "the command `{program}` is not there: there is no file {path}"
            ))
            .hint("mend the command after --, or supervisor.command")),
            () if !path_access::is_program(&path) => Err(CliError::config(format!(
                "the command `{program}` cannot be executed: {path} is no executable file"
            ))
            .hint(format!(
                "chmod +x {}, or name its interpreter in front of it",
                shell_word(path.as_str())
            ))),
            () => Ok(path),
        };
    }
    if program.is_empty() {
        return Err(CliError::usage("the command is empty")
            .hint("is a variable of the shell not set? `echo` the command to see it"));
    }
    let mut programs = dirs(cwd, env).map(|dir| dir.join(program));
    programs.find(|p| path_access::is_program(p)).ok_or_else(|| {
        let path = search_path(env);
        CliError::config(format!("the command `{program}` was not found in PATH ({path})"))
            .hint("activate the environment it is installed in, write its whole path, or set supervisor.env.PATH")
    })
}

/// Checks that there is a command. `config`: the file that was given instead.
pub(super) fn is_given(command: &[String], config: Option<&Utf8Path>) -> Result<(), CliError> {
    if !command.is_empty() {
        return Ok(());
    }
    let error = CliError::config("nothing says how this trainer is started").hint(GIVE_A_COMMAND);
    let starter = match config.and_then(Utf8Path::extension) {
        Some("sh" | "bash") => "bash",
        Some("py") => "python3",
        _ => return Err(error),
    };
    let words = [starter.to_owned(), config.map(ToString::to_string).unwrap_or_default()];
    Err(error.hint(format!("supervise run -- {}", shown_command(&words))))
}

pub(super) fn check(command: &[String], cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Result<(), CliError> {
    match command.first() {
        Some(program) => find(program, cwd, env).map(|_| ()),
        None => Err(CliError::config("the command is empty").hint("give it after --, or set supervisor.command")),
    }
}

/// Checks that the script of the command exists: Python, a shell or a rank launcher would fail only at each launch.
pub(super) fn check_file(command: &[String], cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Result<(), CliError> {
    let Some(file) = started_file(command) else {
        return Ok(());
    };
    let path = cwd.join(file.path);
    let missing = |path: &Utf8Path| match path_access::kind(path) {
        Err(e) => matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        Ok(_) => false,
    };
    // `env PATH=… sh x` searches elsewhere.
    let sets_path = || command.iter().any(|w| w.starts_with("PATH="));
    let in_path = || sets_path() || dirs(cwd, env).any(|dir| path_access::exists(&dir.join(file.path)));
    if !missing(&path) || file.in_path && in_path() {
        return Ok(());
    }
    Err(CliError::config(format!(
        "`{}` cannot start: there is no file {path}",
        shown_command(command)
    ))
    .hint(format!(
        "correct {} in the command; the trainer starts in {cwd}",
        file.path
    )))
}

/// The directories that are searched for programs.
fn dirs(cwd: &Utf8Path, env: &BTreeMap<String, String>) -> impl Iterator<Item = Utf8PathBuf> {
    let path = search_path(env);
    let dirs: Vec<Utf8PathBuf> = path.split(':').map(|d| cwd.join(d)).collect();
    dirs.into_iter()
}

fn search_path(env: &BTreeMap<String, String>) -> String {
    let path = env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok());
    path.unwrap_or_else(|| FALLBACK_PATH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_the_launch_finds_them() {
        let root = Utf8Path::new("/");
        let env = BTreeMap::from([("PATH".to_owned(), "/nowhere:/bin".to_owned())]);
        assert_eq!(find("sh", root, &env).unwrap(), "/bin/sh");
        assert_eq!(find("bin/sh", root, &env).unwrap(), "/bin/sh");
        let e = find("no-such-program", root, &env).unwrap_err();
        assert_eq!(e.exit_code(), 78);
        assert!(e.message.contains("/nowhere:/bin"), "{e}");
        assert!(
            find("/etc/passwd", root, &env)
                .unwrap_err()
                .message
                .contains("cannot be executed")
        );
        assert!(find("/no/such", root, &env).unwrap_err().message.contains("not there"));
    }
}
