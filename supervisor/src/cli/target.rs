//! Finds the named run and what is known about it: from its supervisor, or else from its journal.
//!
//! A run is named by its trainer YAML, run directory, checkpoint root or identity. An I/O worker reads everything under a user's
//! mount, with a deadline, so that a hanging mount still leaves an answer.

mod hung;
mod readers;
mod seen;

pub(super) use readers::Readers;
pub(super) use seen::RunInfo;

use crate::control::{self, ControlReply, ControlRequest};
use crate::error::CliError;
use crate::journal_progress::JournalProgress;
use crate::path_access;
use crate::prepare::{self, DiscoveredCommand, PrepareRequest};
use crate::render::elsewhere::RemoteSupervisor;
use crate::render::name::run_name;
use crate::render::status::{Liveness, RunLiveness};
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use supervise_core::id::{Ms, RunId};
use supervise_core::lease::Holder;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::io_worker::{
    IoAnswer, IoClient, IoQuestion, IoWorkerError, LoadedRun, RUN_DIR_NAME, RegisteredRun,
};
use supervise_host::process::proc_stat;
use supervise_trainers::declared::outside_store;
use supervise_trainers::registry::adapters;

/// How long a file system may take to answer, or to make progress.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for counting or deleting many files.
pub(super) const DELETING: Duration = Duration::from_secs(3600);
/// Runs read at once.
const AT_ONCE: usize = 8;
/// Maximum number of journals read to find the run that trains into a directory.
const LOOKED_INTO: usize = 64;
/// The hint for a name that matches no run.
const NAMES: &str = "name the run as `supervise status` lists it (the start of its name or identity is enough), or its YAML, launch script, checkpoint root or run directory";
/// How long a running supervisor may take to answer.
const SUPERVISOR: Duration = Duration::from_secs(5);

/// Finds a run by name.
///
/// # Errors
/// No run has that name.
pub(super) fn find(name: &str) -> Result<RunInfo, CliError> {
    let path = Utf8Path::new(name);
    if !is_run_id(name)
        && let Some(seen) = hung::unanswered(path)
    {
        return seen;
    }
    if matches!(path.extension(), Some("yaml" | "yml")) {
        let request = PrepareRequest {
            config: Some(path.to_owned()),
            ..PrepareRequest::default()
        };
        // If a command is needed too, the file alone does not identify the run; listed starts with it do.
        let id = match prepare::discover(request).and_then(DiscoveredCommand::identify) {
            Ok(id) => id,
            Err(e) => return by_config(path).ok_or(e),
        };
        // From another working directory, the same file may mean another root.
        let seen = known(look(&id.run, Some(&id.run_dir)), name);
        return seen.or_else(|e| by_config(path).ok_or(e));
    }
    if is_run_id(name) && !name.contains('/') {
        let listed = prepare::listed_file(&RunId(name.to_owned())).and_then(|f| RegisteredRun::read(&f));
        let dir = listed.as_ref().map(|l| l.run_dir.as_path());
        return known(look(&RunId(name.to_owned()), dir), name);
    }
    if path_access::is_file(path)
        && let Some(seen) = by_script(path)
    {
        return Ok(seen);
    }
    if !path_access::exists(path)
        && let Some(listed) = by_name(name)
    {
        let listed = listed?;
        return known(look(&listed.run, Some(&listed.run_dir)), name);
    }
    if path_access::exists(path) && !path_access::is_dir(path) {
        // A plain run has the name of its command.
        if let Some(listed) = by_name(name) {
            let listed = listed?;
            return known(look(&listed.run, Some(&listed.run_dir)), name);
        }
        return Err(CliError::usage(format!(
            "{name}: expected a run, found a file that no run was started with"
        ))
        .hint(NAMES));
    }
    let found = directory(&absolute(path)?, name);
    // A directory may have the name of a run, and be none.
    match by_name(name).filter(|_| found.is_err()) {
        Some(Ok(listed)) => known(look(&listed.run, Some(&listed.run_dir)), name),
        _ => found,
    }
}

pub(super) fn of_prepared(spec: &RunSpec) -> Result<RunInfo, CliError> {
    Ok(look(&spec.run, Some(&spec.run_dir)))
}

/// The listed run with this name, or the only one whose identity or name begins like this.
pub(super) fn by_name(name: &str) -> Option<Result<RegisteredRun, CliError>> {
    let called = |l: &RegisteredRun| run_name(l.name.as_deref(), l.root.as_deref(), &l.command);
    let mut fit = prepare::listed_runs();
    fit.retain(|l| l.run.0.starts_with(name) || called(l).starts_with(name));
    if fit.iter().any(|l| l.run.0 == name) {
        fit.retain(|l| l.run.0 == name);
    } else if fit.iter().any(|l| called(l) == name) {
        fit.retain(|l| called(l) == name);
    }
    if fit.len() > 1 {
        let runs: Vec<String> = fit.iter().map(|l| format!("{} ({})", l.run, called(l))).collect();
        let text = format!("{name}: several runs match: {}", runs.join(", "));
        return Some(Err(
            CliError::usage(text).hint("name it by more of its name, or by its identity")
        ));
    }
    fit.pop().map(Ok)
}

/// The only listed run that was started with this file.
fn by_config(file: &Utf8Path) -> Option<RunInfo> {
    let file = path_access::canonical(file).ok()?;
    let is_it = |l: &RegisteredRun| {
        l.config
            .as_ref()
            .and_then(|c| path_access::canonical(c).ok())
            .is_some_and(|c| c == file)
    };
    let mut with = prepare::listed_runs().into_iter().filter(is_it);
    match (with.next(), with.next()) {
        (Some(l), None) => Some(look(&l.run, Some(&l.run_dir))),
        _ => None,
    }
}

/// The only listed run that was started with this script, or the only one of them that is running.
fn by_script(file: &Utf8Path) -> Option<RunInfo> {
    let file = path_access::canonical(file).ok()?;
    let is_it = |l: &RegisteredRun| {
        let mut words = l.command.iter();
        l.script.is_some() && words.any(|w| path_access::canonical(&l.cwd.join(w)).is_ok_and(|w| w == file))
    };
    let mut with: Vec<RegisteredRun> = prepare::listed_runs().into_iter().filter(is_it).collect();
    if with.len() > 1 {
        with.retain(|l| is_there(&l.run));
    }
    match with.as_slice() {
        [l] => Some(look(&l.run, Some(&l.run_dir))),
        _ => None,
    }
}

/// Every listed run by name, and how many listed runs are gone: neither running nor with a journal. Runs are read side by side, so
/// that a file system that does not answer delays only its own.
pub(super) fn all() -> (Vec<RunInfo>, usize) {
    let listed = prepare::listed_runs();
    let (readers, next) = (Readers::default(), AtomicUsize::new(0));
    let found: Mutex<Vec<(usize, RunInfo)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..listed.len().min(AT_ONCE) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(l) = listed.get(n) else { break };
                    let seen = look_by(&l.run, Some(&l.run_dir), &|dir| readers.peek(dir));
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((n, seen));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(n, _)| *n);
    let here: Vec<RunInfo> = found
        .into_iter()
        .map(|(_, seen)| seen)
        .filter(|seen| !seen.is_gone())
        .collect();
    let gone = listed.len() - here.len();
    (here, gone)
}

fn known(seen: RunInfo, name: &str) -> Result<RunInfo, CliError> {
    if seen.state.is_some() || seen.problem.is_some() || seen.alive.supervisor.alive || seen.alive.guard.alive {
        return Ok(seen);
    }
    Err(nothing(name, seen.run_dir.as_deref()))
}

fn nothing(name: &str, looked: Option<&Utf8Path>) -> CliError {
    let place = looked
        .map(|d| format!(" (there is no journal in {d})"))
        .unwrap_or_default();
    CliError::usage(format!("no run named {name}{place}")).hint(NAMES)
}

/// The error for a journal without the file that identifies its run.
fn unnamed(dir: &Utf8Path, loaded: &LoadedRun) -> CliError {
    let why = match loaded.notes.as_slice() {
        [] => format!("{dir}/spec/{}.json is gone or damaged", loaded.state.term),
        notes => notes.join("; "),
    };
    CliError::environment(format!("cannot tell which run {dir} belongs to: {why}"))
        .hint("name the trainer's YAML instead of the directory")
}

fn is_run_id(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
}

fn absolute(path: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    let path = camino::absolute_utf8(path).map_err(|e| CliError::usage(format!("{path}: {e}")))?;
    Ok(path.components().collect())
}

/// Resolves a directory that is a checkpoint root or a run directory. Asks its supervisor before it reads any file there.
fn directory(path: &Utf8Path, name: &str) -> Result<RunInfo, CliError> {
    let root = match path.file_name() {
        Some(RUN_DIR_NAME) => path.parent().unwrap_or(path),
        _ => path,
    };
    let ids = prepare::run_ids_at(root);
    if let Some(run) = ids.iter().find(|run| is_there(run)) {
        return Ok(look(run, Some(&root.join(RUN_DIR_NAME))));
    }
    // Some trainers have the run directory next to their root.
    let stores = adapters().filter_map(|a| a.store_of(path)).chain([outside_store(path)]);
    let beside = stores.into_iter().find(|dir| path_access::exists(&dir.join("run.id")));
    for dir in [path.join(RUN_DIR_NAME)]
        .into_iter()
        .chain(beside)
        .chain([path.to_owned()])
    {
        match peek(&dir) {
            Ok(loaded) => {
                if let Some(root) = loaded.spec.as_ref().and_then(|s| s.root.as_ref())
                    && loaded.copied
                {
                    return Err(CliError::usage(format!(
                        "{name}: this is a copy of {root}, with the journal of the run there; no run was started with the copy"
                    ))
                    .hint(format!("name {root} for the run; `supervise checkpoints` and `supervise verify` read a copy")));
                }
                if let Some(spec) = &loaded.spec {
                    let run = spec.run.clone();
                    return Ok(joined(&run, &dir, Ok(loaded)));
                }
                if loaded.records > 0 || !loaded.notes.is_empty() {
                    return Err(unnamed(&dir, &loaded));
                }
            }
            Err(problem) => {
                // Supervisor and guard of another user do not answer this one.
                let owner = path_access::owner(&dir).ok();
                if let Some(owner) = owner.filter(|owner| *owner != supervise_host::system::effective_user()) {
                    return Err(CliError::environment(format!(
                        "{problem}; the run is of user {owner}, and from here it cannot be told whether it lives"
                    ))
                    .hint("ask as that user"));
                }
                let is_it = |l: &RegisteredRun| l.run_dir == dir || l.root.as_deref() == Some(path);
                return match prepare::listed_runs().into_iter().find(is_it) {
                    Some(l) => Ok(joined(&l.run, &dir, Err(problem))),
                    None => Err(CliError::environment(problem)),
                };
            }
        }
    }
    by_seen_root(path).ok_or_else(|| nothing(name, Some(&path.join(RUN_DIR_NAME))))
}

/// The run whose script was seen to train into this directory; its journal is elsewhere.
fn by_seen_root(path: &Utf8Path) -> Option<RunInfo> {
    let path = path_access::canonical(path).ok()?;
    let mut listed = prepare::listed_runs();
    listed.retain(|l| l.root.is_none());
    listed.sort_by_key(|l| std::cmp::Reverse(l.at));
    if let Some(run) = prepare::trains_into(&path, None) {
        listed.retain(|l| l.run == run);
    }
    let mut worker = io_worker().ok()?;
    let is_it = |loaded: &LoadedRun| loaded.state.seen.as_ref().is_some_and(|t| t.root == path);
    for l in listed.iter().take(LOOKED_INTO) {
        match peek_by(&mut worker, &l.run_dir) {
            Ok(loaded) if is_it(&loaded) => return Some(look(&l.run, Some(&l.run_dir))),
            Ok(_) | Err(ReadFailure(_, true)) => {}
            // Wait for a hanging mount only once.
            Err(ReadFailure(_, false)) => return None,
        }
    }
    None
}

/// Prints which terms are missing from a run's journals, for readers of the records.
pub(super) fn tell_gaps(seen: &RunInfo) {
    for gap in &seen.gaps {
        crate::printer::note(gap);
    }
}

fn is_there(run: &RunId) -> bool {
    control::lives(run) || control::guard_lives(run)
}

/// Collects everything that is known about a run.
pub(super) fn look(run: &RunId, dir: Option<&Utf8Path>) -> RunInfo {
    look_by(run, dir, &peek)
}

pub(super) fn look_by(
    run: &RunId,
    dir: Option<&Utf8Path>,
    peek: &dyn Fn(&Utf8Path) -> Result<LoadedRun, String>,
) -> RunInfo {
    let mut stuck = None;
    // One that is suspended answers nothing.
    let suspended = control::supervisor_pid(run).is_some_and(is_suspended);
    let reply = match suspended {
        true => Ok(None),
        false => control::ask(run, &ControlRequest::Status, SUPERVISOR),
    };
    match reply {
        Ok(Some(ControlReply::Status { state, spec, ledger })) => {
            let alive = alive(run, Some(&state));
            return RunInfo {
                run: run.clone(),
                run_dir: Some(spec.run_dir.clone()),
                state: Some(*state),
                ledger: *ledger,
                spec: Some(*spec),
                alive,
                answered: true,
                ..RunInfo::default()
            };
        }
        Ok(_) => {}
        Err(e) => stuck = Some(format!("the supervisor lives, but {e}")),
    }
    let mut seen = match dir {
        Some(dir) => joined(run, dir, peek(dir)),
        None => RunInfo {
            run: run.clone(),
            alive: alive(run, None),
            ..RunInfo::default()
        },
    };
    if seen.problem.is_none() {
        seen.problem = stuck;
    }
    seen
}

fn joined(run: &RunId, dir: &Utf8Path, loaded: Result<LoadedRun, String>) -> RunInfo {
    let mut seen = RunInfo {
        run: run.clone(),
        run_dir: Some(dir.to_owned()),
        ..RunInfo::default()
    };
    match loaded {
        Ok(l) if l.records > 0 || l.spec.is_some() => {
            seen.alive = alive(run, Some(&l.state));
            seen.elsewhere = l
                .holder
                .as_ref()
                .and_then(|(holder, silent)| elsewhere(seen.alive, holder, *silent));
            seen.state = Some(l.state);
            seen.ledger = l.ledger;
            seen.spec = l.spec.map(|s| *s);
            seen.recorded = l.recorded;
            seen.began = l.attempts;
            seen.key = l.key;
            seen.distrust = l.distrust;
            (seen.notes, seen.gaps, seen.newer) = (l.notes, l.gaps, l.newer);
        }
        Ok(_) => seen.alive = alive(run, None),
        Err(problem) => {
            seen.alive = alive(run, None);
            let word = |l: Liveness| if l.alive { "alive" } else { "dead" };
            let (s, g) = (word(seen.alive.supervisor), word(seen.alive.guard));
            seen.problem = Some(format!("{problem}; supervisor: {s}, guard: {g}"));
        }
    }
    seen
}

fn elsewhere(alive: RunLiveness, holder: &Holder, silent: Ms) -> Option<RemoteSupervisor> {
    let own = supervise_host::process::own_pid_scope();
    let unseen = !alive.supervisor.alive && holder.lives_elsewhere(&own, silent);
    unseen.then(|| RemoteSupervisor {
        host: holder.host.clone(),
        pid: holder.proc.pid,
        silent_ms: silent.0,
    })
}

fn alive(run: &RunId, state: Option<&RunState>) -> RunLiveness {
    if !control::anybody(run) {
        return RunLiveness::default();
    }
    let pid = control::supervisor_pid(run);
    let supervisor = Liveness {
        alive: pid.is_some() || control::lives(run),
        pid,
        stopped: pid.is_some_and(is_suspended),
    };
    let guard = state.and_then(|s| s.attempt.as_ref()).and_then(|a| a.launch.guard);
    let guard = guard.filter(|g| supervise_host::process::is_alive(*g));
    let holds = control::guard_lives(run);
    RunLiveness {
        supervisor,
        guard: Liveness {
            alive: holds,
            pid: guard.filter(|_| holds).map(|g| g.pid),
            stopped: false,
        },
    }
}

fn is_suspended(pid: i32) -> bool {
    proc_stat(pid).is_some_and(|stat| matches!(stat.state, b'T' | b't'))
}

/// Reads the journals in a run directory through an I/O worker.
pub(super) fn peek(dir: &Utf8Path) -> Result<LoadedRun, String> {
    let mut worker = io_worker().map_err(|e| e.to_string())?;
    peek_by(&mut worker, dir).map_err(|e| e.0)
}

/// Why nothing was read, and whether the worker may be asked again.
pub(super) struct ReadFailure(pub(super) String, pub(super) bool);

pub(super) fn peek_by(worker: &mut IoClient, dir: &Utf8Path) -> Result<LoadedRun, ReadFailure> {
    let ask = IoQuestion::Peek {
        run_dir: dir.to_owned(),
    };
    let mut reading = JournalProgress::new(dir);
    match worker.ask_telling(ask, PATIENCE, &mut |done, of| reading.tell(done, of)) {
        Ok(IoAnswer::Loaded(loaded)) => Ok(*loaded),
        Ok(_) => Err(ReadFailure("I/O worker: unexpected answer".to_owned(), false)),
        Err(IoWorkerError::Stalled(_)) => Err(ReadFailure(reading.stalled(), false)),
        Err(e @ IoWorkerError::Refused(_)) => Err(ReadFailure(e.to_string(), true)),
        Err(e) => Err(ReadFailure(e.to_string(), false)),
    }
}

pub(super) fn io_worker() -> Result<IoClient, IoWorkerError> {
    IoClient::start(&std::env::current_exe()?)
}

/// Finds a run to act on. Every command that does more than show a run uses it.
///
/// # Errors
/// No run has that name, or others may have written its directory.
pub(super) fn to_act_on(name: Option<&str>) -> Result<RunInfo, CliError> {
    let seen = one(name)?;
    seen.may_act()?;
    Ok(seen)
}

/// The named run, or the only one.
pub(super) fn one(name: Option<&str>) -> Result<RunInfo, CliError> {
    if let Some(name) = name {
        return find(name);
    }
    let (mut all, _) = all();
    match (all.len(), all.pop()) {
        (1, Some(seen)) => Ok(seen),
        (0, _) => Err(CliError::usage("name a run: this user has none on this machine")),
        (n, _) => Err(CliError::usage(format!("name a run: there are {n}"))
            .hint("`supervise status` lists them; name one by its identity")),
    }
}
