//! What only the trainer can say: its configuration, composed by the interpreter that will run it.
//!
//! Asked where no table here knows its release, its configuration or its entry point, and only by commands that would run its code
//! anyway. What it said last is kept without secrets in this user's state directory, for the commands that only look.

use super::{identity, root_of, understand_with};
use crate::control;
use crate::environment;
use crate::error::CliError;
use crate::prepare::discovery::Discovered;
use crate::prepare::state_dir::state_dir;
use crate::printer;
use crate::rehearse::{Complaint, ask, source_of};
use crate::render::{one_line, shown_command};
use crate::run_order::Release;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use supervise_config::{ConfigTree, MAX_BYTES, redacted_yaml};
use supervise_core::checkpoint::Finding;
use supervise_core::id::fnv64;
use supervise_host::io_worker::{own_place, read_own, write_whole};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::rehearsal::{configuration, parsed};
use supervise_trainers::{Adapter, Asks};

/// Variables that decide which files are imported, beside the interpreter itself.
const IMPORTS: [&str; 3] = ["PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
/// Answers that are kept.
const KEPT: usize = 64;

/// The trainer's own part, asked of the trainer where it has to be.
pub(super) fn read(d: &Discovered, trainer: &dyn Adapter, release: &Release) -> Result<ReadOutput, CliError> {
    let version = release.version.as_deref();
    let mut asks = None;
    let first = understand_with(d, version, None, &mut |input| asks = trainer.asks(input));
    let Some(asks) = asks else { return first };
    let env = environment_of(d);
    let file = file_of(d, &asks, release, &env);
    let kept = file.as_deref().and_then(kept);
    let tree = match kept {
        // Workers that wait for a supervisor do not wait for a question.
        Some(tree) if !d.sources.request.asking || lives(d, version, &tree) => tree,
        _ if d.sources.request.asking && !answers(d, &asks, &env) => {
            let (_, word) = asks.only_if.clone().unwrap_or_default();
            let why = format!("its file does not name {word}, so that it is not asked: it might train instead");
            let unknown = first.map_err(|_| {
                CliError::config("what the command saves is not known")
                    .hint("--set supervisor.trainer=plain supervises it as it is")
            });
            return without(unknown, &asks, &why);
        }
        _ if d.sources.request.asking => match asked(d, &asks, env) {
            Ok(text) => {
                let Some(tree) = configuration(&text) else {
                    return without(unanswered(first, d, "it printed none"), &asks, "it was asked itself");
                };
                keep(file.as_deref(), &tree);
                tree
            }
            Err(Complaint { refused: Some(key), .. }) => {
                return Err(CliError::config(format!(
                    "`{}` itself does not take the override of {key}: every launch would fail",
                    shown(d)
                )));
            }
            Err(complaint) => return without(unanswered(first, d, &complaint.text), &asks, "it was asked itself"),
        },
        _ => {
            let how = "`supervise plan --learn` asks the trainer itself, which runs its code; `supervise run` does the same first";
            return without(first, &asks, how);
        }
    };
    let mut out = understand_with(d, version, Some(&tree), &mut |_| ())?;
    let told = format!("{}: the trainer itself composed what is read here", asks.why);
    out.findings.insert(0, Finding::note("composed_by_trainer", told));
    Ok(out)
}

/// Whether a guard of the run lives that this configuration is of.
fn lives(d: &Discovered, version: Option<&str>, tree: &ConfigTree) -> bool {
    let place = |out: ReadOutput| {
        let (root, _) = root_of(&d.sources.settings, &d.sources.cwd, &out).ok()?;
        Some(identity::run_id(
            out.kind,
            root.as_deref(),
            &d.sources.cwd,
            &out.command,
        ))
    };
    let read = understand_with(d, version, Some(tree), &mut |_| ());
    read.ok().and_then(place).is_some_and(|run| control::guard_lives(&run))
}

/// What is read without an answer, with why there is none.
fn without(first: Result<ReadOutput, CliError>, asks: &Asks, why: &str) -> Result<ReadOutput, CliError> {
    let told = format!("{}: {why}", asks.why);
    let mut out = first.map_err(|e| e.hint(told.clone()))?;
    out.findings.push(Finding::note("trainer_not_asked", told));
    Ok(out)
}

fn shown(d: &Discovered) -> String {
    one_line(&shown_command(d.call()), 200)
}

/// What the trainer complains of comes before what we do not know.
fn unanswered(first: Result<ReadOutput, CliError>, d: &Discovered, why: &str) -> Result<ReadOutput, CliError> {
    first.map_err(|_| CliError::config(format!("`{}` does not compose its configuration: {why}", shown(d))))
}

fn environment_of(d: &Discovered) -> BTreeMap<String, String> {
    let mut env = environment::with(&d.sources.settings.env);
    env.extend(d.learnt.iter().flat_map(|l| l.env.clone()));
    env
}

/// Whether it will answer, as far as its file tells.
fn answers(d: &Discovered, asks: &Asks, env: &BTreeMap<String, String>) -> bool {
    asks.only_if.as_ref().is_none_or(|(module, word)| {
        let source = ask(&asks.command, source_of(module), env.clone(), d.call_cwd());
        // Where it is not found, the launch would fail as well: what Python says of that is told.
        source.map_or(true, |text| text.contains(word))
    })
}

fn asked(d: &Discovered, asks: &Asks, env: BTreeMap<String, String>) -> Result<String, Complaint> {
    if !d.sources.request.quiet {
        printer::err(&format!(
            "note: {}: asking `{}` for its configuration\n",
            asks.why,
            shown(d)
        ));
    }
    ask(&asks.command, asks.words.clone(), env, d.call_cwd())
}

/// Where the answer is kept: by the call, the packages, and what decides which files are imported.
fn file_of(d: &Discovered, asks: &Asks, release: &Release, env: &BTreeMap<String, String>) -> Option<Utf8PathBuf> {
    let said = release.interpreter.as_ref();
    let imports = IMPORTS.map(|name| env.get(name));
    let key = format!(
        "{:?}",
        (
            &asks.command,
            d.call_cwd(),
            &release.version,
            said.map(|s| (&s.program, &s.packages)),
            imports
        )
    );
    Some(
        state_dir()?
            .join("composed")
            .join(format!("{:016x}.yaml", fnv64(key.as_bytes()))),
    )
}

fn kept(file: &Utf8Path) -> Option<ConfigTree> {
    let bytes = read_own(file, MAX_BYTES as u64).ok()?;
    parsed(std::str::from_utf8(&bytes).ok()?)
}

/// Keeps an answer without its secrets. One that cannot be kept is asked for again.
fn keep(file: Option<&Utf8Path>, tree: &ConfigTree) {
    let text = redacted_yaml(&tree.root);
    if let Some((file, dir)) = file.and_then(|file| Some((file, file.parent()?)))
        && own_place(dir)
            .and_then(|()| write_whole(file, text.as_bytes(), 0o600))
            .is_ok()
    {
        forget_older(dir);
    }
}

fn forget_older(dir: &Utf8Path) {
    let entries = dir.read_dir_utf8().into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.into_path())))
        .collect();
    all.sort();
    for (_, path) in all.iter().rev().skip(KEPT) {
        // One that stays is found, or forgotten next time.
        let _ = fs::remove_file(path);
    }
}
