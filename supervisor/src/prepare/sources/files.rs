//! Configuration files: read with limits, and composed as Hydra does.

use super::trust::FileTrust;
use crate::error::CliError;
use crate::path_access;
use crate::render::excerpt::keep_text;
use crate::render::shown_word;
use camino::{Utf8Path, Utf8PathBuf};
use std::cell::RefCell;
use std::io;
use supervise_config::compose::{ComposedConfig, ConfigLoader, GroupOverride, LoadResult, compose};
use supervise_config::{ConfigError, ErrorKind, MAX_BYTES};
use supervise_host::io_worker::PathKind;
use supervise_host::ownership::PathTrust;
use supervise_trainers::hydra;
use supervise_trainers::registry::adapters;

/// Maximum number of names read in a directory of options.
const ENTRIES: usize = 10_000;

/// The text of a file that may be missing.
pub(in crate::prepare) fn read_if_there(path: &Utf8Path) -> Result<Option<String>, CliError> {
    Ok(read_judged_if_there(path)?.map(|(text, _)| text))
}

fn read_judged_if_there(path: &Utf8Path) -> Result<Option<(String, PathTrust)>, CliError> {
    match read_text(path) {
        Ok(read) => Ok(Some(read)),
        Err(ConfigReadError::Io(e)) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(e) => Err(e.told(path)),
    }
}

pub(super) fn read_settings(path: &Utf8Path) -> Result<(String, PathTrust), CliError> {
    read_text(path).map_err(|e| match e {
        ConfigReadError::Io(e) if e.kind() == io::ErrorKind::NotFound => {
            CliError::usage(format!("--settings {path}: there is no such file"))
                .hint("a relative path counts from the working directory")
        }
        ConfigReadError::Directory => {
            CliError::usage(format!("--settings {path}: this is a directory, a file is needed"))
        }
        e => e.told(path),
    })
}

/// Reads an optional regular file that is found by its name, and whether it may be trusted. Anything else of that name is an error.
pub(super) fn read_regular_if_there(path: &Utf8Path) -> Result<Option<(String, PathTrust)>, CliError> {
    match path_access::kind(path) {
        Ok(PathKind::Other) => Err(CliError::config(format!(
            "{path}: expected a file, found a pipe, a socket or a device"
        ))
        .hint("settings are read from a file of this name: rename what is there")),
        // Other problems get the usual messages.
        _ => read_judged_if_there(path),
    }
}

#[derive(Debug)]
enum ConfigReadError {
    Io(io::Error),
    Directory,
    NotText,
    TooLarge,
}

impl ConfigReadError {
    fn told(self, path: &Utf8Path) -> CliError {
        match self {
            Self::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                let error = CliError::usage(format!("{path}: there is no such file"))
                    .hint("name the trainer's YAML; the path is relative to the working directory");
                match path.as_str().split_once('=') {
                    Some((key, _)) if !key.contains('/') => error.hint(format!(
                        "an override is written with --set: --set {}",
                        shown_word(path.as_str())
                    )),
                    _ => error,
                }
            }
            Self::Io(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                CliError::usage(format!("{path}: its symbolic links lead in a circle"))
            }
            Self::Io(e) => CliError::environment(format!("{path}: it cannot be read: {e}")),
            Self::Directory => CliError::usage(format!("{path}: this is a directory, the trainer's YAML is needed"))
                .hint("to look at checkpoints in a directory: supervise checkpoints DIR"),
            Self::NotText => {
                CliError::config(format!("{path}: it is not UTF-8 text")).hint("is this the trainer's YAML?")
            }
            Self::TooLarge => CliError::config(format!("{path}: it is larger than {MAX_BYTES} bytes"))
                .hint("is this the trainer's YAML?"),
        }
    }
}

fn read_text(path: &Utf8Path) -> Result<(String, PathTrust), ConfigReadError> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let (text, exact, trust) = match path_access::kind(path).map_err(ConfigReadError::Io)? {
        PathKind::Dir => return Err(ConfigReadError::Directory),
        PathKind::File => path_access::read_judged(path, limit).map_err(ConfigReadError::Io)?,
        PathKind::Other => {
            let trust = path_access::trust(path).map_err(ConfigReadError::Io)?;
            let (text, exact) = path_access::read(path, limit).map_err(ConfigReadError::Io)?;
            (text, exact, trust)
        }
    };
    match exact {
        _ if text.len() > MAX_BYTES => Err(ConfigReadError::TooLarge),
        false => Err(ConfigReadError::NotText),
        true => {
            keep_text(path.as_str(), &text);
            Ok((text, trust))
        }
    }
}

/// Reads the user's YAML, with the configurations next to it that its defaults list names. `trust` records their owners.
pub(super) fn compose_file(
    path: &Utf8Path,
    command: &[String],
    set: &[String],
    trust: &mut FileTrust,
) -> Result<ComposedConfig, CliError> {
    if path == "-" {
        return Err(CliError::usage(
            "standard input is not read: the trainer's YAML has to be a file",
        ));
    }
    // Report an unreadable file in full; the loader would only say that something is missing.
    let (text, whose) = read_text(path).map_err(|e| e.told(path))?;
    trust.named(path, Ok(whose));
    let dir = path.parent().unwrap_or(Utf8Path::new(""));
    let name = path.file_stem().unwrap_or_default();
    let loader = SiblingConfigs {
        dir,
        primary: (name, path, &text),
        trust: RefCell::new(trust),
    };
    let groups = group_choices(&loader, command, set)?;
    Ok(compose(&loader, name, &groups)?)
}

/// Group choices on the command line whose options are next to the user's YAML.
fn group_choices(
    loader: &SiblingConfigs<'_>,
    command: &[String],
    set: &[String],
) -> Result<Vec<GroupOverride>, ConfigError> {
    let mut out = Vec::new();
    let from_command = command.iter().filter(|w| !w.starts_with('-') && w.contains('='));
    for text in from_command.chain(set) {
        // Other arguments are not overrides; the trainer's reader judges them.
        let Ok(change) = hydra::parse(text) else { continue };
        out.extend(change.as_group(|group| loader.is_group(group))?);
    }
    Ok(out)
}

/// Configurations next to the user's YAML; the trainers' own are known by name.
struct SiblingConfigs<'a> {
    dir: &'a Utf8Path,
    primary: (&'a str, &'a Utf8Path, &'a str),
    trust: RefCell<&'a mut FileTrust>,
}

impl SiblingConfigs<'_> {
    fn is_group(&self, group: &str) -> bool {
        !group.is_empty() && !group.contains('.') && path_access::is_dir(&self.dir.join(group))
    }
}

impl ConfigLoader for SiblingConfigs<'_> {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        let (name, path, text) = self.primary;
        if config == name {
            return Ok(LoadResult::Text {
                text: text.to_owned(),
                file: path.to_string(),
            });
        }
        let file = self.dir.join(format!("{config}.yaml"));
        match read_text(&file) {
            Ok((text, whose)) => {
                self.trust.borrow_mut().named(&file, Ok(whose));
                Ok(LoadResult::Text {
                    text,
                    file: file.to_string(),
                })
            }
            Err(ConfigReadError::Io(e))
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                // A group that exists here is the user's; any other may be the installation's.
                let is_own = || adapters().any(|a| a.own_configs().contains(&config));
                Ok(match config.split_once('/') {
                    Some((group, _)) if path_access::is_dir(&self.dir.join(group)) => LoadResult::Missing,
                    Some(_) => LoadResult::ByTrainer,
                    None if is_own() => LoadResult::ByTrainer,
                    None => LoadResult::Unknown,
                })
            }
            Err(e) => Err(ConfigError::new(ErrorKind::Compose, e.told(&file).message)),
        }
    }

    fn options(&self, group: &str) -> Vec<String> {
        let entries = path_access::names(&self.dir.join(group), "", ENTRIES).unwrap_or_default();
        let mut names: Vec<String> = entries
            .iter()
            .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
            .take(100)
            .collect();
        names.sort();
        names
    }
}

/// The YAML that a command names itself: `--config-path=/abs --config-name=x`.
pub(super) fn config_in_command(command: &[String]) -> Option<Utf8PathBuf> {
    let value = |names: [&str; 2]| {
        command.iter().enumerate().find_map(|(i, word)| {
            let (key, joined) = word
                .split_once('=')
                .map_or((word.as_str(), None), |(k, v)| (k, Some(v)));
            let found = names
                .contains(&key)
                .then(|| joined.or_else(|| command.get(i + 1).map(String::as_str)));
            found.flatten()
        })
    };
    let dir = value(["--config-path", "-cp"]).filter(|d| d.starts_with('/'))?;
    let name = value(["--config-name", "-cn"])?;
    let name = name.strip_suffix(".yaml").unwrap_or(name);
    let file = Utf8Path::new(dir).join(format!("{name}.yaml"));
    path_access::is_file(&file).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn dir() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
        (dir, path)
    }

    #[test]
    fn a_defaults_list_is_followed_beside_the_file_and_into_the_trainer() {
        let (_keep, dir) = dir();
        fs::create_dir(dir.join("data")).unwrap();
        fs::write(dir.join("data/gsm8k.yaml"), "train_batch_size: 7\n").unwrap();
        fs::write(dir.join("data/math.yaml"), "train_batch_size: 9\n").unwrap();
        let text = "defaults:\n  - ppo_trainer\n  - data: gsm8k\n  - _self_\ntrainer:\n  save_freq: 2\n";
        fs::write(dir.join("my.yaml"), text).unwrap();
        let composed = compose_file(&dir.join("my.yaml"), &[], &[], &mut FileTrust::default()).unwrap();
        assert_eq!(
            composed.tree.get("data.train_batch_size").and_then(|n| n.as_i64()),
            Some(7)
        );
        assert!(
            composed
                .layers
                .iter()
                .any(|l| l.by_trainer && l.config == "ppo_trainer")
        );
        let composed = compose_file(
            &dir.join("my.yaml"),
            &[],
            &["data=math".into()],
            &mut FileTrust::default(),
        )
        .unwrap();
        assert_eq!(
            composed.tree.get("data.train_batch_size").and_then(|n| n.as_i64()),
            Some(9)
        );
        let e = compose_file(
            &dir.join("my.yaml"),
            &["data=none_such".into()],
            &[],
            &mut FileTrust::default(),
        )
        .unwrap_err();
        assert_eq!(e.exit_code(), 78);
        assert!(e.render().contains("none_such"), "{}", e.render());
    }

    #[test]
    fn a_command_may_name_its_yaml_itself() {
        let (_keep, dir) = dir();
        fs::write(dir.join("x.yaml"), "a: 1\n").unwrap();
        let words = |name: &str| {
            [
                "python",
                "-m",
                "verl.trainer.main_ppo",
                "--config-path",
                dir.as_str(),
                name,
            ]
            .map(str::to_owned)
        };
        assert_eq!(config_in_command(&words("--config-name=x")), Some(dir.join("x.yaml")));
        assert_eq!(config_in_command(&words("--config-name=y")), None);
        assert_eq!(config_in_command(&words("z")), None);
    }
}
