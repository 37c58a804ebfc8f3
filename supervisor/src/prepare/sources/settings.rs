//! Sources of settings: files, our block, the environment and flags.

use super::files;
use super::trust::{FileTrust, named_files};
use crate::declared_files;
use crate::error::CliError;
use crate::prepare::request::PrepareRequest;
use crate::render::one_line;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::settings::{AUTO, SettingSources, Settings, UserRule, edit_distance, is_setting};
use supervise_config::{
    ConfigError, ConfigNode, ConfigTree, ConfigValue, ErrorKind as ConfigErrorKind, MapKey, redact_word,
};
use supervise_core::diagnosis::user_rules;
use supervise_core::event::scan::Scanner;
use supervise_core::id::WorkerId;
use supervise_core::policy::{is_class, is_known};
use supervise_core::rulebook::failure_line;
use supervise_core::rulebook::taxonomy::{FailureClass, rows};
use supervise_trainers::registry::FRAMEWORKS;

const MACHINE: &str = "/etc/supervise/config.yaml";
/// The key of our block in the trainer's YAML.
pub(super) const BLOCK: &str = "supervisor";
/// The settings file next to the trainer's.
const BESIDE: &str = "supervise.yaml";

type Flags = Vec<(String, String)>;

/// Separates `--set supervisor.key=value`, which is ours, from the trainer's.
pub(super) fn split_set(set: &[String]) -> Result<(Flags, Vec<String>), CliError> {
    let (mut flags, mut rest) = (Vec::new(), Vec::new());
    for text in set {
        let shown = redact_word(text);
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        let ours = name.strip_prefix("supervisor.");
        if ours.unwrap_or(name).trim_start_matches(['+', '~']).is_empty() {
            return Err(CliError::usage(format!("--set {shown}: the key is empty")).hint("write --set KEY=VALUE"));
        }
        match (ours, value) {
            (Some(key), Some(value)) => flags.push((key.to_owned(), value.to_owned())),
            (None, None) if text.starts_with('~') => rest.push(text.clone()),
            (_, None) => {
                return Err(CliError::usage(format!("--set {shown}: a value is missing"))
                    .hint(format!("write --set {shown}=VALUE")));
            }
            (None, Some(_)) => rest.push(text.clone()),
        }
    }
    Ok((flags, rest))
}

/// Refuses a top-level key that is a misspelled `supervisor`: all settings below it would be lost. If the file has a `supervisor`
/// block too, the other key is the trainer's, and the answer is a note about it.
pub(super) fn check_block(tree: &ConfigTree) -> Result<Option<String>, CliError> {
    let ConfigValue::Map(map) = &tree.root.value else {
        return Ok(None);
    };
    let misspelled = |(key, node): &(&MapKey, &ConfigNode)| is_misspelled_block(&key.to_string(), node);
    match map.iter().find(misspelled) {
        Some((key, node)) if tree.get(BLOCK).is_none() => Err(CliError::from(
            ConfigError::new(
                ConfigErrorKind::UnknownKey,
                format!("the settings of supervise are read from `{BLOCK}`, so these would be lost"),
            )
            .from_origin(&node.origin)
            .with_key(key.to_string())
            .with_hint(format!("write `{BLOCK}:`")),
        )
        .hint(format!(
            "if it is the trainer's own key, add a line `{BLOCK}: {{}}` to the file"
        ))),
        Some((key, node)) => Ok(Some(format!(
            "{}: `{key}` is left to the trainer: the settings of supervise are read from `{BLOCK}`",
            node.origin
        ))),
        None => Ok(None),
    }
}

/// Returns true for a mapping under a name that is no other word, or that holds only settings of ours: a trainer may have a key
/// `supervision`.
fn is_misspelled_block(name: &str, node: &ConfigNode) -> bool {
    let ConfigValue::Map(map) = &node.value else {
        return false;
    };
    match edit_distance(&name.to_lowercase(), BLOCK) {
        _ if name == BLOCK => false,
        0 | 1 => true,
        2 => !map.is_empty() && map.iter().all(|(key, _)| is_setting(&key.to_string())),
        _ => false,
    }
}

/// Refuses a trainer override that is one of our settings without its prefix: the trainer would ignore it or fail.
pub(super) fn check_meant(set: &[String], tree: Option<&ConfigTree>) -> Result<(), CliError> {
    for text in set {
        let Some((key, _)) = text.split_once('=') else { continue };
        let (first, below) = key.split_once('.').unwrap_or((key, ""));
        let is_trainers = tree.is_some_and(|tree| tree.get(first).is_some());
        if edit_distance(first, BLOCK) <= 2 && is_setting(below) && !is_trainers {
            let meant = redact_word(text).replacen(first, BLOCK, 1);
            return Err(CliError::usage(format!(
                "--set {}: the settings of supervise are written `{BLOCK}.KEY=VALUE`",
                redact_word(text)
            ))
            .hint(format!("write --set {meant}")));
        }
        if is_setting(key) && !is_trainers {
            return Err(CliError::usage(format!(
                "--set {}: `{key}` is a setting of supervise, not a key of the trainer's configuration",
                redact_word(text)
            ))
            .hint(format!("write --set supervisor.{}", redact_word(text)))
            .hint(format!(
                "a new key of that name in the trainer's configuration is written with `+`: --set +{key}=…"
            )));
        }
    }
    Ok(())
}

/// Merges all sources. A file given with `--settings` replaces the one next to the trainer's YAML; if it is one of the general
/// files, it keeps its rank.
pub(super) fn load(
    beside: &Utf8Path,
    trainer_file: Option<&Utf8Path>,
    block: Option<ConfigNode>,
    mut flags: Flags,
    request: &PrepareRequest,
    trust: &mut FileTrust,
) -> Result<Settings, CliError> {
    let mut named = named_files(request)?;
    let takes_flag = request.settings.is_some();
    let mut settings_files = Vec::new();
    for path in general().filter(|path| trainer_file != Some(path.as_path())) {
        let before = named.len();
        named.retain(|file| *file != path);
        let text = match named.len() < before {
            true => Some(read_named(&path, trust)?),
            false => read_unnamed(&path, takes_flag, trust)?,
        };
        settings_files.extend(text.map(|text| (path.to_string(), text)));
    }
    let own = beside.join(BESIDE);
    if named.is_empty() && trainer_file != Some(own.as_path()) {
        let text = read_unnamed(&own, takes_flag, trust)?;
        settings_files.extend(text.map(|text| (own.to_string(), text)));
    }
    for path in named {
        settings_files.push((path.to_string(), read_named(&path, trust)?));
    }
    trust.tell(request);
    if request.allow_fresh {
        flags.push(("allow_fresh".to_owned(), "true".to_owned()));
    }
    if request.no_recovery {
        flags.push(("recovery".to_owned(), "false".to_owned()));
    }
    let sources = SettingSources {
        files: settings_files,
        block: block.filter(|b| !b.is_null()),
        env: environment(),
        flags,
        // The settings themselves may name the file that declares the trainer.
        trainers: &[],
    };
    let settings = Settings::load(&sources).map_err(|e| CliError::of_config(&e))?;
    if settings.trainer_file.is_none() && !is_framework(&settings.trainer) && settings.trainer != AUTO {
        check_trainer(&settings.trainer, sources)?;
    }
    if let Some(class) = settings.policy.keys().find(|class| !is_known(class)) {
        return Err(no_such_class("policy", class, &settings));
    }
    check_rules(&settings)?;
    Ok(settings)
}

/// Returns true if the setting `trainer` names a built-in framework.
pub(super) fn is_framework(trainer: &str) -> bool {
    FRAMEWORKS.contains(&trainer)
}

/// Refuses a trainer that is neither built in nor declared.
fn check_trainer(trainer: &str, sources: SettingSources) -> Result<(), CliError> {
    if declared_files::of_name(trainer)?.is_some() {
        return Ok(());
    }
    if let Some(e) = declared_files::of_user().mistakes() {
        return Err(e.hint(format!("none of the files that load declares `{trainer}`")));
    }
    let declared = declared_files::names().into_iter();
    let known: Vec<&'static str> = FRAMEWORKS
        .into_iter()
        .chain(declared.map(|name| &*Box::leak(name.into_boxed_str())))
        .collect();
    let sources = SettingSources {
        trainers: Vec::leak(known),
        ..sources
    };
    Settings::load(&sources)
        .map(drop)
        .map_err(|e| CliError::of_config(&e).hint("supervisor.trainer_file names the file that declares a trainer"))
}

/// Reads a settings file that was not named, if it exists and is trusted.
fn read_unnamed(path: &Utf8Path, takes_flag: bool, trust: &mut FileTrust) -> Result<Option<String>, CliError> {
    let Some((text, whose)) = files::read_regular_if_there(path)? else {
        return Ok(None);
    };
    trust.unnamed(path, whose, takes_flag)?;
    Ok(Some(text))
}

/// Reads a file given with `--settings`, whoever owns it.
fn read_named(path: &Utf8Path, trust: &mut FileTrust) -> Result<String, CliError> {
    let (text, whose) = files::read_settings(path)?;
    trust.named(path, Ok(whose));
    trust.settings.push(path.to_owned());
    Ok(text)
}

/// The first example that a rule does not match, or the first look-alike that it does.
fn tried_in_vain(rule: &UserRule) -> Option<(&str, bool)> {
    let line = failure_line::FailureLine {
        pattern: rule.pattern.clone(),
        class: rule.class.as_str().into(),
        advice: None,
        costs_retry: None,
        blames_checkpoint: None,
    };
    let mut scanner = Scanner::new(user_rules(&[line])).ok()?;
    let mut is_known = |text: &str| {
        scanner.clear();
        scanner.line(WorkerId(0), 1, text.as_bytes()).is_some()
    };
    let examples = rule.examples.iter().map(|text| (text.as_str(), true));
    let mut all = examples.chain(rule.lookalikes.iter().map(|text| (text.as_str(), false)));
    all.find(|(text, should)| is_known(text) != *should)
}

/// Checks that the classes in the user's rules exist, and that each has one policy.
fn check_rules(settings: &Settings) -> Result<(), CliError> {
    for rule in &settings.rules {
        let class = &rule.class;
        if !is_class(class) {
            return Err(no_such_class("rules", class, settings));
        }
        let origin = origin(settings, "rules");
        let is_own = matches!(class.as_str().into(), FailureClass::User(_));
        if !is_own && rule.action.is_some() {
            return Err(CliError::config(format!(
                "rules: {class} is a class of the table, and has its answer{origin}"
            ))
            .hint(format!(
                "write `policy: {{{class}: …}}` to change it, or name a class of your own (`user.…`)"
            )));
        }
        let key = [
            ("advice", rule.advice.is_some()),
            ("costs_retry", rule.costs_retry.is_some()),
            ("blames_checkpoint", rule.blames_checkpoint.is_some()),
        ];
        if let Some((key, _)) = key.iter().find(|(_, is_set)| *is_set && !is_own) {
            return Err(CliError::config(format!(
                "rules: {class} is a class of the table, so a rule cannot set its {key}{origin}"
            ))
            .hint(format!("remove {key}, or name a class of your own (`user.…`)")));
        }
        let said = |other: &&UserRule| {
            let differs = |a: Option<bool>, b: Option<bool>| a.zip(b).is_some_and(|(a, b)| a != b);
            other.class == *class
                && (rule.advice.is_some() && other.advice.is_some() && rule.advice != other.advice
                    || differs(rule.costs_retry, other.costs_retry)
                    || differs(rule.blames_checkpoint, other.blames_checkpoint))
        };
        if settings.rules.iter().any(|other| said(&other)) {
            return Err(
                CliError::config(format!("rules: two rules say different things of {class}{origin}"))
                    .hint("write advice, costs_retry and blames_checkpoint in one rule of each class"),
            );
        }
        if let Some((text, should)) = tried_in_vain(rule) {
            let what = match should {
                true => "does not match its example",
                false => "matches its look-alike",
            };
            return Err(
                CliError::config(format!("rules: the pattern of {class} {what}: {}{origin}", one_line(text, 200)))
                    .hint("a pattern is tried on a line as `diagnose` reads it: without colors and launcher prefixes; case counts"),
            );
        }
        if rule.action.is_none() {
            continue;
        }
        let answers = settings.rules.iter().filter(|r| r.class == *class);
        let same = answers
            .filter_map(|r| r.action)
            .all(|action| Some(action) == rule.action);
        if !same || settings.policy.contains_key(class) {
            return Err(
                CliError::config(format!("rules: the answer to {class} is said twice{origin}"))
                    .hint("write `action` once for each class, and none where `policy` answers it"),
            );
        }
    }
    Ok(())
}

fn origin(settings: &Settings, key: &str) -> String {
    let line = settings.explained().iter().find(|line| line.key == key);
    line.map_or_else(String::new, |line| format!(" ({})", line.origin))
}

fn no_such_class(key: &str, class: &str, settings: &Settings) -> CliError {
    let origin = origin(settings, key);
    let near = rows()
        .map(|row| row.code)
        .min_by_key(|name| edit_distance(class, name))
        .filter(|name| edit_distance(class, name) <= 2 + class.len() / 4);
    let near = near.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
    CliError::config(format!("{key}: there is no class of failures called `{class}`{origin}")).hint(format!(
        "{near}`supervise policy show` lists all classes; {}",
        match key {
            "rules" => "one of your own is written `user.name`",
            _ => "a family is written `mem.*`",
        }
    ))
}

/// Memory for proofs outside of a run, in bytes: from the settings of the machine and the user, and the environment.
///
/// # Errors
/// A settings file or variable that cannot be read.
pub fn proof_memory() -> Result<u64, CliError> {
    let mut trust = FileTrust::default();
    let mut files = Vec::new();
    for path in general() {
        let text = read_unnamed(&path, false, &mut trust)?;
        files.extend(text.map(|text| (path.to_string(), text)));
    }
    trust.tell(&PrepareRequest::default());
    let sources = SettingSources {
        files,
        env: environment(),
        ..SettingSources::default()
    };
    let settings = Settings::load(&sources).map_err(|e| CliError::of_config(&e))?;
    Ok(settings.proof.memory)
}

/// Settings files that apply to every run, lowest priority first.
fn general() -> impl Iterator<Item = Utf8PathBuf> {
    [Some(Utf8PathBuf::from(MACHINE)), user_file()].into_iter().flatten()
}

/// The `SUPERVISE_…` variables.
fn environment() -> Vec<(String, String)> {
    let ours = |(name, _): &(String, String)| name.starts_with("SUPERVISE_");
    crate::environment::own().into_iter().filter(ours).collect()
}

fn user_file() -> Option<Utf8PathBuf> {
    let base = match std::env::var("XDG_CONFIG_HOME") {
        Ok(dir) if dir.starts_with('/') => Utf8PathBuf::from(dir),
        _ => Utf8PathBuf::from(std::env::var("HOME").ok().filter(|h| h.starts_with('/'))?).join(".config"),
    };
    Some(base.join("supervise/config.yaml"))
}
