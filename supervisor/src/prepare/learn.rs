//! Which trainer a script starts: learnt by running it up to that call, or known from its last start.
//!
//! Nothing is launched before it is known where it saves and by which switches. What was learnt is only read; values that look
//! like secrets are dropped as it arrives.

use super::{Configured, command, place, registry_files, state_dir};
use crate::control;
use crate::environment;
use crate::error::CliError;
use crate::printer::{self, Waiting};
use crate::render::time::span;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, SystemTime};
use supervise_config::redact;
use supervise_config::settings::AUTO;
use supervise_core::id::{Ms, RunId, fnv64};
use supervise_core::script::{self, Learnt};
use supervise_host::address::{self, Role};
use supervise_host::guard::protocol::{Called, WorkerOrder};
use supervise_host::lane::{Answer, Client, Question, own_place};
use supervise_host::script::{Heard, Recording, Shims, Submitter, record};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::registry::{self, adapters};
use supervise_trainers::{adapter, way};

/// Whether a script may be run to learn what it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Learning {
    /// No: only what its last start has learnt counts.
    #[default]
    Known,
    /// Where no trainer of it lives.
    Start,
    /// In any case.
    Anew,
    /// It was learnt by the process that started this one, and stands on standard input.
    Given,
}

/// Shells, by the names that scripts give them.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// Programs that run what comes after them.
const WRAPPERS: [&str; 7] = ["env", "nohup", "nice", "stdbuf", "timeout", "setsid", "time"];
/// Variables by which an interpreter and what it imports are found.
const KEPT: [&str; 8] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",
    "LD_LIBRARY_PATH",
];
/// A file system has this long to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is read from standard input at most.
const GIVEN: u64 = 4 << 20;

/// Whether the command is a script of which nothing can be read.
pub(super) fn is_needed(c: &Configured) -> bool {
    let arranged = c.composed.is_some() && (marks(&c.command, "{config}") || marks(&c.command, "{overrides}"));
    let named = c.settings.trainer.as_str();
    let told = c.settings.root.is_some();
    let may_be = named == AUTO
        || adapters().any(|a| a.framework() == named && a.is_learnt() && !(told && a.resumes_by_itself()));
    let meant = c.composed.as_ref().and_then(registry::meant);
    may_be
        && meant.is_none_or(|a| a.is_learnt())
        && !arranged
        && !adapters().any(|a| a.is_learnt() && a.is_called(&c.command))
        && is_script(&c.command, &c.cwd)
}

fn marks(command: &[String], mark: &str) -> bool {
    command.iter().any(|w| w.contains(mark))
}

fn is_script(command: &[String], cwd: &Utf8Path) -> bool {
    let name = |word: &String| Utf8Path::new(word).file_name().unwrap_or_default().to_owned();
    let is_shell = |word: &String| SHELLS.contains(&name(word).as_str()) || has_shell(&cwd.join(word));
    match command.first() {
        Some(first) if WRAPPERS.contains(&name(first).as_str()) => command.iter().skip(1).any(is_shell),
        Some(first) => is_shell(first),
        None => false,
    }
}

/// The file begins with `#!` and a shell.
fn has_shell(file: &Utf8Path) -> bool {
    let mut head = Vec::new();
    let read = file
        .is_file()
        .then(|| fs::File::open(file).and_then(|f| f.take(256).read_to_end(&mut head)));
    let text = String::from_utf8_lossy(&head);
    let line = text.lines().next().unwrap_or_default();
    let mut words = line.strip_prefix("#!").unwrap_or_default().split(['/', ' ', '\t']);
    matches!(read, Some(Ok(_))) && words.any(|w| SHELLS.contains(&w))
}

/// What is known, or can be learnt, of the script; `None`: nothing, and it may not be run.
pub(super) fn learnt(c: &Configured, learning: Learning, quiet: bool) -> Result<Option<Learnt>, CliError> {
    match learning {
        Learning::Known => Ok(starts(c).iter().find_map(last_learnt)),
        Learning::Given => given().map(Some),
        Learning::Anew => listen(c, quiet).map(Some),
        Learning::Start => match living(c)? {
            Some(found) => Ok(Some(found)),
            None => listen(c, quiet).map(Some),
        },
    }
}

/// What to say where nothing is known.
pub(super) fn unknown(c: &Configured) -> CliError {
    CliError::config(format!(
        "which trainer `{}` starts is not known yet: the script has to be run to learn it",
        super::shown_command(&c.command)
    ))
    .hint("supervise plan --learn runs it up to the call of the trainer and ends it there; `supervise run` does the same first")
    .hint("where it starts no trainer that is known: --set supervisor.trainer=plain")
}

/// A start of the same script, as the registry lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Start {
    pub(super) run: RunId,
    pub(super) run_dir: Utf8PathBuf,
    pub(super) root: Option<Utf8PathBuf>,
    script: Option<String>,
}

/// Earlier starts of the same command in the same directory, newest first.
pub(super) fn starts(c: &Configured) -> Vec<Start> {
    let command = supervise_config::redact_words(&c.command);
    let key = script::key(&c.cwd, &command);
    let read = |path: &Utf8Path| -> Option<(SystemTime, Start)> {
        let start: Start = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let at = fs::metadata(path).and_then(|m| m.modified()).ok()?;
        (start.script.as_deref() == Some(&key)).then_some((at, start))
    };
    let mut found: Vec<_> = registry_files().iter().filter_map(|f| read(f)).collect();
    found.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    found.into_iter().map(|(_, start)| start).collect()
}

/// A script is never run beside its own living trainer: it may begin by ending what it finds.
fn living(c: &Configured) -> Result<Option<Learnt>, CliError> {
    for start in starts(c) {
        if control::lives(&start.run) {
            return Err(CliError::lease_held(format!(
                "another supervisor of this script lives on this machine (run {})",
                start.run
            )));
        }
        if control::guard_lives(&start.run) {
            return last_learnt(&start).map(Some).ok_or_else(|| {
                CliError::environment(format!(
                    "a trainer of this script lives (run {}), but its journal in {} cannot be read",
                    start.run, start.run_dir
                ))
            });
        }
    }
    Ok(None)
}

fn last_learnt(start: &Start) -> Option<Learnt> {
    let ask = Question::Peek {
        run_dir: start.run_dir.clone(),
    };
    let mut lane = Client::start(&std::env::current_exe().ok()?).ok()?;
    match lane.ask(ask, PATIENCE) {
        Ok(Answer::Loaded(loaded)) => loaded.spec.and_then(|s| s.learnt),
        _ => None,
    }
}

fn given() -> Result<Learnt, CliError> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(GIVEN).read_to_end(&mut text);
    let parsed = read
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    parsed.map_err(|e| CliError::internal(format!("what was learnt did not arrive: {e}")))
}

/// The links that stand in the way of a script.
pub(super) fn shims(c: &Configured) -> Result<Shims, CliError> {
    let exe = own_exe()?;
    let above = shims_dir()?;
    let path = environment::with(&c.settings.env)
        .get("PATH")
        .cloned()
        .unwrap_or_default();
    Shims::make(&above, &exe, &path).map_err(|e| CliError::environment(format!("making links in {above}: {e}")))
}

/// The link that stands in the way of `sbatch`.
pub(super) fn submitter() -> Result<Submitter, CliError> {
    let above = shims_dir()?;
    Submitter::make(&above, &own_exe()?).map_err(|e| CliError::environment(format!("making a link in {above}: {e}")))
}

fn shims_dir() -> Result<Utf8PathBuf, CliError> {
    let dir = state()?.join("shims");
    own_place(&dir).map_err(|e| CliError::environment(format!("making {dir}: {e}")))?;
    Ok(dir)
}

fn own_exe() -> Result<Utf8PathBuf, CliError> {
    let exe = std::env::current_exe()
        .ok()
        .and_then(|e| Utf8PathBuf::from_path_buf(e).ok());
    exe.ok_or_else(|| CliError::environment("our own program cannot be found"))
}

fn state() -> Result<Utf8PathBuf, CliError> {
    state_dir().ok_or_else(|| {
        CliError::environment(
            "there is no place of this user's own for links that stand in the way of the script: set XDG_STATE_HOME",
        )
    })
}

/// Runs the script up to the call of its trainer.
fn listen(c: &Configured, quiet: bool) -> Result<Learnt, CliError> {
    command::check(&c.command, &c.cwd, &c.settings.env)?;
    let run = RunId(format!(
        "{:016x}",
        fnv64(format!("{:?}{}", SystemTime::now(), std::process::id()).as_bytes())
    ));
    let failed =
        |e: std::io::Error| CliError::environment(format!("the script cannot be run to learn what it starts: {e}"));
    let above = state()?.join("learning");
    own_place(&above).map_err(failed)?;
    let dir = above.join(&run.0);
    // A name that was there before is somebody else's.
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
    let socket = address::fresh(&run, Role::Guard).map_err(failed)?;
    let mut env = environment::with(&c.settings.env);
    shims(c)?.dress(&mut env, &socket, None).map_err(failed)?;
    let argv = c
        .command
        .iter()
        .map(|w| w.replace("{overrides}", ""))
        .filter(|w| !w.is_empty());
    let recording = Recording {
        exe: own_exe()?,
        run,
        socket,
        dir: dir.clone(),
        worker: WorkerOrder {
            argv: argv.collect(),
            env: env.into_iter().collect(),
            cwd: c.cwd.clone(),
        },
        limit: c.settings.learn_within,
        step: c.settings.learn_step,
    };
    let text = crate::render::one_line(&super::shown_command(&c.command), 60);
    if !quiet {
        printer::err(&format!(
            "note: reading what `{text}` starts: it is run up to the call of its trainer, and ended there (within {}; a step of its own that lasts {} ends it)\n",
            in_words(c.settings.learn_within),
            in_words(c.settings.learn_step)
        ));
    }
    let mut progress = Waiting::new(format!("learning what `{text}` starts"));
    let heard = record(&recording, &mut |took| progress.tell(took)).map_err(failed);
    progress.end();
    clear(&dir);
    understood(c, heard?)
}

/// What it printed was read. The guard that ends may write its last words meanwhile; what cannot be removed is a few lines of text.
fn clear(dir: &Utf8Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(25))
            }
            _ => return,
        }
    }
}

fn understood(c: &Configured, heard: Heard) -> Result<Learnt, CliError> {
    let script = super::shown_command(&c.command);
    let by_name = "call the trainer's program by its name (python3, torchrun, accelerate, trl): a call by path goes past supervise; or put {overrides} into the command and hand \"$@\" on to the trainer";
    match heard {
        Heard::Call { called, .. } if called.past && !marks(&c.command, "{overrides}") => {
            Err(CliError::config(format!(
                "`{script}` starts the trainer by the path of its interpreter ({}): our overrides would not reach it",
                called.words.first().map_or("", String::as_str)
            ))
            .hint(by_name))
        }
        Heard::Call { called, starts_ray } => match registry::called(&called.words).filter(|a| !a.is_learnt()) {
            Some(trainer) => Err(CliError::config(format!(
                "`{script}` starts {}, into whose call in a script nothing can be put: nothing was started",
                trainer.words().name
            ))
            .hint(format!(
                "give the call itself: supervise run … -- {}",
                super::shown_command(&hidden(&called.words))
            ))
            .hint(plain(c))),
            None => Ok(kept(*called, starts_ray)),
        },
        Heard::Background => Err(CliError::config(format!(
            "`{script}` ended while its trainer was still to start: it starts it in the background"
        ))
        .hint("leave out `&` and `nohup`; `supervise run --detach` goes on in the background")),
        Heard::Lasts { words } => Err(CliError::config(format!(
            "`{script}` runs `{}`, which lasts longer than {} and is no trainer that is known: before it could train unsupervised it was ended, with all that the script had started",
            crate::render::one_line(&super::shown_command(&words), 300),
            in_words(c.settings.learn_step)
        ))
        .hint(plain(c))
        .hint("where it only prepares, and the trainer comes after it: --set supervisor.learn_step=30m")
        .hint(by_name)),
        Heard::Overdue { seen } => Err(CliError::config(format!(
            "`{script}` has started no trainer that is known ({}) within {} s{}",
            registry::frameworks(),
            c.settings.learn_within.as_secs(),
            listed(&seen)
        ))
        .hint("--set supervisor.learn_within=1h where its preparations take longer")
        .hint(by_name)
        .hint(plain(c))),
        Heard::Ended { status, seen, output } => {
            let how = status.map_or_else(|| "ended".to_owned(), |s| format!("ended ({s})"));
            let mut e = CliError::config(format!(
                "`{script}` {how} without a call that could be seen of a trainer that is known ({}){}",
                registry::frameworks(),
                listed(&seen)
            ));
            e = e.with_lines(last_lines(&output)).hint(by_name);
            Err(e.hint(plain(c)))
        }
    }
}

/// How a script is run whose trainer nobody knows.
fn plain(c: &Configured) -> String {
    format!(
        "where it starts none of {}, it is supervised as it is, and relaunched as a whole: supervise run --set supervisor.trainer=plain -- {}",
        registry::frameworks(),
        super::shown_command(&c.command)
    )
}

fn in_words(time: Duration) -> String {
    span(Ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

fn listed(seen: &[String]) -> String {
    match seen {
        [] => String::new(),
        _ => format!("; it called: {}", seen.join("; ")),
    }
}

fn last_lines(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().filter(|l| !l.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(5);
    let shown = lines.get(from..).unwrap_or(&[]);
    shown
        .iter()
        .map(|l| format!("    {}", crate::render::one_line(l, 300)))
        .collect()
}

/// A call without what is nobody's business: it is read, never executed.
fn kept(called: Called, starts_ray: bool) -> Learnt {
    Learnt {
        command: hidden(&called.words),
        ahead: Vec::new(),
        cwd: place::absolute(Utf8Path::new("/"), &called.cwd),
        env: called
            .env
            .into_iter()
            .map(|(k, v)| match k.as_str() {
                "PATH" => (k, without_shims(&v)),
                _ => (k.clone(), redact(&k, &v)),
            })
            .collect(),
        past: called.past,
        starts_ray,
    }
}

/// What is read later finds programs, not our links.
fn without_shims(path: &str) -> String {
    let shims = state_dir().map(|d| d.join("shims"));
    let ours = |dir: &&str| shims.as_ref().is_some_and(|s| Utf8Path::new(dir).starts_with(s));
    path.split(':').filter(|d| !ours(d)).collect::<Vec<_>>().join(":")
}

/// The words without secrets. A path stays as it is, whatever its name looks like: it says where the checkpoints are.
fn hidden(words: &[String]) -> Vec<String> {
    let is_path = |word: &str| {
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        value.starts_with(['/', '.', '~']) && !value.contains("://")
    };
    let safe = supervise_config::redact_words(words);
    let kept = words.iter().zip(safe);
    kept.map(|(word, safe)| {
        if is_path(word) && safe != "***" {
            word.clone()
        } else {
            safe
        }
    })
    .collect()
}

/// The variables that a specification keeps: those that the configuration mentions, and the few that programs are found by.
pub(super) fn mentioned<'a>(
    env: &BTreeMap<String, String>,
    texts: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, String> {
    let mut names: Vec<&str> = KEPT.to_vec();
    names.extend(texts.flat_map(way::variables_in));
    env.iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The same script was started with a root that differs only in its numbers, which holds steps, while this one holds none.
pub(super) fn check_moved_root(c: &Configured, out: &ReadOutput, root: &Utf8Path) -> Result<(), CliError> {
    let shape = |path: &Utf8Path| -> String {
        let mut out = String::new();
        for c in path.as_str().chars() {
            match c.is_ascii_digit() {
                true if out.ends_with('#') => {}
                true => out.push('#'),
                false => out.push(c),
            }
        }
        out
    };
    let has_steps = |root: &Utf8Path| super::elsewhere::has_steps(adapter(out.kind), root);
    if has_steps(root) {
        return Ok(());
    }
    let moved = starts(c)
        .into_iter()
        .filter_map(|s| s.root)
        .find(|other| other != root && shape(other) == shape(root) && has_steps(other));
    match moved {
        None => Ok(()),
        Some(other) => Err(CliError::config(format!(
            "this script was started before with the checkpoint root {other}, which holds steps; now it names {root}, which holds none: is the time in its name?"
        ))
        .hint(format!("--set supervisor.root={other} goes on there"))
        .hint("--fresh begins anew in the new root")),
    }
}
