//! From the command line to everything a term needs: the specification, what the launches need, the settings.
//!
//! Reads files and looks at the machine, changes nothing. What is wrong is told before a GPU is touched, with its
//! place and what to do next.

mod answer;
mod cluster;
mod command;
mod elsewhere;
mod files;
mod hash;
mod ignored;
mod learn;
mod place;
mod policy;
mod rehearse;
mod room;
mod shown;
mod sources;
mod state_dir;
mod trainer;
mod version;

use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::ops::Deref;
use supervise_config::ConfigTree;
use supervise_config::compose::Composed;
use supervise_config::settings::{AUTO, CgroupChoice, Settings};
use supervise_core::checkpoint::Finding;
use supervise_core::id::RunId;
use supervise_core::script::Learnt;
use supervise_core::spec::RunSpec;
use supervise_host::script::{Shims, Submitter};
use supervise_trainers::read::{ReadInput, ReadOutput};
use supervise_trainers::{TrainerFacts, adapter, read, registry, way};

pub use learn::Learning;
pub use place::{lease_dir, probe, run_id, run_ids_at};
pub use rehearse::{Trial, helper as rehearsal_helper, rehearse, trial};
pub use room::Room;
pub use shown::{shown_command, shown_word};
pub use state_dir::{listed_file, registry_file, registry_files, state_dir};
pub use trainer::Copy;
pub use version::{Release, asked, check_importable, package};

/// What the command line asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The trainer's YAML.
    pub config: Option<Utf8PathBuf>,
    /// `--set`, as written.
    pub set: Vec<String>,
    /// The command after `--`.
    pub command: Vec<String>,
    /// `--observe`.
    pub observe: bool,
    /// `--allow-fresh`.
    pub allow_fresh: bool,
    /// `--fresh`.
    pub fresh: bool,
    /// `--from N`.
    pub from: Option<u64>,
    /// `--no-recovery`.
    pub no_recovery: bool,
    /// Whether a script may be run to learn what it starts.
    pub learning: Learning,
    /// Nothing is said on the way.
    pub quiet: bool,
}

/// Everything a term needs.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What is to be run.
    pub spec: RunSpec,
    /// What every launch needs beside it.
    pub facts: TrainerFacts,
    /// The supervisor's settings.
    pub settings: RunSettings,
    /// Space for checkpoints, where the file system tells.
    pub room: Option<Room>,
    /// What a person should know before the launch.
    pub findings: Vec<Finding>,
    /// Smaller things worth saying.
    pub notes: Vec<String>,
    /// Where this run is listed for `status`.
    pub registry: Option<Utf8PathBuf>,
    /// The configuration as it counts for the trainer.
    pub tree: ConfigTree,
    /// Which release of the trainer would run.
    pub release: Release,
    /// What stands in the way of a script.
    pub shims: Option<Shims>,
    /// What stands in the way of jobs that are handed to Slurm.
    pub submitter: Option<Submitter>,
    /// The trainer's YAML as it is given to the trainer, where it is not the user's own file.
    pub copy: Option<Copy>,
}

/// The settings, with the few values the driver asks for in its own units.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings(pub Settings);

impl RunSettings {
    /// After so many milliseconds a silent holder elsewhere loses the lease.
    #[must_use]
    pub fn lease_ttl_ms(&self) -> u64 {
        u64::try_from(self.0.lease.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    /// Size at which a worker's output is rotated.
    #[must_use]
    pub fn output_max_bytes(&self) -> u64 {
        self.0.output.max_bytes
    }

    /// Rotated files kept per worker.
    #[must_use]
    pub fn output_keep(&self) -> u32 {
        self.0.output.keep
    }

    /// Whether a control group of our own may be used.
    #[must_use]
    pub fn kill_cgroup(&self) -> bool {
        self.0.kill.cgroup == CgroupChoice::Auto
    }
}

impl Deref for RunSettings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

/// What was read before the trainer's own part is understood.
#[derive(Debug)]
pub struct Configured {
    /// The composed YAML, without our block.
    pub composed: Option<Composed>,
    /// The file has a block of ours.
    pub has_block: bool,
    /// Its file, absolute.
    pub file: Option<Utf8PathBuf>,
    /// The settings.
    pub settings: Settings,
    /// `--set` that is the trainer's.
    pub set: Vec<String>,
    /// The command.
    pub command: Vec<String>,
    /// Working directory.
    pub cwd: Utf8PathBuf,
    /// The trainer's call that the command makes, where the command is a script.
    pub learnt: Option<Learnt>,
}

impl Configured {
    /// The words that call the trainer.
    #[must_use]
    pub fn call(&self) -> &[String] {
        self.learnt.as_ref().map_or(&self.command, |l| &l.command)
    }

    /// The directory that the trainer starts in.
    #[must_use]
    pub fn call_cwd(&self) -> &Utf8Path {
        self.learnt.as_ref().map_or(&self.cwd, |l| &l.cwd)
    }
}

/// Reads the YAML and the settings in all their layers.
///
/// # Errors
/// What is wrong with them.
pub fn configure(request: &Request) -> Result<Configured, CliError> {
    let first = layers(request, None)?;
    if !learn::is_needed(&first) {
        return Ok(first);
    }
    match learn::learnt(&first, request.learning, request.quiet)? {
        // It may name a YAML of its own.
        Some(learnt) => layers(request, Some(learnt)),
        None => Ok(first),
    }
}

fn layers(request: &Request, learnt: Option<Learnt>) -> Result<Configured, CliError> {
    let cwd = place::cwd()?;
    let named = request.config.clone();
    let call = learnt.as_ref().map_or(&request.command, |l| &l.command);
    let call_cwd = learnt.as_ref().map_or(&cwd, |l| &l.cwd);
    let (flags, set) = sources::split_set(&request.set)?;
    let says = flags
        .iter()
        .find(|(key, _)| key == "trainer")
        .map(|(_, value)| value.as_str());
    let file = named.or_else(|| files::config_in_command(call)).or_else(|| {
        let file = trainer::config_in_command(call, call_cwd, says)?;
        // A script may have gone elsewhere before its call.
        Some(learnt.as_ref().map_or_else(|| file.clone(), |l| l.cwd.join(&file)))
    });
    let mut composed = match &file {
        Some(path) => Some(files::compose_file(path, call, &set)?),
        None => None,
    };
    let block = composed.as_mut().and_then(|c| c.tree.delete("supervisor").ok());
    let has_block = block.is_some();
    let absolute = file.as_ref().map(|f| place::absolute(&cwd, f));
    let beside = absolute.as_deref().and_then(Utf8Path::parent).unwrap_or(&cwd);
    let settings = sources::load(beside, absolute.as_deref(), block, flags, request)?;
    let command = match request.command.is_empty() {
        true => settings.command.clone().unwrap_or_default(),
        false => request.command.clone(),
    };
    Ok(Configured {
        composed,
        has_block,
        file: absolute,
        settings,
        set,
        command,
        cwd,
        learnt,
    })
}

/// Prepares a run.
///
/// # Errors
/// What is wrong, and with which exit code.
pub fn prepare(request: &Request) -> Result<Prepared, CliError> {
    let cwd = place::cwd()?;
    let config = request.config.as_deref().map(|file| place::absolute(&cwd, file));
    answer::wait_for(
        config
            .iter()
            .filter_map(|file| file.parent())
            .map(Utf8Path::to_owned)
            .chain([cwd]),
    );
    let configured = configure(request)?;
    if configured.learnt.is_none() && learn::is_needed(&configured) {
        return Err(learn::unknown(&configured));
    }
    let (mut out, release) = understand_release(&configured)?;
    command::is_given(&out.command)?;
    answer::wait_for(places(&configured, &out));
    trainer::check_same_file(request, &configured, &out)?;
    trainer::check_there(&out)?;
    let on_cluster = cluster::check(&configured, &out)?;
    let (root, mut notes) = root_of(&configured, &out)?;
    notes.extend(release.note(&out));
    notes.extend(ignored::notes(&configured.settings, out.kind));
    if !request.fresh {
        elsewhere::check_other_root(&configured, &out, root.as_deref())?;
        trainer::check_other_user(&configured, &out, root.as_deref())?;
    }
    if let (Some(_), Some(root), false) = (&configured.learnt, &root, request.fresh) {
        learn::check_moved_root(&configured, &out, root)?;
    }
    let (run, run_dir) = identity(&configured, &mut out, root.as_deref())?;
    notes.extend(place::gone(&run, &run_dir));
    place::check_owner(&run_dir, &run)?;
    place::check_space(&run_dir)?;
    if let Some(root) = &root {
        place::check_writable(root)?;
    }
    place::check_resume_path(&out, &run_dir)?;
    let gang = policy::gang(&configured.settings, &out, &mut notes);
    let started = configured.learnt.as_ref().map_or(&out.command, |_| &configured.command);
    command::check(started, &configured.cwd, &configured.settings.env)?;
    let (learnt, shims) = script_parts(&configured, &out, &mut notes)?;
    let jobs = adapter(out.kind).jobs(&out.saves).is_some();
    let submitter = jobs.then(learn::submitter).transpose().unwrap_or_else(|e| {
        notes.push(format!(
            "jobs of Slurm's cannot be marked, so that none is cancelled: {e}"
        ));
        None
    });
    let config_hash = hash::config_hash(&out, &configured, release.version.as_deref());
    let mut command = std::mem::take(&mut out.command);
    let copy = trainer::copy(&configured, &out, &run_dir, &mut command)?;
    let mut policy = policy::policy(&configured.settings, request, &out, &command);
    trainer::retries(&configured.settings, &out, &mut policy, &mut notes);
    let mut spec = RunSpec {
        config_hash,
        trainer: out.kind,
        trainer_version: release.version.clone(),
        root,
        run_dir,
        config_file: configured.file.clone(),
        cwd: configured.cwd.clone(),
        env: configured.settings.env.clone(),
        world: policy::world(&out, &gang),
        gang,
        cadence: out.cadence,
        last_step: out.last_step,
        roles: out.roles,
        resume: out.resume,
        keep: out.keep,
        policy,
        not_restored: out.not_restored,
        saves: out.saves,
        command: if learnt.is_some() {
            configured.command.clone()
        } else {
            command
        },
        learnt,
        run,
    };
    let prefix = adapter(spec.trainer).step_prefix();
    let room = spec.root.as_deref().and_then(|root| Room::of(root, prefix));
    let mut findings = out.findings;
    findings.extend(
        room.iter()
            .flat_map(|room| room::check(room, spec.keep, &mut spec.policy)),
    );
    findings.extend(on_cluster);
    findings.extend(adapter(spec.trainer).preflight(&spec, &out.facts));
    Ok(Prepared {
        registry: registry_file(&spec.run),
        spec,
        facts: out.facts,
        settings: RunSettings(configured.settings),
        room,
        findings,
        notes,
        tree: out.tree,
        release,
        shims,
        submitter,
        copy,
    })
}

/// Directories that a run saves in.
fn places(configured: &Configured, out: &ReadOutput) -> Vec<Utf8PathBuf> {
    let settings = [&configured.settings.root, &configured.settings.run_dir];
    let said = settings.into_iter().flatten().map(Utf8PathBuf::from);
    let theirs = out
        .root
        .clone()
        .into_iter()
        .chain(out.saves.in_place().map(|place| place.store.clone()));
    let all = said.chain(theirs).map(|place| place::absolute(&configured.cwd, &place));
    all.collect()
}

/// What a launch needs of a script: the call that was learnt, and what stands in its way.
fn script_parts(
    configured: &Configured,
    out: &ReadOutput,
    notes: &mut Vec<String>,
) -> Result<(Option<Learnt>, Option<Shims>), CliError> {
    let Some(mut learnt) = configured.learnt.clone() else {
        return Ok((None, None));
    };
    learnt.ahead = way::added(&learnt.command, &out.command);
    let leaves = out.tree.leaves();
    let values: Vec<String> = leaves
        .iter()
        .map(|(_, n)| supervise_config::python_str(&n.value))
        .collect();
    let texts = learnt.command.iter().chain(&values).map(String::as_str);
    learnt.env = learn::mentioned(&learnt.env, texts);
    notes.push(format!(
        "the script starts: {}",
        crate::render::one_line(&shown_command(&learnt.command), 400)
    ));
    notes.push(
        "what the script does before that call it does again at each launch; our overrides are put into the call itself"
            .to_owned(),
    );
    Ok((Some(learnt), Some(learn::shims(configured)?)))
}

/// Memory that looking into checkpoints may take where no run is named: `proof.memory` in bytes.
///
/// # Errors
/// A settings file or variable that cannot be read.
pub fn proof_memory() -> Result<u64, CliError> {
    sources::proof_memory()
}

/// A run's name and place, for commands that only look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// Identity.
    pub run: RunId,
    /// Directory of the journal.
    pub run_dir: Utf8PathBuf,
    /// Canonical checkpoint root.
    pub root: Option<Utf8PathBuf>,
    /// Memory that looking into its checkpoints may take, in bytes.
    pub memory: u64,
}

/// Which run a configuration speaks of, whether or not it could be started now.
///
/// # Errors
/// What is wrong with the configuration.
pub fn identify(request: &Request) -> Result<Identified, CliError> {
    let mut configured = configure(request)?;
    // Whether it could be resumed is another question.
    configured.settings.recovery = false;
    // The interpreter is asked only where a release's own default may say where the checkpoints are.
    let named = configured.settings.root.as_deref().map(Utf8Path::new);
    let mut out = match understand(&configured, configured.settings.trainer_version.as_deref()) {
        Ok(out) if !version::root_is_default(&out, named) => out,
        _ => understand_release(&configured)?.0,
    };
    let (root, _) = root_of(&configured, &out)?;
    let (run, run_dir) = identity(&configured, &mut out, root.as_deref())?;
    Ok(Identified {
        run,
        run_dir,
        root,
        memory: configured.settings.proof.memory,
    })
}

/// A run's identity, and the directory of its journal.
fn identity(
    configured: &Configured,
    out: &mut ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(RunId, Utf8PathBuf), CliError> {
    let cwd = &configured.cwd;
    let run = run_id(out.kind, root, cwd, &out.command);
    let store = place::store(out)?;
    let run_dir = place::run_dir(&configured.settings, root, store.as_deref(), &run, cwd)?;
    Ok((run, run_dir))
}

/// The trainer's configuration as it counts, as far as it is read here.
///
/// # Errors
/// What is wrong with the configuration.
pub fn effective(configured: &Configured) -> Result<ConfigTree, CliError> {
    Ok(understand_release(configured)?.0.tree)
}

/// The trainer's own part, read as the release that would run reads it.
fn understand_release(configured: &Configured) -> Result<(ReadOutput, Release), CliError> {
    let version = configured.settings.trainer_version.as_deref();
    let first = understand(configured, version);
    if let Ok(read) = &first
        && !adapter(read.kind).has_releases()
    {
        return Ok((read.clone(), Release::default()));
    }
    // What is wrong for a release that is not known may be right for the one that would run.
    let trainer = registry::named(configured.settings.trainer.as_str()).map(adapter);
    let trainer = trainer.unwrap_or_else(|| registry::detect(configured.call(), configured.composed.as_ref()));
    let Some(package) = trainer.package().filter(|_| trainer.has_releases()) else {
        return Ok((first?, Release::default()));
    };
    let release = Release::of(configured, package);
    match release.version.as_deref() == version {
        true => Ok((first?, release)),
        false => Ok((understand(configured, release.version.as_deref())?, release)),
    }
}

/// The trainer's own part.
fn understand(configured: &Configured, version: Option<&str>) -> Result<ReadOutput, CliError> {
    let named = configured.settings.trainer.as_str();
    let kind = registry::named(named);
    let user = place::user();
    let input = ReadInput {
        composed: configured.composed.as_ref(),
        config_file: configured.file.as_deref(),
        set: &configured.set,
        command: configured.call(),
        cwd: configured.call_cwd(),
        env: &|name| {
            let learnt = configured.learnt.as_ref().and_then(|l| l.env.get(name));
            learnt
                .or_else(|| configured.settings.env.get(name))
                .cloned()
                .or_else(|| std::env::var(name).ok())
        },
        workers: configured.settings.gang.workers,
        launcher: policy::launcher(&configured.settings),
        user: user.as_deref(),
        kind,
        recovery: configured.settings.recovery,
        recovery_said: configured.settings.is_said("recovery"),
        starts_ray: configured.learnt.as_ref().is_some_and(|l| l.starts_ray),
        version,
    };
    if input.composed.is_none() && input.command.is_empty() {
        return Err(
            CliError::usage("neither a trainer's YAML nor a command is given").hint(format!(
                "supervise run ppo.yaml, or supervise run -- python3 -m {} …",
                registry::entry()
            )),
        );
    }
    let mut out = read(&input).map_err(|e| CliError::of_config(&e))?;
    if configured.learnt.is_some() && configured.settings.gang.workers.is_none() {
        policy::one_script(&mut out);
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
        false => command::is_given(&out.command).map(|()| out),
    }
}

/// The canonical checkpoint root, and what is worth saying about it.
fn root_of(configured: &Configured, out: &ReadOutput) -> Result<(Option<Utf8PathBuf>, Vec<String>), CliError> {
    if !adapter(out.kind).has_steps() {
        return Ok((None, Vec::new()));
    }
    trainer::check_root(&configured.settings, out)?;
    let named = match &configured.settings.root {
        Some(text) => Some(place::absolute(&configured.cwd, Utf8Path::new(text))),
        None => out.root.clone(),
    };
    let Some(named) = named else {
        let key = adapter(out.kind).words().root.first().unwrap_or(&"root");
        return Err(
            CliError::config(format!("the configuration names no checkpoint root ({key})"))
                .hint(format!("set {key}, or supervisor.root")),
        );
    };
    let root = place::canonical("checkpoint root", &named)?;
    let mut notes = Vec::new();
    if root != named {
        notes.push(format!("the checkpoint root {named} is {root}"));
    }
    Ok((Some(root), notes))
}
