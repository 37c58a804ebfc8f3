//! Reads the trainer's configuration as the release that would run reads it, and identifies the run.

mod cadence;
mod compose;
mod identity;
mod release;

pub(super) use identity::RunDirOwner;
pub use identity::run_ids_at;
pub use release::{asked, check_importable, package};

use super::command;
use super::discovery::DiscoveredCommand;
use super::path::{absolute, canonical};
use super::sources;
use crate::error::CliError;
use crate::path_access;
use crate::render::proposed;
use crate::run_order::TrainerRelease;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::ConfigTree;
use supervise_config::settings::{AUTO, LauncherChoice, Settings};
use supervise_core::id::RunId;
use supervise_core::spec::{GangSpec, LauncherKind, TrainerKind};
use supervise_host::cluster;
use supervise_trainers::read::{ReadInput, ReadOutput};
use supervise_trainers::{TrainerAdapter, adapter, read, registry};

/// Maximum number of bytes read of a launcher's file.
const LAUNCHER_FILE: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Resolved {
    pub discovered: DiscoveredCommand,
    pub out: ReadOutput,
    pub release: TrainerRelease,
    /// Canonical checkpoint root.
    pub root: Option<Utf8PathBuf>,
    pub run: RunId,
    /// Directory of the journal.
    pub run_dir: Utf8PathBuf,
    /// Directory for what must not be in the checkpoint root, if the trainer bears nothing of ours in it.
    pub store: Option<Utf8PathBuf>,
    pub notes: Vec<String>,
}

/// A run's name and location, for read-only commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    pub run: RunId,
    /// Directory of the journal.
    pub run_dir: Utf8PathBuf,
    /// Canonical checkpoint root.
    pub root: Option<Utf8PathBuf>,
    /// Memory for reading its checkpoints, in bytes.
    pub memory: u64,
}

impl DiscoveredCommand {
    pub(super) fn resolve(self) -> Result<Resolved, CliError> {
        let (out, release) = understand_release(&self)?;
        is_started(&self, &out)?;
        release.check_module(&out.command)?;
        self.placed(out, release)
    }

    /// The trainer's effective configuration, as far as it is read here.
    ///
    /// # Errors
    /// Problems of the configuration.
    pub fn effective(&self) -> Result<ConfigTree, CliError> {
        Ok(understand_release(self)?.0.tree)
    }

    /// Identifies the run, whether or not it could be started now.
    ///
    /// # Errors
    /// Problems of the configuration.
    pub fn identify(mut self) -> Result<Identified, CliError> {
        // Whether it could be resumed does not matter here.
        self.sources.settings.recovery = false;
        // Ask the interpreter only if a default of the release may decide where the checkpoints are.
        let settings = &self.sources.settings;
        let named = settings.root.as_deref().map(Utf8Path::new);
        let out = match understand(&self, settings.trainer_version.as_deref()) {
            Ok(out) if !release::root_is_default(&out, named) => out,
            _ => understand_release(&self)?.0,
        };
        let found = self.placed(out, TrainerRelease::default())?;
        Ok(Identified {
            run: found.run,
            run_dir: found.run_dir,
            root: found.root,
            memory: found.discovered.sources.settings.proof.memory,
        })
    }

    fn placed(self, mut out: ReadOutput, release: TrainerRelease) -> Result<Resolved, CliError> {
        let settings = &self.sources.settings;
        let cwd = &self.sources.cwd;
        let (root, notes) = root_of(settings, cwd, &out)?;
        let run = identity::identify(settings, out.kind, root.as_deref(), cwd, &out.command)?;
        let store = identity::store(&mut out, root.as_deref())?;
        let run_dir = identity::run_dir(settings, root.as_deref(), store.as_deref(), &run, cwd)?;
        Ok(Resolved {
            discovered: self,
            out,
            release,
            root,
            run,
            run_dir,
            store,
            notes,
        })
    }
}

/// Checks that there is a command; if not, the error names the trainer and the command that would start it.
fn is_started(d: &DiscoveredCommand, out: &ReadOutput) -> Result<(), CliError> {
    let trainer = adapter(out.kind);
    let given = command::is_given(&out.command, d.sources.request.config.as_deref());
    let Some(proposal) = trainer.proposal(&out.tree).filter(|_| given.is_err()) else {
        return given;
    };
    let mut words = d.sources.request.again(&["run"], &[]);
    words.push("--".to_owned());
    words.extend(proposal);
    let name = trainer.words().name;
    let text = format!("this is a configuration of {name}, which a script of yours starts: nothing says which one");
    Err(CliError::config(text).hint(proposed(&words)))
}

/// Reads the trainer's part as the release that would run reads it.
fn understand_release(d: &DiscoveredCommand) -> Result<(ReadOutput, TrainerRelease), CliError> {
    let trainer = trainer(d);
    let Some(package) = trainer.package().filter(|_| trainer.has_releases()) else {
        let said = d.sources.settings.trainer_version.as_deref();
        return Ok((understand(d, said)?, TrainerRelease::default()));
    };
    let release = TrainerRelease::of(d, package);
    Ok((compose::read(d, trainer, &release)?, release))
}

/// The trainer: by the settings, or else by the command or the YAML.
fn trainer(d: &DiscoveredCommand) -> &'static dyn TrainerAdapter {
    kind(d).map_or_else(|| registry::detect(d.call(), d.sources.composed.as_ref()), adapter)
}

/// The trainer that was named or declared.
fn kind(d: &DiscoveredCommand) -> Option<TrainerKind> {
    match &d.sources.declared {
        Some(found) => Some(found.declaration.kind()),
        None => registry::named(d.sources.settings.trainer.as_str()),
    }
}

fn understand(d: &DiscoveredCommand, version: Option<&str>) -> Result<ReadOutput, CliError> {
    understand_with(d, version, None, &mut |_| ())
}

/// The same for a configuration that the trainer composed. `seen` receives what it is read from.
fn understand_with(
    d: &DiscoveredCommand,
    version: Option<&str>,
    printed: Option<&ConfigTree>,
    seen: &mut dyn FnMut(&ReadInput<'_>),
) -> Result<ReadOutput, CliError> {
    if d.sources.composed.is_none() && d.call().is_empty() {
        return Err(
            CliError::usage("neither a trainer's YAML nor a command is given").hint(format!(
                "supervise run ppo.yaml, or supervise run -- python3 -m {} …",
                registry::entry()
            )),
        );
    }
    let settings = &d.sources.settings;
    let named = settings.trainer.as_str();
    let kind = kind(d);
    let user = supervise_host::system::user_name();
    let input = ReadInput {
        composed: d.sources.composed.as_ref(),
        config_file: d.sources.file.as_deref(),
        set: &d.sources.set,
        command: d.call(),
        cwd: d.call_cwd(),
        env: &|name| {
            let learnt = d.learnt.as_ref().and_then(|l| l.env.get(name));
            learnt
                .or_else(|| settings.env.get(name))
                .cloned()
                .or_else(|| std::env::var(name).ok())
        },
        file: &|path| {
            let (text, _) = path_access::read_small(path, LAUNCHER_FILE).ok()?;
            // A truncated file may name more.
            ((text.len() as u64) < LAUNCHER_FILE).then_some(text)
        },
        workers: settings.gang.workers,
        launcher: launcher(settings),
        user: user.as_deref(),
        kind,
        recovery: settings.recovery,
        recovery_said: settings.is_said("recovery"),
        may_start_ray: may_start_ray(d),
        starts_ray: d.learnt.as_ref().is_some_and(|l| l.starts_ray),
        version,
        printed,
    };
    seen(&input);
    if let Some(error) = nowhere(d) {
        return Err(error);
    }
    let mut out = read(&input).map_err(|e| match cadence::proposal(d, &e, trainer(d)) {
        Some(command) => CliError::of_config(&e).hint(command),
        None => CliError::of_config(&e),
    })?;
    sources::know_secrets(&out.tree);
    if d.learnt.is_some() && settings.gang.workers.is_none() {
        one_script(&mut out);
    }
    let is_lost = kind.is_none() && named != AUTO && !adapter(out.kind).has_steps();
    if is_lost {
        let e = CliError::config(format!(
            "trainer is set to {named}, but neither the command nor the YAML tells which of its trainers it is"
        ));
        return Err(registry::entries(named).fold(e, CliError::hint));
    }
    match adapter(out.kind).is_run_by_file() {
        true => Ok(out),
        false => command::is_given(&out.command, d.sources.request.config.as_deref()).map(|()| out),
    }
}

/// The error for a named configuration that exists neither here nor in the trainer's installation.
fn nowhere(d: &DiscoveredCommand) -> Option<CliError> {
    let composed = d.sources.composed.as_ref()?;
    let brings_none = trainer(d).own_configs().is_empty();
    (brings_none && !composed.unknown.is_empty()).then(|| CliError::of_config(&composed.unknown))
}

fn launcher(s: &Settings) -> Option<LauncherKind> {
    match s.gang.launcher {
        LauncherChoice::Auto => None,
        LauncherChoice::Driver => Some(LauncherKind::Driver),
        LauncherChoice::Gang => Some(LauncherKind::Gang),
        LauncherChoice::Ray => Some(LauncherKind::Ray),
    }
}

/// Returns true if this program may start Ray over several nodes: in a Slurm job, unless a cluster is running already or a script
/// handles it.
fn may_start_ray(d: &DiscoveredCommand) -> bool {
    let settings = &d.sources.settings;
    match settings.gang.launcher {
        LauncherChoice::Ray => true,
        LauncherChoice::Driver | LauncherChoice::Gang => false,
        LauncherChoice::Auto => {
            let env = || crate::environment::with(&settings.env);
            d.learnt.is_none() && std::env::var_os("SLURM_JOB_ID").is_some() && !cluster::is_here(&env())
        }
    }
}

/// A script is started once and starts its own workers; a trainer that it starts without torchrun keeps its number of ranks.
fn one_script(out: &mut ReadOutput) {
    if out.gang.launcher == LauncherKind::Gang {
        out.gang = GangSpec {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: Vec::new(),
        };
        out.world = None;
    }
}

/// The canonical checkpoint root, with notes about it.
fn root_of(
    settings: &Settings,
    cwd: &Utf8Path,
    out: &ReadOutput,
) -> Result<(Option<Utf8PathBuf>, Vec<String>), CliError> {
    if !adapter(out.kind).has_steps() {
        return Ok((None, Vec::new()));
    }
    check_root(settings, out)?;
    let named = match &settings.root {
        Some(text) => Some(absolute(cwd, Utf8Path::new(text))),
        None => out.root.clone(),
    };
    let Some(named) = named else {
        let plain = "`--set supervisor.trainer=plain` starts it without protecting its checkpoints";
        let key = adapter(out.kind).words().root.first();
        return Err(match key.filter(|key| **key != "supervisor.root") {
            Some(key) => CliError::config(format!("the configuration names no checkpoint root ({key})"))
                .hint(format!("set {key} or supervisor.root; {plain}")),
            None => CliError::config("supervisor.root is not set: nothing says where the checkpoints are").hint(
                format!("add `--set supervisor.root=DIR`, the directory that they are saved in; {plain}"),
            ),
        });
    };
    let root = canonical("checkpoint root", &named)?;
    let mut notes = Vec::new();
    if root != named {
        notes.push(format!("the checkpoint root {named} is {root}"));
    }
    Ok((Some(root), notes))
}

/// Refuses a setting for the checkpoint root that contradicts the trainer's configuration.
fn check_root(settings: &Settings, out: &ReadOutput) -> Result<(), CliError> {
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
