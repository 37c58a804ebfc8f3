//! The run directory: journals and specification.

use super::files::{SMALL, open_regular, read_small};
use super::judged::trust_here;
use super::lease::{last_sign, lease_dir};
use super::probe::is_full;
use super::protocol::LoadedRun;
use super::replay::{ReadProgressFn, ReplayedState, TermFile, term_files};
use super::write::{PRIVATE, disk_error, remove_file, write_whole};
use crate::disk::sync_dir;
use crate::guard::record::{TreeRecord, parse_tree};
use crate::ownership::{OwnedPath, PathTrust};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use supervise_core::event::ActError;
use supervise_core::id::{AttemptNo, RunId, Term};
use supervise_core::lease::PidScope;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// Space kept in reserve so that a full disk does not stop the journal.
const RESERVE: u64 = 1 << 20;
const LARGE: u64 = 1 << 30;

pub(super) const KEY: usize = 16;

/// The file that identifies a run directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunFile {
    pub(super) version: u32,
    pub(super) run: RunId,
    pub(super) root: Option<Utf8PathBuf>,
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// Random, so that whatever carries it belongs to this run directory.
    #[serde(default)]
    pub(super) key: String,
}

pub(super) fn key(run_dir: &Utf8Path) -> Option<String> {
    let file: RunFile = serde_json::from_slice(&read_small(&run_dir.join("run.id"), SMALL).ok()?).ok()?;
    let plain = file.key.len() == KEY && file.key.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then_some(file.key)
}

/// Replays every term's journal, oldest first.
///
/// # Errors
/// The system's, if a journal cannot be read.
pub(super) fn read_journals(
    run_dir: &Utf8Path,
    tell: &mut ReadProgressFn<'_>,
) -> io::Result<(LoadedRun, ReplayedState)> {
    go_on(run_dir, ReplayedState::default(), tell)
}

/// The same, continuing from an earlier replay if the journals still match it.
///
/// # Errors
/// The system's, if a journal cannot be read.
pub(super) fn go_on(
    run_dir: &Utf8Path,
    mut folded: ReplayedState,
    tell: &mut ReadProgressFn<'_>,
) -> io::Result<(LoadedRun, ReplayedState)> {
    folded.catch_up(run_dir, tell)?;
    Ok((loaded(run_dir, &folded)?, folded))
}

fn loaded(run_dir: &Utf8Path, folded: &ReplayedState) -> io::Result<LoadedRun> {
    let files = term_files(run_dir)?;
    let gaps = ReplayedState::gaps(run_dir, &files);
    let mut out = LoadedRun {
        key: key(run_dir).unwrap_or_default(),
        state: folded.state.clone(),
        ledger: folded.ledger.clone(),
        records: folded.records,
        notes: gaps.iter().cloned().chain(folded.notes(run_dir)).collect(),
        gaps,
        newer: folded.newer.clone(),
        attempts: folded.attempts(),
        ..LoadedRun::default()
    };
    // PIDs of another boot, or of another PID namespace, mean other processes.
    let here = crate::process::own_pid_scope();
    let mut origin = origin(run_dir, &files, &out.state)?;
    if let Some(a) = &out.state.attempt {
        let tree = recorded(&tree_file(run_dir, a.no), &here, &mut origin);
        out.recorded = tree.procs;
        if out.state.context.boot == here.boot && !tree.foreign {
            out.recorded.extend(a.launch.guard);
            out.recorded.extend(a.launch.workers.iter().copied());
        }
    }
    let spec = run_dir.join(format!("spec/{}.json", out.state.term));
    out.spec = read_small(&spec, LARGE)
        .ok()
        .and_then(|b| serde_json::from_slice::<RunSpec>(&b).ok())
        .map(Box::new);
    judge(&mut out, &trust_here(&origin, run_dir));
    // Without a specification: the lease of a root may be here, and the journal of its run elsewhere.
    let lease = lease_dir(out.spec.as_deref(), run_dir);
    out.holder = last_sign(&lease);
    Ok(out)
}

pub(super) fn terms(run_dir: &Utf8Path) -> io::Result<Vec<u32>> {
    Ok(term_files(run_dir)?.into_iter().map(|f| f.term).collect())
}

fn tree_file(run_dir: &Utf8Path, attempt: AttemptNo) -> Utf8PathBuf {
    run_dir.join(format!("attempts/{:04}/tree", attempt.0))
}

fn origin(run_dir: &Utf8Path, journals: &[TermFile], state: &RunState) -> io::Result<OwnedPath> {
    let mut origin = OwnedPath::new(journals.iter().filter_map(|f| f.owner.clone()).collect());
    origin.add(run_dir)?;
    for name in ["run.id", "snapshot.json", "journal", "spec", "attempts"] {
        origin.add(&run_dir.join(name))?;
    }
    origin.add(&run_dir.join(format!("spec/{}.json", state.term)))?;
    if let Some(a) = &state.attempt {
        origin.add(tree_file(run_dir, a.no).parent().unwrap_or(run_dir))?;
    }
    Ok(origin)
}

/// A PID is only used if no other user can have written it: a forged one would make us kill our own processes.
fn judge(out: &mut LoadedRun, trust: &PathTrust) {
    let why = match trust {
        PathTrust::Trusted => return,
        PathTrust::GroupWritable(entry) => format!(
            "the group of {} may write it (mode {:03o}; `chmod g-w` ends that)",
            entry.path, entry.mode
        ),
        PathTrust::Refused(refused) => refused.to_string(),
    };
    out.recorded.clear();
    out.distrust = trust.clone().refusal();
    if out.records > 0 || out.spec.is_some() {
        let note = format!("{why}: no process is taken for the run's own because of what is written down there");
        out.notes.push(note);
    }
}

/// Processes that a guard recorded. Adds what was read to `origin`.
fn recorded(tree: &Utf8Path, here: &PidScope, origin: &mut OwnedPath) -> TreeRecord {
    // Without the file nothing was recorded; running processes are then found by their marks.
    read_tree(tree, origin)
        .map(|bytes| parse_tree(&bytes, here))
        .unwrap_or_default()
}

fn read_tree(tree: &Utf8Path, origin: &mut OwnedPath) -> io::Result<Vec<u8>> {
    let file = open_regular(tree)?;
    origin.add_open(tree, &file)?;
    let mut bytes = Vec::new();
    file.take(LARGE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[derive(Debug)]
pub(super) struct JournalFile {
    file: File,
    path: Utf8PathBuf,
    reserve: Utf8PathBuf,
    len: u64,
    run_dir: Utf8PathBuf,
    /// State of the replay; `None` if the journals could not be read.
    folded: Option<ReplayedState>,
}

impl JournalFile {
    /// Creates a term's file, which must not contain anything yet. An empty one was left by an I/O worker that died.
    pub(super) fn begin(
        run_dir: &Utf8Path,
        term: Term,
        spec: &RunSpec,
        mut folded: ReplayedState,
        tell: &mut ReadProgressFn<'_>,
    ) -> Result<Self, ActError> {
        let path = run_dir.join(format!("journal/{term}.jsonl"));
        let at = |e: &io::Error| disk_error(&format!("beginning the journal {path}"), e);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|e| at(&e))?;
        if file.metadata().map_err(|e| at(&e))?.len() > 0 {
            return Err(at(&io::ErrorKind::AlreadyExists.into()));
        }
        let reserve = run_dir.join("journal.reserve");
        match fill(&reserve) {
            // There may still be space for the journal itself; without a reserve, its end is written only if the disk
            // allows it.
            Err(e) if is_full(&e) => remove_file(&reserve).map_err(|e| at(&e))?,
            filled => filled.map_err(|e| at(&e))?,
        }
        let spec = serde_json::to_vec_pretty(spec).map_err(|e| at(&io::Error::other(e)))?;
        // Durable: the next start compares with it, and what can be proven may have changed since.
        write_whole(&run_dir.join(format!("spec/{term}.json")), &spec, PRIVATE).map_err(|e| at(&e))?;
        // A synced journal is lost without its directory entry.
        sync_dir(&run_dir.join("journal")).map_err(|e| at(&e))?;
        // The previous holder may have written more while we waited for the lease.
        let folded = folded.catch_up(run_dir, tell).map(|()| folded);
        Ok(Self {
            file,
            path,
            reserve,
            len: 0,
            run_dir: run_dir.to_owned(),
            folded: folded.ok(),
        })
    }

    /// Continues a file that another I/O worker created; a torn last line is cut off.
    pub(super) fn adopt(run_dir: &Utf8Path, term: Term, tell: &mut ReadProgressFn<'_>) -> Result<Self, ActError> {
        let path = run_dir.join(format!("journal/{term}.jsonl"));
        let at = |e: &io::Error| disk_error(&format!("going on with the journal {path}"), e);
        let mut options = OpenOptions::new();
        options.read(true).append(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path).map_err(|e| at(&e))?;
        let len = last_newline(&file).map_err(|e| at(&e))?;
        file.set_len(len).map_err(|e| at(&e))?;
        Ok(Self {
            file,
            path,
            reserve: run_dir.join("journal.reserve"),
            len,
            run_dir: run_dir.to_owned(),
            folded: ReplayedState::of(run_dir, tell).ok(),
        })
    }

    pub(super) fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// Appends whole lines. If the disk is full, the reserve is deleted first.
    pub(super) fn append(&mut self, text: &str, sync: bool) -> Result<(), ActError> {
        let mut result = self.write(text, sync);
        if result.as_ref().is_err_and(is_full) {
            // There is nothing else to free; the second try shows whether it helped.
            let _ = remove_file(&self.reserve);
            result = self.write(text, sync);
        }
        result.map_err(|e| disk_error(&format!("writing the journal {}", self.path), &e))
    }

    fn write(&mut self, text: &str, sync: bool) -> io::Result<()> {
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => {
                self.len += text.len() as u64;
                if let Some(folded) = &mut self.folded {
                    folded.appended(text);
                }
                Ok(())
            }
            Err(e) => {
                // A torn line would be read as damage: truncate to the last whole one.
                let _ = self.file.set_len(self.len);
                Err(e)
            }
        }
    }
}

impl JournalFile {
    /// Writes the snapshot if enough was appended; `now`: if anything was.
    pub(super) fn snapshot(&mut self, now: bool) {
        if let Some(folded) = &mut self.folded {
            folded.save(&self.run_dir, now);
        }
    }
}

fn last_newline(file: &File) -> io::Result<u64> {
    let mut piece = vec![0; 64 << 10];
    let mut end = file.metadata()?.len();
    while end > 0 {
        let begin = end.saturating_sub(piece.len() as u64);
        let part = &mut piece[..(end - begin) as usize];
        FileExt::read_exact_at(file, part, begin)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn fill(path: &Utf8Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    if file.metadata()?.len() >= RESERVE {
        return Ok(());
    }
    match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
        // If a file system cannot preallocate, write real bytes.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => (&file).write_all(&vec![0; RESERVE as usize]),
        other => Ok(other?),
    }
}
