//! Command lines that cannot be parsed: what is wrong with them, and what was probably meant.

use crate::error::CliError;
use crate::render::{proposed, terminal};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Flags that move, delete or overwrite something, or skip a question: they are never suggested.
const DESTRUCTIVE: [&str; 9] = [
    "--again",
    "--all",
    "--allow-fresh",
    "--force",
    "--fresh",
    "--from",
    "--no-recovery",
    "--now",
    "--yes",
];

/// Commands of other programs, and what to use instead.
const OTHER_COMMANDS: [(&[&str], &str); 6] = [
    (
        &["ps", "ls", "list", "runs"],
        "`supervise status` lists your runs, `supervise checkpoints RUN` the steps of one",
    ),
    (
        &["start", "launch"],
        "`supervise run ppo.yaml` starts a run, or resumes it",
    ),
    (
        &["restart", "retry"],
        "`supervise stop RUN`, then `supervise run` as before: it resumes from the newest proven step",
    ),
    (
        &["rm", "remove", "delete", "clean"],
        "`supervise gc RUN` lists the leftovers of a run and asks before it deletes them; no command deletes a run",
    ),
    (
        &["kill"],
        "`supervise stop RUN` ends a run; with --now, without waiting for a save",
    ),
    (
        &["watch", "attach"],
        "`supervise top` shows runs live, `supervise logs --follow RUN` the output",
    ),
];

/// Flags that do not exist: what is true instead, and what to do.
const OTHER_FLAGS: [(&[&str], &str, &str); 3] = [
    (
        &["--resume", "--continue", "--restart"],
        "not needed: `run` always resumes from the newest proven step",
        "leave it out. `--from N` resumes from step N; `--again` restarts a run that needs attention",
    ),
    (
        &["--resume-from", "--from-step", "--checkpoint"],
        "the step is given with --from",
        "`supervise run … --from N` resumes from exactly step N and moves newer steps aside",
    ),
    (
        &["--dry-run"],
        "`run` has no dry run",
        "`supervise plan …` shows what `run` would do, and changes nothing",
    ),
];

/// What Rust says of text that is no number, and what to say instead.
const NUMBERS: [(&str, &str); 2] = [
    (
        "invalid digit found in string",
        "expected a whole number, such as 120, without a sign or a unit",
    ),
    ("number too large to fit in target type", "the number is too large"),
];

/// Refuses an empty argument, usually an unset variable of the shell.
///
/// # Errors
/// One of our arguments is empty. Those of the trainer's command may be.
pub(super) fn check_empty(args: &[OsString]) -> Result<(), CliError> {
    let words: Vec<_> = args.iter().map(|word| word.to_string_lossy()).collect();
    let ours = words.split(|word| word == "--").next().unwrap_or_default();
    let flag = |word: &str| word.starts_with("--").then(|| word.to_owned());
    let empty = ours.iter().enumerate().skip(1).find_map(|(n, word)| {
        let before = ours.get(n - 1).and_then(|before| flag(before));
        match word.split_once('=') {
            Some((name, "")) => flag(name),
            None if word.is_empty() => Some(before.unwrap_or_else(|| format!("argument {n}"))),
            _ => None,
        }
    });
    match empty {
        Some(what) => Err(CliError::usage(format!("{what} is empty"))
            .hint("is a variable of the shell not set? `echo` the command to see it")),
        None => Ok(()),
    }
}

/// Explains why clap refused the command line.
pub(super) fn explained(e: &clap::Error, args: &[OsString]) -> CliError {
    let odd = args.iter().enumerate().find(|(_, word)| word.to_str().is_none());
    if let (ErrorKind::InvalidUtf8, Some((n, word))) = (e.kind(), odd) {
        let word = word.as_encoded_bytes().escape_ascii();
        return CliError::usage(format!(
            "argument {n}: expected text, found `{word}`, which is no UTF-8: it could not be written into the journal"
        ))
        .hint("a link gives a file another name: `ln -s`, and name the link");
    }
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    // The error quotes what was typed, which must not create lines: build it again from escaped arguments.
    let safe = words.iter().map(|word| terminal::line(word).into_owned());
    match super::command().try_get_matches_from(safe) {
        Err(again) if again.use_stderr() => of_clap(again, &words),
        _ => CliError::usage(terminal::line(&e.to_string())),
    }
}

fn of_clap(mut e: clap::Error, words: &[String]) -> CliError {
    let is_destructive = |flag: &str| DESTRUCTIVE.contains(&flag);
    if text_of(&e, ContextKind::SuggestedArg).is_some_and(is_destructive) {
        e.remove(ContextKind::SuggestedArg);
        // It shows the flag too.
        e.remove(ContextKind::Usage);
    }
    // After `--` it would be the trainer's command.
    e.remove(ContextKind::Suggested);
    let is_about = |(names, ..): &&(&[&str], &str, &str)| {
        let flag = text_of(&e, ContextKind::InvalidArg).unwrap_or_default();
        names.contains(&flag.split('=').next().unwrap_or_default())
    };
    if e.kind() == ErrorKind::UnknownArgument
        && let Some((_, why, instead)) = OTHER_FLAGS.iter().filter(|_| starts_a_run(words)).find(is_about)
    {
        let flag = text_of(&e, ContextKind::InvalidArg).unwrap_or_default();
        return CliError::usage(format!("{flag}: {why}")).hint(*instead);
    }
    let typed = text_of(&e, ContextKind::InvalidSubcommand).unwrap_or_default();
    if let Some((_, instead)) = OTHER_COMMANDS.iter().find(|(names, _)| names.contains(&typed)) {
        return CliError::usage(format!("there is no command `{typed}`"))
            .hint(*instead)
            .hint("`supervise help` lists all commands");
    }
    if typed.ends_with(".yaml") || typed.ends_with(".yml") {
        let run: Vec<String> = ["supervise", "run"]
            .iter()
            .map(ToString::to_string)
            .chain(words.iter().skip(1).cloned())
            .collect();
        return CliError::usage(format!("there is no command `{typed}`"))
            .hint(proposed(&run))
            .hint("`supervise help` lists all commands");
    }
    let with_set = with_set(&e, words);
    let text = e.render().to_string();
    let mut lines = text.lines().map(str::to_owned).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    for (of_rust, plain) in NUMBERS {
        if let Some(head) = message.strip_suffix(of_rust) {
            message = format!("{head}{plain}");
        }
    }
    let error = CliError::usage(message).with_lines(lines);
    match with_set {
        Some(command) => error.hint(format!("an override is written with --set: {command}")),
        None => error,
    }
}

fn text_of(e: &clap::Error, kind: ContextKind) -> Option<&str> {
    match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The words that are ours: those after `--` are the trainer's.
fn ours(words: &[String]) -> &[String] {
    words.split(|word| word == "--").next().unwrap_or_default()
}

/// The command that was typed.
fn command_of(words: &[String]) -> Option<clap::Command> {
    let all = super::command();
    let mut typed = ours(words).iter().skip(1);
    typed.find_map(|word| all.find_subcommand(word)).cloned()
}

fn starts_a_run(words: &[String]) -> bool {
    command_of(words).is_some_and(|c| ["run", "plan", "sbatch", "install"].contains(&c.get_name()))
}

/// The same command with `--set` before each override that is written as for Hydra, if one of them was refused.
fn with_set(e: &clap::Error, words: &[String]) -> Option<String> {
    let is_override = |word: &str| word.contains('=') && !word.starts_with('-');
    let ours = ours(words);
    let takes_set = |c: &clap::Command| c.get_arguments().any(|a| a.get_long() == Some("set"));
    let is_meant = text_of(e, ContextKind::InvalidArg).is_some_and(is_override)
        && command_of(words).as_ref().is_some_and(takes_set);
    if !is_meant || e.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let mut out = vec!["supervise".to_owned()];
    for pair in ours.windows(2) {
        if let [before, word] = pair {
            let is_value = before.starts_with('-') && !before.contains('=');
            out.extend((is_override(word) && !is_value).then(|| "--set".to_owned()));
            out.push(word.clone());
        }
    }
    out.extend(words.get(ours.len()..).unwrap_or_default().iter().cloned());
    Some(proposed(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let e = super::super::command().try_get_matches_from(&args).unwrap_err();
        explained(&e, &args).render()
    }

    #[test]
    fn every_destructive_flag_exists() {
        let all = super::super::command();
        for flag in DESTRUCTIVE {
            let name = flag.strip_prefix("--");
            let has = |c: &clap::Command| c.get_arguments().any(|a| a.get_long() == name);
            assert!(all.get_subcommands().any(has), "{flag}");
        }
    }

    #[test]
    fn no_tip_names_a_destructive_flag() {
        let all = super::super::command();
        for command in all.get_subcommands() {
            for flag in DESTRUCTIVE {
                let mistyped = format!("{flag}x");
                let text = said(&format!("supervise {} {mistyped}", command.get_name()));
                assert!(!text.replace(&mistyped, "").contains(flag), "{text}");
            }
        }
        assert!(said("supervise run --detatch").contains("'--detach'"));
    }

    #[test]
    fn words_of_other_programs_are_no_commands() {
        let all = super::super::command();
        for (names, ..) in OTHER_COMMANDS {
            assert!(
                names.iter().all(|name| all.find_subcommand(name).is_none()),
                "{names:?}"
            );
        }
    }

    #[test]
    fn overrides_of_hydra_are_shown_with_set() {
        let text = said("supervise plan ppo.yaml trainer.save_freq=20 --set a=b +x=1 -- sh y=2");
        assert!(
            text.contains("supervise plan ppo.yaml --set trainer.save_freq=20 --set a=b --set +x=1 -- sh y=2"),
            "{text}"
        );
    }
}
