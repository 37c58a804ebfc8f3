//! What a trainer needs beside what its configuration says: the file that it is given, directories that it does not make.

use super::{Configured, Request, elsewhere, files, place};
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::settings::Settings;
use supervise_config::without_block;
use supervise_core::id::fnv64;
use supervise_core::spec::Policy;
use supervise_trainers::command::CONFIG;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::registry::adapters;
use supervise_trainers::{UserPart, adapter};

/// The trainer's YAML without our block, for a trainer that refuses a key that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The directory, in the run directory.
    pub dir: Utf8PathBuf,
    /// Its name there, which tells what it says.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Copy {
    fn path(&self) -> Utf8PathBuf {
        self.dir.join(&self.name)
    }
}

/// The copy that this run is given, where its file has a block of ours; the command then names it.
pub(super) fn copy(
    configured: &Configured,
    out: &ReadOutput,
    run_dir: &Utf8Path,
    command: &mut [String],
) -> Result<Option<Copy>, CliError> {
    let (Some(file), Some(composed)) = (&configured.file, &configured.composed) else {
        return Ok(None);
    };
    let trainer = adapter(out.kind);
    if !trainer.refuses_block() || !configured.has_block {
        return Ok(None);
    }
    if composed.layers.len() > 1 {
        return Err(CliError::config(format!(
            "{file}: {} refuses the block `supervisor`, and a copy without it would not find what `defaults` names beside the file",
            trainer.words().name
        ))
        .hint("put the block's content into supervise.yaml beside the file"));
    }
    let text = files::read_if_there(file)?.unwrap_or_default();
    let text = without_block(&text, "supervisor", file.as_str())?;
    let copy = Copy {
        dir: run_dir.join("config"),
        name: format!("{:016x}.yaml", fnv64(text.as_bytes())),
        text,
    };
    let path = copy.path();
    for word in command.iter_mut() {
        *word = word.replace(CONFIG, path.as_str());
    }
    Ok(Some(copy))
}

/// The file that is read here must be the one that the command names.
pub(super) fn check_same_file(request: &Request, configured: &Configured, out: &ReadOutput) -> Result<(), CliError> {
    let (Some(named), Some(other)) = (&request.config, adapter(out.kind).config_in(configured.call())) else {
        return Ok(());
    };
    let plain = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
    let (here, there) = (
        plain(&place::absolute(&configured.cwd, named)),
        plain(&place::absolute(configured.call_cwd(), Utf8Path::new(&other))),
    );
    if other.contains(CONFIG) || here == there {
        return Ok(());
    }
    Err(
        CliError::config(format!("the command says --config {other}, and {named} is read here"))
            .hint("leave --config out of the command, or name the same file"),
    )
}

/// Directories that the trainer looks for before it starts, and does not make.
pub(super) fn check_there(out: &ReadOutput) -> Result<(), CliError> {
    match out.facts.must_exist.iter().find(|(_, dir)| !dir.exists()) {
        Some((key, dir)) => Err(CliError::config(format!(
            "{key}: there is no directory {dir}: {} ends with FileNotFoundError",
            adapter(out.kind).words().name
        ))
        .hint(format!(
            "make it (mkdir -p {dir}), or set {key} to a directory that every machine of the run sees"
        ))),
        None => Ok(()),
    }
}

/// Where the user's name is a part of the root, the same file would begin anew under another one.
pub(super) fn check_other_user(
    configured: &Configured,
    out: &ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(), CliError> {
    let (Some(file), Some(root)) = (&configured.file, root) else {
        return Ok(());
    };
    let trainer = adapter(out.kind);
    let is_saved = |part: &UserPart, root: &Utf8Path| part.is_saved(root, Utf8Path::exists);
    let Some(now) = trainer.user_part(root).filter(|part| !is_saved(part, root)) else {
        return Ok(());
    };
    let file = elsewhere::plain(file);
    let others = elsewhere::entries().into_iter().filter(|(config, _)| *config == file);
    let mut before = others.filter_map(|(_, other)| Some((trainer.user_part(&other)?, other)));
    let same = before.find(|(p, other)| p.user != now.user && p.place == now.place && is_saved(p, other));
    match same {
        Some((UserPart { user, .. }, other)) => Err(CliError::config(format!(
            "{file} was run before by `{user}`, and what it saved stands in {other}; now the user's name is `{}`, and nothing is in {root}",
            now.user
        ))
        .hint(format!(
            "{} takes the name from LOGNAME, USER, LNAME or USERNAME: start it with LOGNAME={user}",
            trainer.words().name
        ))
        .hint("`--fresh` begins anew in this root")),
        None => Ok(()),
    }
}

/// The user's own number of relaunches counts, unless the settings say one.
pub(super) fn retries(settings: &Settings, out: &ReadOutput, policy: &mut Policy, notes: &mut Vec<String>) {
    let (Some(theirs), Some(key)) = (out.facts.retries, adapter(out.kind).words().retries) else {
        return;
    };
    let origin = settings.explain().into_iter().find(|(key, ..)| key == "retries");
    match origin.filter(|_| settings.is_said("retries")) {
        None => {
            policy.retries = theirs;
            notes.push(format!("{key}={theirs} counts as retries"));
        }
        Some((_, ours, origin)) if policy.retries != theirs => {
            notes.push(format!("retries={ours} ({origin}) counts, not {key}={theirs}"));
        }
        Some(_) => {}
    }
}

/// A checkpoint root that follows from the trainer's configuration cannot be another one.
pub(super) fn check_root(settings: &Settings, out: &ReadOutput) -> Result<(), CliError> {
    let words = adapter(out.kind).words();
    match (&settings.root, &out.root, words.fixed_root) {
        (Some(named), Some(root), Some(by)) if Utf8Path::new(named) != root => Err(CliError::config(format!(
            "supervisor.root is {named}, and {} saves in {root}: it follows from {by}",
            words.name
        ))
        .hint("remove supervisor.root")),
        _ => Ok(()),
    }
}

/// The YAML that a command gives to a trainer's own reader. A Python script of somebody else's may have an option of that name.
/// `named`: the framework that the flags name.
pub(super) fn config_in_command(command: &[String], cwd: &Utf8Path, named: Option<&str>) -> Option<Utf8PathBuf> {
    adapters().find_map(|trainer| {
        let file = Utf8PathBuf::from(trainer.config_in(command)?);
        if file.as_str().contains(['{', '$']) {
            return None;
        }
        let text = files::read_if_there(&cwd.join(&file)).ok().flatten();
        let is_meant = |text: String| trainer.is_config(&text, file.as_str());
        let is_named = named == Some(trainer.framework());
        (is_named || trainer.is_called(command) || text.is_some_and(is_meant)).then_some(file)
    })
}
