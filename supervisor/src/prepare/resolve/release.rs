//! The trainer release that would run: by the settings, or else by the command's own interpreter.

use crate::error::CliError;
use crate::path_access;
use crate::prepare::discovery::DiscoveredCommand;
use crate::render::{one_line, shown_command};
use crate::run_order::{PreparedRun, TrainerRelease};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::ValueOrigin;
use supervise_host::interpreter::{self, PythonInfo};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{adapter, registry};

impl TrainerRelease {
    /// Finds out the release. A failure is only noted: less is known without a version.
    pub(super) fn of(d: &DiscoveredCommand, package: &str) -> Self {
        if let Some(version) = &d.sources.settings.trainer_version {
            return Self {
                version: Some(version.clone()),
                ..Self::default()
            };
        }
        match asked_of(d, package) {
            Err(why) => Self {
                why: Some(why),
                ..Self::default()
            },
            Ok(said) => {
                let version = said.version().map(str::to_owned);
                let why = match (&version, said.source()) {
                    (Some(_), _) => None,
                    (None, Some(source)) => Some(format!("{} does not say its version", source.at)),
                    (None, None) => Some(format!("{package} cannot be imported by {}", said.program)),
                };
                Self {
                    version,
                    interpreter: Some(said),
                    why,
                }
            }
        }
    }

    /// Refuses a call of a module that the package does not contain: its directory exists without such a file.
    ///
    /// # Errors
    /// There is no such module.
    pub(super) fn check_module(&self, command: &[String]) -> Result<(), CliError> {
        let found = self.interpreter.as_ref().and_then(|said| {
            let module = module_of(command, &said.package)?;
            Some((said, Utf8Path::new(&said.source()?.at), module))
        });
        let Some((said, at, module)) = found else { return Ok(()) };
        let below = module[said.package.len()..].trim_start_matches('.').replace('.', "/");
        let is_there = |path: Utf8PathBuf| path_access::is_file(&path);
        let is_module =
            below.is_empty() || is_there(at.join(format!("{below}.py"))) || path_access::is_dir(&at.join(&below));
        if is_module || !is_there(at.join("__init__.py")) {
            return Ok(());
        }
        let version = self.version.as_deref().unwrap_or("of an unknown version");
        Err(CliError::config(format!(
            "{} {version}, which lies in {at}, has no module {module}: `{}` would end at once",
            said.package,
            one_line(&shown_command(command), 200)
        ))
        .hint("name the entry point that it has: supervise run … -- python3 -m MODULE …")
        .hint("or activate the environment of the release that is meant"))
    }

    /// A note about the release, shown before the launch.
    pub(in crate::prepare) fn note(&self, out: &ReadOutput) -> Option<String> {
        let why = self
            .why
            .as_ref()
            .filter(|_| adapter(out.kind).is_called(&out.command))?;
        Some(format!(
            "which release of {} will run is not known: {why}; supervisor.trainer_version can say it",
            adapter(out.kind).words().name
        ))
    }
}

/// Refuses a launch whose trainer is not installed, as its interpreter reported in the directory and environment of the launch.
///
/// # Errors
/// The trainer cannot be imported.
pub fn check_importable(p: &PreparedRun) -> Result<(), CliError> {
    let said = p.release.interpreter.as_ref().filter(|said| said.absent);
    let direct =
        |said: &&PythonInfo| p.order.spec.learnt.is_none() && is_module_of(&p.order.spec.command, &said.package);
    let Some(said) = said.filter(direct) else {
        return Ok(());
    };
    let entry = adapter(p.order.spec.trainer).words().entry;
    let (below, _) = entry.unwrap_or_default();
    let command = shown_command(&p.order.spec.command);
    Err(CliError::config(format!(
        "{} cannot be imported by {} (Python {}), which `{}` would run it with: nothing was started",
        said.package,
        said.program,
        said.python,
        one_line(&command, 200)
    ))
    .hint(format!("activate the environment that holds it, or name its interpreter: supervise run … -- /path/to/venv/bin/python3 -m {below}…"))
    .hint("a source checkout is found from its own directory, or by PYTHONPATH")
    .hint("where that is not so, supervisor.trainer_version says which release runs, and nothing is asked"))
}

/// Returns true if the command runs a module of this package.
fn is_module_of(command: &[String], package: &str) -> bool {
    module_of(command, package).is_some()
}

/// The module of this package that an interpreter or torchrun is to run.
fn module_of<'a>(command: &'a [String], package: &str) -> Option<&'a str> {
    let program = command.first().and_then(|w| w.rsplit('/').next()).unwrap_or_default();
    let here = program == "torchrun" || program.starts_with("python");
    let module = |pair: &'a [String]| match pair {
        [flag, name] if flag == "-m" || flag == "--module" => {
            let rest = name.strip_prefix(package)?;
            (rest.is_empty() || rest.starts_with('.')).then_some(name.as_str())
        }
        _ => None,
    };
    command.windows(2).filter(|_| here).find_map(module)
}

/// Asks the interpreter of a configuration's command.
///
/// # Errors
/// Why it did not answer.
pub fn asked(d: &DiscoveredCommand) -> Result<PythonInfo, String> {
    asked_of(d, package(d))
}

fn asked_of(d: &DiscoveredCommand, package: &str) -> Result<PythonInfo, String> {
    match d.sources.left_out() {
        Some(why) => Err(why),
        None => ask(d, package),
    }
}

/// The package that determines this configuration, or the default one.
#[must_use]
pub fn package(d: &DiscoveredCommand) -> &'static str {
    let found = registry::detect(d.call(), d.sources.composed.as_ref());
    let asked = if found.has_releases() { found } else { registry::usual() };
    asked.package().unwrap_or_default()
}

fn ask(d: &DiscoveredCommand, package: &str) -> Result<PythonInfo, String> {
    let usual = ["python3".to_owned()];
    let command = match d.call() {
        [] => &usual,
        words => words,
    };
    let mut env = crate::environment::with(&d.sources.settings.env);
    // Variables that a script set before its call.
    env.extend(d.learnt.iter().flat_map(|l| l.env.clone()));
    interpreter::ask(command, d.call_cwd(), &env, package)
}

/// Returns true if a default, which may differ between releases, decides where the checkpoints are.
pub(super) fn root_is_default(out: &ReadOutput, named: Option<&Utf8Path>) -> bool {
    let is_default = |key: &&str| {
        out.tree
            .get(key)
            .is_none_or(|n| matches!(n.origin, ValueOrigin::Default { .. }))
    };
    named.is_none() && adapter(out.kind).words().root.iter().any(is_default)
}
