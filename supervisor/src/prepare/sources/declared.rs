//! Chooses the declaration that a run's trainer follows, if it is not one of the built-in trainers.
//!
//! Order: what the settings name, what the run's journal recorded, built-in trainers, the user's files, presets.

use super::settings;
use super::trust::FileTrust;
use crate::declared_files::{self, FoundDeclaration};
use crate::error::CliError;
use crate::path_access;
use crate::prepare::earlier_run::declared_before;
use crate::prepare::listed_runs;
use crate::prepare::path::absolute;
use camino::Utf8Path;
use std::sync::Arc;
use supervise_config::compose::ComposedConfig;
use supervise_config::redact_words;
use supervise_config::settings::{AUTO, Settings};
use supervise_core::spec::{DeclaredTrainer, TrainerKind};
use supervise_host::io_worker::{RUN_DIR_NAME, RegisteredRun};
use supervise_trainers::declared::{Declaration, outside_store, presets};
use supervise_trainers::registry;

/// What a run is chosen by.
pub(super) struct ChoiceInput<'a> {
    pub(super) settings: &'a Settings,
    pub(super) composed: Option<&'a ComposedConfig>,
    pub(super) command: &'a [String],
    pub(super) cwd: &'a Utf8Path,
}

/// Chooses the declaration; `None`: a built-in trainer, or no trainer that is known.
///
/// # Errors
/// One that was named or recorded does not load, or several fit.
pub(super) fn choose(input: &ChoiceInput<'_>, trust: &mut FileTrust) -> Result<Option<FoundDeclaration>, CliError> {
    let found = chosen(input, trust)?;
    if let Some(found) = &found {
        registry::declare(&found.declaration);
    }
    Ok(found)
}

fn chosen(input: &ChoiceInput<'_>, trust: &mut FileTrust) -> Result<Option<FoundDeclaration>, CliError> {
    let said = input.settings.trainer.as_str();
    if let Some(file) = &input.settings.trainer_file {
        return named_file(&absolute(input.cwd, Utf8Path::new(file)), said, trust).map(Some);
    }
    if said != AUTO {
        return match settings::is_framework(said) {
            true => Ok(None),
            false => declared_files::of_name(said),
        };
    }
    if let Some((kind, recorded)) = recorded(input) {
        return again(kind, &recorded).map(Some);
    }
    let called = registry::called(input.command);
    if called.or_else(|| input.composed.and_then(registry::meant)).is_some() || input.command.is_empty() {
        return Ok(None);
    }
    let user = declared_files::of_user();
    let own: Vec<FoundDeclaration> = user
        .read
        .iter()
        .filter(|(_, d)| d.is_called(input.command))
        .map(|(path, declaration)| FoundDeclaration {
            file: Some(declared_files::absolute(path)),
            declaration: Arc::clone(declaration),
        })
        .collect();
    if let Some(found) = only(own)? {
        return Ok(Some(found));
    }
    // One of them may be the declaration of this trainer.
    if let Some(e) = user.mistakes() {
        return Err(e.hint("mend it, or move it away; --set supervisor.trainer=plain starts the command without it"));
    }
    let fitting = presets().iter().filter(|d| d.is_called(input.command));
    only(
        fitting
            .map(|declaration| FoundDeclaration {
                file: None,
                declaration: Arc::clone(declaration),
            })
            .collect(),
    )
}

fn only(mut fitting: Vec<FoundDeclaration>) -> Result<Option<FoundDeclaration>, CliError> {
    if let [a, b, ..] = fitting.as_slice() {
        let label = |found: &FoundDeclaration| match &found.file {
            Some(file) => format!("{} ({file})", found.declaration.name()),
            None => found.declaration.name().to_owned(),
        };
        let e = CliError::config(format!(
            "this command fits two declared trainers: {} and {}",
            label(a),
            label(b)
        ));
        let which = [a, b].map(|found| match &found.file {
            Some(file) if a.declaration.name() == b.declaration.name() => {
                format!("--set supervisor.trainer_file={file}")
            }
            _ => format!("--set supervisor.trainer={}", found.declaration.name()),
        });
        return Err(e.hint(format!("say which one it is: {}", which.join(" or "))));
    }
    Ok(fitting.pop())
}

fn named_file(file: &Utf8Path, said: &str, trust: &mut FileTrust) -> Result<FoundDeclaration, CliError> {
    if !path_access::exists(file) {
        return Err(CliError::config(format!("trainer_file: there is no file {file}"))
            .hint("write its path, absolute or from the directory where supervise starts"));
    }
    trust.named(file, path_access::trust(file));
    let declaration = declared_files::read(file)?;
    if said != AUTO && said != declaration.name() {
        return Err(
            CliError::config(format!("trainer is {said}, and {file} declares {}", declaration.name()))
                .hint("remove supervisor.trainer: the file names the trainer"),
        );
    }
    Ok(FoundDeclaration {
        file: Some(file.to_owned()),
        declaration,
    })
}

/// The declared trainer of the run that has this checkpoint root, or of the last run of this command in this directory.
fn recorded(input: &ChoiceInput<'_>) -> Option<(TrainerKind, DeclaredTrainer)> {
    let settings = input.settings;
    if let Some(dir) = &settings.run_dir {
        return declared_before(&absolute(input.cwd, Utf8Path::new(dir)));
    }
    if let Some(root) = &settings.root {
        let root = absolute(input.cwd, Utf8Path::new(root));
        let dirs = [root.join(RUN_DIR_NAME), outside_store(&root)];
        let there = dirs.iter().find(|dir| path_access::exists(&dir.join("run.id")));
        return there.and_then(|dir| declared_before(dir));
    }
    let command = redact_words(input.command);
    let is_it = |run: &RegisteredRun| {
        run.cwd == input.cwd && run.command == command || trains_into_root_of(run, &command, input.cwd)
    };
    let mut runs = listed_runs();
    runs.retain(|run| run.declared && is_it(run));
    runs.sort_by_key(|run| std::cmp::Reverse(run.at));
    runs.first().and_then(|run| declared_before(&run.run_dir))
}

/// Returns true if a command with other words, or from another directory, starts the run's script on the run's checkpoint root.
fn trains_into_root_of(run: &RegisteredRun, command: &[String], cwd: &Utf8Path) -> bool {
    let Some(root) = &run.root else { return false };
    let value = |word: &str| word.split_once('=').map_or(word, |(_, value)| value).to_owned();
    let is_root = |word: &String| {
        let value = value(word);
        !value.is_empty() && absolute(cwd, Utf8Path::new(&value)) == *root
    };
    script_of(command).is_some_and(|script| script_of(&run.command) == Some(script)) && command.iter().any(is_root)
}

/// Name of the first word that is a script, else of Python's module or of the program.
fn script_of(command: &[String]) -> Option<&str> {
    let module = command
        .iter()
        .position(|word| word == "-m")
        .and_then(|at| command.get(at + 1));
    let is_script = |word: &&String| [".py", ".sh"].iter().any(|end| word.ends_with(end));
    let script = command.iter().find(is_script);
    match (script, module) {
        (Some(script), _) => Utf8Path::new(script).file_name(),
        (None, Some(module)) => Some(module),
        (None, None) => Utf8Path::new(command.first()?).file_name(),
    }
}

/// The declaration of a run that was started before, as it is now.
fn again(kind: TrainerKind, recorded: &DeclaredTrainer) -> Result<FoundDeclaration, CliError> {
    let name = kind.name();
    let lost = |what: String| {
        CliError::config(format!(
            "this run was started with the declared trainer `{name}`, and {what}"
        ))
        .hint("put the file back, or name another one: --set supervisor.trainer_file=FILE")
    };
    let found = match &recorded.file {
        None => declared_files::of_name(name)?.ok_or_else(|| lost("it is not known here".to_owned()))?,
        Some(file) if !path_access::exists(file) => return Err(lost(format!("{file} is not there"))),
        Some(file) => FoundDeclaration {
            declaration: declared_files::read(file)?,
            file: Some(file.clone()),
        },
    };
    match found.declaration.kind() == kind {
        true => Ok(found),
        false => Err(lost(format!(
            "{} declares `{}` now",
            recorded.file.as_ref().map_or("its file", |file| file.as_str()),
            found.declaration.name()
        ))),
    }
}

/// Refuses a declaration that takes other steps for whole than the run's last start did.
///
/// # Errors
/// Names what changed, unless it was accepted.
pub(in crate::prepare) fn check_change(
    found: &FoundDeclaration,
    run_dir: &Utf8Path,
    is_accepted: bool,
) -> Result<Option<String>, CliError> {
    let Some((_, before)) = declared_before(run_dir) else {
        return Ok(None);
    };
    let name = found.declaration.name();
    if before.digest == found.declaration.digest() {
        return Ok(None);
    }
    let judges_like = Declaration::parse(&before.text, &[]).is_ok_and(|old| old.judges_like(&found.declaration));
    match judges_like {
        true => Ok(Some(format!(
            "the declaration of {name} changed since the last start; it takes the same steps for whole"
        ))),
        false if is_accepted => Ok(Some(format!(
            "the declaration of {name} changed which steps are whole since the last start (--accept)"
        ))),
        false => Err(CliError::config(format!(
            "the declaration of {name} changed since this run's last start, and with it which steps are whole (steps, parts, finish or tracker)"
        ))
        .hint("`supervise trainer check` shows what it says of the steps; to go on with it: --accept")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::RunId;

    fn run(words: &str) -> RegisteredRun {
        RegisteredRun {
            run: RunId("61e5".to_owned()),
            run_dir: "/w/runs/a/.supervise".into(),
            name: None,
            root: Some("/w/runs/a".into()),
            config: None,
            script: None,
            command: words.split(' ').map(str::to_owned).collect(),
            cwd: "/w".into(),
            declared: true,
            at: None,
        }
    }

    fn is_same(before: &str, now: &str, cwd: &str) -> bool {
        let now: Vec<String> = now.split(' ').map(str::to_owned).collect();
        trains_into_root_of(&run(before), &now, Utf8Path::new(cwd))
    }

    #[test]
    fn other_words_or_another_directory_start_the_same_run() {
        let before = "python3 train.py --save-dir runs/a --steps 40";
        for (now, cwd) in [
            ("python3 train.py --save-dir runs/a --steps 60", "/w"),
            ("python3 train.py --save-dir=runs/a", "/w"),
            ("/usr/bin/python3 /w/train.py --save-dir /w/runs/a", "/elsewhere"),
        ] {
            assert!(is_same(before, now, cwd), "{now}");
        }
        for (now, cwd) in [
            ("python3 evaluate.py --save-dir runs/a", "/w"),
            ("python3 train.py --save-dir runs/b", "/w"),
            ("python3 train.py --save-dir runs/a", "/elsewhere"),
            ("python3 train.py --save-dir= --steps 60", "/w"),
        ] {
            assert!(!is_same(before, now, cwd), "{now}");
        }
        assert!(is_same("sh go.sh runs/a", "sh go.sh runs/a 60", "/w"));
        assert!(!is_same("sh go.sh runs/a", "sh clean.sh runs/a", "/w"));
        assert!(is_same(
            "torchrun -m my.train runs/a",
            "python3 -m my.train runs/a",
            "/w"
        ));
    }
}
