//! Reads a run's files, environment and flags: the trainer's YAML with the files it names, and the settings.

mod declared;
mod files;
mod settings;
mod trust;

use declared::ChoiceInput;
pub use settings::proof_memory;
use trust::FileTrust;

pub(super) use declared::check_change;
pub(super) use files::read_if_there;

use super::path::{absolute, cwd};
use super::request::PrepareRequest;
use crate::declared_files::FoundDeclaration;
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::compose::ComposedConfig;
use supervise_config::settings::Settings;
use supervise_config::{ConfigTree, ConfigValue, know_secret, know_words};
use supervise_core::spec::script::LearnedCall;
use supervise_trainers::registry::adapters;

/// Input that was read but not yet interpreted.
#[derive(Debug)]
pub struct RunSources {
    pub request: PrepareRequest,
    /// The composed YAML, without our block.
    pub composed: Option<ComposedConfig>,
    /// Whether the file has a block of ours.
    pub has_block: bool,
    /// Its file, absolute.
    pub file: Option<Utf8PathBuf>,
    pub settings: Settings,
    /// `--set` values for the trainer.
    pub set: Vec<String>,
    pub command: Vec<String>,
    pub cwd: Utf8PathBuf,
    /// The declaration of the trainer, if it is no built-in one.
    pub(crate) declared: Option<FoundDeclaration>,
    /// Who owns the files.
    pub trust: FileTrust,
}

impl RunSources {
    /// Reads them. The call in a script may name another YAML.
    pub(super) fn read(request: PrepareRequest, learnt: Option<&LearnedCall>) -> Result<Self, CliError> {
        let cwd = cwd()?;
        let call = learnt.map_or(&request.command, |l| &l.command);
        let call_cwd = learnt.map_or(&cwd, |l| &l.cwd);
        let (flags, set) = settings::split_set(&request.set)?;
        let says = flags.iter().find(|(key, _)| key == "trainer");
        let says = says.map(|(_, value)| value.as_str());
        let named = request.config.clone().or_else(|| files::config_in_command(call));
        let file = named.or_else(|| {
            let file = config_in_command(call, call_cwd, says)?;
            // A script may change its directory before the call.
            Some(learnt.map_or_else(|| file.clone(), |l| l.cwd.join(&file)))
        });
        let mut trust = FileTrust::default();
        let mut composed = match &file {
            Some(path) => Some(files::compose_file(path, call, &set, &mut trust)?),
            None => None,
        };
        if let Some(composed) = &composed {
            know_secrets(&composed.tree);
            trust.notes.extend(settings::check_block(&composed.tree)?);
        }
        settings::check_meant(&set, composed.as_ref().map(|c| &c.tree))?;
        know_words(call);
        know_words(&set);
        let block = composed.as_mut().and_then(|c| c.tree.delete(settings::BLOCK).ok());
        let has_block = block.is_some();
        let file = file.as_ref().map(|f| absolute(&cwd, f));
        let beside = file.as_deref().and_then(Utf8Path::parent).unwrap_or(&cwd);
        let settings = settings::load(beside, file.as_deref(), block, flags, &request, &mut trust)?;
        for (name, value) in &settings.env {
            know_secret(name, value);
        }
        know_words(settings.command.as_deref().unwrap_or_default());
        let command = match request.command.is_empty() {
            true => settings.command.clone().unwrap_or_default(),
            false => request.command.clone(),
        };
        let declared = declared::choose(
            &ChoiceInput {
                settings: &settings,
                composed: composed.as_ref(),
                command: if learnt.is_some() { call } else { &command },
                cwd: &cwd,
            },
            &mut trust,
        )?;
        Ok(Self {
            declared,
            request,
            composed,
            has_block,
            file,
            settings,
            set,
            command,
            cwd,
            trust,
        })
    }

    /// Why a read-only command starts no program to find out more: another user wrote one of the files. Printed, unless the command
    /// shows it itself.
    pub(super) fn left_out(&self) -> Option<String> {
        trust::left_out(&self.trust, &self.request)
    }

    /// Likewise, why the script may not be run to find out what it starts.
    pub(super) fn script_left_out(&self) -> Option<String> {
        let looks = !self.request.acts;
        let of_script = || {
            looks
                .then(|| trust::distrusted_script(&self.command, &self.cwd))
                .flatten()
        };
        self.left_out().or_else(of_script)
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let warning = trust::warning(&self.trust, &self.request);
        let listed = self.trust.listed();
        let notes = self.trust.notes.iter().cloned();
        notes.chain(warning).chain(self.left_out()).chain(listed).collect()
    }
}

/// Hides the values of a configuration's secret keys from now on.
pub(super) fn know_secrets(tree: &ConfigTree) {
    for (path, node) in tree.leaves() {
        if let ConfigValue::Str(value) = &node.value {
            know_secret(&path, value);
        }
    }
}

/// The YAML that a command passes to a trainer's own reader. A foreign Python script may have an option of that name. `named`: the
/// framework in the flags.
fn config_in_command(command: &[String], cwd: &Utf8Path, named: Option<&str>) -> Option<Utf8PathBuf> {
    let files = adapters().flat_map(|a| a.configs_in(command).into_iter().map(move |file| (a, file)));
    let files = files.filter(|(_, file)| !file.contains(['{', '$']));
    let found = files
        .map(|(a, file)| (a, Utf8PathBuf::from(file)))
        .find(|(trainer, file)| {
            let text = || read_if_there(&cwd.join(file)).ok().flatten();
            let is_named = named == Some(trainer.framework());
            is_named || trainer.is_called(command) || text().is_some_and(|text| trainer.is_config(&text, file.as_str()))
        });
    found.map(|(_, file)| file)
}
