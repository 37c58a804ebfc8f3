//! Asks the trainer for its configuration, composed by the interpreter that will run it.
//!
//! Used if no table here knows its release, configuration or entry point, and only by commands that would run its code anyway. The
//! last answer is stored without secrets in this user's state directory, for read-only commands.

use super::{identity, root_of, understand_with};
use crate::control;
use crate::environment;
use crate::error::CliError;
use crate::prepare::discovery::DiscoveredCommand;
use crate::prepare::state_dir::state_dir;
use crate::printer;
use crate::rehearse::{ASKED, InterpreterProbe, ProbeFailure};
use crate::render::{one_line, proposed, shown_command};
use crate::run_order::TrainerRelease;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use supervise_config::{ConfigTree, MAX_BYTES, redacted_yaml};
use supervise_core::checkpoint::Finding;
use supervise_core::id::{RunId, fnv64};
use supervise_host::io_worker::{own_place, read_own, write_whole};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::rehearsal::parsed;
use supervise_trainers::{Asks, TrainerAdapter};

/// Variables that decide which files are imported, besides the interpreter itself.
const IMPORTS: [&str; 3] = ["PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
const PLAIN: &str = "--set supervisor.trainer=plain supervises it as it is";
/// Maximum number of stored answers.
const KEPT: usize = 64;

/// Reads the trainer's part, asking the trainer if necessary.
pub(super) fn read(
    d: &DiscoveredCommand,
    trainer: &dyn TrainerAdapter,
    release: &TrainerRelease,
) -> Result<ReadOutput, CliError> {
    let version = release.version.as_deref();
    let mut asks = None;
    let first = understand_with(d, version, None, &mut |input| asks = trainer.asks(input));
    let Some(asks) = asks else { return first };
    let env = environment_of(d);
    let file = file_of(d, &asks, release, &env);
    let kept = file.as_deref().and_then(kept);
    let question = InterpreterProbe::new(&asks.command, env, d.call_cwd());
    let left_out = d.sources.left_out();
    let asking = d.sources.request.asking && left_out.is_none();
    let tree = match kept {
        // Workers that wait for a supervisor must not wait for a question.
        Some(tree) if !asking || run_of(d, version, &tree).is_some_and(|run| control::guard_lives(&run)) => tree,
        _ if left_out.is_some() => {
            let why = left_out.unwrap_or_default();
            return without(first, &asks, |e| unknown(d, e, ""), &why);
        }
        _ if !asking => {
            let words = d.sources.request.again(&["plan", "--learn"], &[]);
            let how = "`supervise plan --learn` asks the trainer itself, which runs its code; `supervise run` does the same first";
            let how = format!("{how}: {}", proposed(&words));
            return without(first, &asks, |e| unknown(d, e, " until it is asked itself"), &how);
        }
        _ if !answers(&asks, &question) => {
            let (_, word) = asks.only_if.clone().unwrap_or_default();
            let why = format!("its file does not name {word}, so that it is not asked: it might train instead");
            return without(first, &asks, |e| unknown(d, e, "").hint(PLAIN), &why);
        }
        _ => match asked(d, &asks, &question) {
            Ok(tree) => {
                let text = redacted_yaml(&tree.root);
                // If the root contains a secret, the stored answer would describe another run.
                if parsed(&text).and_then(|kept| run_of(d, version, &kept)) == run_of(d, version, &tree) {
                    keep(file.as_deref(), &text);
                }
                tree
            }
            Err(complaint) => {
                let by_hand = question
                    .by_hand(&asks.words)
                    .map(|command| format!("to try it: {command}"));
                let hinted = |e: CliError| by_hand.into_iter().fold(e, CliError::hint).hint(PLAIN);
                let call = shown(d, &asks);
                let text = match &complaint.refused {
                    Some(key) => {
                        format!("`{call}` itself does not take the override of {key}: every launch would fail")
                    }
                    None => format!("`{call}` does not compose its configuration: {}", complaint.text),
                };
                // Without resume, even an unreadable configuration may be started; a failed question says nothing.
                return match first {
                    Ok(mut out) if !complaint.is_answer || !d.sources.settings.recovery => {
                        let told = format!("{}, and it was asked itself: {text}", asks.why);
                        out.findings.insert(0, Finding::warning("trainer_not_asked", told));
                        Ok(out)
                    }
                    _ => Err(hinted(CliError::config(text)).hint(format!("{}: it was asked itself", asks.why))),
                };
            }
        },
    };
    let mut out = understand_with(d, version, Some(&tree), &mut |_| ())?;
    let told = format!("{}: the trainer itself composed what is read here", asks.why);
    out.findings.insert(0, Finding::note("composed_by_trainer", told));
    Ok(out)
}

fn run_of(d: &DiscoveredCommand, version: Option<&str>, tree: &ConfigTree) -> Option<RunId> {
    let out = understand_with(d, version, Some(tree), &mut |_| ()).ok()?;
    let cwd = &d.sources.cwd;
    let (root, _) = root_of(&d.sources.settings, cwd, &out).ok()?;
    identity::identify(&d.sources.settings, out.kind, root.as_deref(), cwd, &out.command).ok()
}

/// Reads the input without an answer, with the reason; `error`: the message of a reading that failed.
fn without(
    first: Result<ReadOutput, CliError>,
    asks: &Asks,
    error: impl FnOnce(CliError) -> CliError,
    why: &str,
) -> Result<ReadOutput, CliError> {
    let told = format!("{}: {why}", asks.why);
    let mut out = first.map_err(|e| error(e).hint(told.clone()))?;
    out.findings.push(Finding::note("trainer_not_asked", told));
    Ok(out)
}

/// The error if the trainer was not asked; problems in the user's own file are reported unchanged.
fn unknown(d: &DiscoveredCommand, first: CliError, until: &str) -> CliError {
    let names_unknown = d.sources.composed.as_ref().is_some_and(|c| !c.unknown.is_empty());
    match names_unknown {
        true => first,
        false => CliError::config(format!(
            "what `{}` saves is not known{until}",
            one_line(&shown_command(d.call()), 200)
        )),
    }
}

fn shown(d: &DiscoveredCommand, asks: &Asks) -> String {
    let call = if d.call().is_empty() { &asks.command } else { d.call() };
    one_line(&shown_command(call), 200)
}

fn environment_of(d: &DiscoveredCommand) -> BTreeMap<String, String> {
    let mut env = environment::with(&d.sources.settings.env);
    env.extend(d.learnt.iter().flat_map(|l| l.env.clone()));
    env
}

/// Returns true if it will answer, judging by its file.
fn answers(asks: &Asks, question: &InterpreterProbe) -> bool {
    asks.only_if.as_ref().is_none_or(|(module, word)| {
        // If the file is not found, the launch would fail too: report what Python says.
        question.source_of(module).is_none_or(|text| text.contains(word))
    })
}

fn asked(d: &DiscoveredCommand, asks: &Asks, question: &InterpreterProbe) -> Result<ConfigTree, ProbeFailure> {
    if !d.sources.request.quiet {
        let why = &asks.why;
        printer::note(&format!(
            "{why}: asking `{}` for its configuration, for up to {} s (Ctrl-C ends it)",
            shown(d, asks),
            ASKED.as_secs()
        ));
    }
    question.compose(&asks.words)
}

/// Key of the stored answer: the call, the packages, and what decides which files are imported.
fn file_of(
    d: &DiscoveredCommand,
    asks: &Asks,
    release: &TrainerRelease,
    env: &BTreeMap<String, String>,
) -> Option<Utf8PathBuf> {
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

/// Stores an answer; one that cannot be stored is asked for again.
fn keep(file: Option<&Utf8Path>, text: &str) {
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
        // One that remains is found, or removed next time.
        let _ = fs::remove_file(path);
    }
}
