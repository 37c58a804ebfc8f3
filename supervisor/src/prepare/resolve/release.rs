//! Release of the trainer that would run: what the settings say, else what the command's own interpreter says.

use crate::error::CliError;
use crate::prepare::discovery::Discovered;
use crate::render::{one_line, shown_command};
use crate::run_order::{Prepared, Release};
use camino::Utf8Path;
use supervise_config::Origin;
use supervise_host::interpreter::{self, Interpreter};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{adapter, registry};

impl Release {
    /// Finds it out. A failure is a reason, never an end: without a version less is known, and that is said.
    pub(super) fn of(d: &Discovered, package: &str) -> Self {
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

    /// Notes for a person about it before the launch.
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

/// Refuses a launch whose trainer is surely not there: the interpreter that would run it was asked, in the directory and the
/// environment of the launch.
///
/// # Errors
/// The trainer cannot be imported.
pub fn check_importable(p: &Prepared) -> Result<(), CliError> {
    let said = p.release.interpreter.as_ref().filter(|said| said.absent);
    let direct =
        |said: &&Interpreter| p.order.spec.learnt.is_none() && is_module_of(&p.order.spec.command, &said.package);
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

/// Returns true if the command is an interpreter, or torchrun, that is told to run a module of this package.
fn is_module_of(command: &[String], package: &str) -> bool {
    let program = command.first().and_then(|w| w.rsplit('/').next()).unwrap_or_default();
    let here = program == "torchrun" || program.starts_with("python");
    let is_module = |pair: &[String]| match pair {
        [flag, name] => {
            let below = name
                .strip_prefix(package)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            (flag == "-m" || flag == "--module") && below
        }
        _ => false,
    };
    here && command.windows(2).any(is_module)
}

/// Asks the interpreter of a configuration's command.
///
/// # Errors
/// Why it said nothing, in words.
pub fn asked(d: &Discovered) -> Result<Interpreter, String> {
    asked_of(d, package(d))
}

fn asked_of(d: &Discovered, package: &str) -> Result<Interpreter, String> {
    match d.sources.left_out() {
        Some(why) => Err(why),
        None => ask(d, package),
    }
}

/// The package that decides over this configuration, or the usual one.
#[must_use]
pub fn package(d: &Discovered) -> &'static str {
    let found = registry::detect(d.call(), d.sources.composed.as_ref());
    let asked = if found.has_releases() { found } else { registry::usual() };
    asked.package().unwrap_or_default()
}

fn ask(d: &Discovered, package: &str) -> Result<Interpreter, String> {
    let usual = ["python3".to_owned()];
    let command = match d.call() {
        [] => &usual,
        words => words,
    };
    let mut env = crate::environment::with(&d.sources.settings.env);
    // What a script has activated before its call.
    env.extend(d.learnt.iter().flat_map(|l| l.env.clone()));
    interpreter::ask(command, d.call_cwd(), &env, package)
}

/// Returns true if where the checkpoints are follows from a default, which releases may set otherwise.
pub(super) fn root_is_default(out: &ReadOutput, named: Option<&Utf8Path>) -> bool {
    let is_default = |key: &&str| {
        out.tree
            .get(key)
            .is_none_or(|n| matches!(n.origin, Origin::Default { .. }))
    };
    named.is_none() && adapter(out.kind).words().root.iter().any(is_default)
}
