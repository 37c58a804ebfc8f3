//! The run directory: identity, journals, specification.

use super::edit::{PRIVATE, disk_error, make_dir, remove_file, write_whole};
use super::files::read_small;
use super::protocol::{Identity, Loaded};
use crate::disk::sync_dir;
use crate::guard::record::parse_tree;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use supervise_core::event::ActError;
use supervise_core::id::{ProcRef, RunId, Term};
use supervise_core::journal;
use supervise_core::spec::RunSpec;

/// Our directory under a checkpoint root.
pub const RUN_DIR_NAME: &str = super::edit::OURS;
/// Space kept back so that a full disk does not silence the journal.
const RESERVE: u64 = 1 << 20;
/// A journal larger than this is somebody else's file.
const JOURNAL_LIMIT: u64 = 4 << 30;
/// Longest of the small files beside it.
pub(super) const SMALL: u64 = 1 << 20;
/// Journals whose absence is said.
const GONE: usize = 4;
/// Hexadecimal digits of a run's key.
const KEY: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
struct RunFile {
    version: u32,
    run: RunId,
    root: Option<Utf8PathBuf>,
    dev: u64,
    ino: u64,
    /// Random: nothing else has it, so that what bears it comes from here.
    #[serde(default)]
    key: String,
}

/// Creates or finds the run directory and folds what is in it.
pub(super) fn open(id: &Identity) -> Result<Loaded, ActError> {
    let at = |e: &io::Error| disk_error(&format!("opening the run directory {}", id.run_dir), e);
    let mut notes = Vec::new();
    if let Some(root) = &id.root {
        fs::create_dir_all(root).map_err(|e| disk_error(&format!("creating the checkpoint root {root}"), &e))?;
        writable(root)?;
    }
    if let Some(note) = set_aside_a_copy(id).map_err(|e| at(&e))? {
        notes.push(note);
    }
    for dir in ["", "journal", "spec", "attempts", "lease"] {
        make_dir(&id.run_dir.join(dir)).map_err(|e| at(&e))?;
    }
    let (dev, ino) = inode(id);
    let file = RunFile {
        version: 1,
        run: id.run.clone(),
        root: id.root.clone(),
        dev,
        ino,
        key: key(&id.run_dir).map_or_else(new_key, Ok).map_err(|e| at(&e))?,
    };
    let text = json!(file).to_string();
    write_whole(&id.run_dir.join("run.id"), text.as_bytes(), PRIVATE).map_err(|e| at(&e))?;
    let mut loaded = read_journals(&id.run_dir).map_err(|e| at(&e))?;
    notes.append(&mut loaded.notes);
    loaded.notes = notes;
    Ok(loaded)
}

/// The run's key, where its directory has one.
fn key(run_dir: &Utf8Path) -> Option<String> {
    let file: RunFile = serde_json::from_slice(&read_small(&run_dir.join("run.id"), SMALL).ok()?).ok()?;
    let plain = file.key.len() == KEY && file.key.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then_some(file.key)
}

fn new_key() -> io::Result<String> {
    let mut bytes = [0; KEY / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn inode(id: &Identity) -> (u64, u64) {
    let place = id.root.as_ref().unwrap_or(&id.run_dir);
    fs::metadata(place).map_or((0, 0), |m| (m.dev(), m.ino()))
}

/// A root that cannot be written to is said so before a GPU is touched.
fn writable(root: &Utf8Path) -> Result<(), ActError> {
    let probe = root.join(format!(".supervise-write-test-{}", std::process::id()));
    let result = File::create(&probe).and_then(|_| fs::remove_file(&probe));
    result.map_err(|e| {
        let mut error = disk_error(&format!("the checkpoint root {root} is not writable"), &e);
        error.retryable = false;
        error
    })
}

/// `cp -r` of a root copies our directory too: its journal speaks of another run and is put out of the way.
fn set_aside_a_copy(id: &Identity) -> io::Result<Option<String>> {
    let path = id.run_dir.join("run.id");
    let text = match read_small(&path, SMALL) {
        Ok(t) => t,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(named(&path, e)),
    };
    let Ok(known) = serde_json::from_slice::<RunFile>(&text) else {
        return Ok(None);
    };
    let (dev, ino) = inode(id);
    // A directory of ours that does not stand in the root is not copied with it: under the same path it is the same run, whatever
    // directory stands there now (a new one, or one that was restored).
    let apart = id.root.as_ref().is_none_or(|root| !id.run_dir.starts_with(root));
    if known.root == id.root && known.run == id.run && (known.ino == ino || known.ino == 0 || apart) {
        return Ok(None);
    }
    if (known.dev, known.ino) == (dev, ino) {
        return Ok(known
            .root
            .map(|old| format!("the checkpoint root was moved here from {old}: the run goes on")));
    }
    let parent = id.run_dir.parent().unwrap_or(&id.run_dir);
    for n in 1..1000 {
        let target = parent.join(format!("{RUN_DIR_NAME}.copied-{n}"));
        if !target.exists() {
            fs::rename(&id.run_dir, &target)?;
            let old = known.root.map_or_else(String::new, |r| format!(" of {r}"));
            return Ok(Some(format!(
                "this checkpoint root is a copy{old}: the journal that came with it was moved to {target}, a new run begins here"
            )));
        }
    }
    Ok(None)
}

/// Reads and folds every term's journal, oldest first.
///
/// # Errors
/// The system's, where a journal cannot be read.
pub fn read_journals(run_dir: &Utf8Path) -> io::Result<Loaded> {
    let mut out = Loaded {
        key: key(run_dir).unwrap_or_default(),
        ..Loaded::default()
    };
    let mut next = 1;
    for term in terms(run_dir)? {
        let path = run_dir.join(format!("journal/{term}.jsonl"));
        let gone = (next..term).map(|n| {
            format!("{run_dir}/journal/{n}.jsonl is not there: it was deleted, or term {n} ended before it began")
        });
        out.notes.extend(gone.take(GONE));
        next = term.saturating_add(1);
        let bytes = match read_small(&path, JOURNAL_LIMIT) {
            // What is no file was written by nobody of ours; what cannot be read may say everything.
            Err(e) if is_no_file(&path) => {
                out.notes.push(format!("{path} is passed over: {e}"));
                continue;
            }
            bytes => bytes.map_err(|e| named(&path, e))?,
        };
        if bytes.is_empty() {
            out.notes
                .push(format!("{path} is empty: what happened in term {term} is not known"));
        }
        let read = journal::read(&bytes);
        for (line, why) in &read.damaged {
            out.notes.push(format!("{path} line {line} is damaged: {why}"));
        }
        if read.unknown > 0 {
            out.notes
                .push(format!("{path} holds {} records of a newer version", read.unknown));
        }
        for (_, record) in &read.records {
            out.state.apply(record);
            out.records += 1;
        }
    }
    // Process ids of another boot are other processes now.
    let boot = crate::process::boot_id()?;
    if let Some(a) = &out.state.attempt {
        out.recorded = recorded(&run_dir.join(format!("attempts/{:04}/tree", a.no.0)), &boot);
        if out.state.boot == boot {
            out.recorded.extend(a.guard);
            out.recorded.extend(a.workers.iter().copied());
        }
    }
    let spec = run_dir.join(format!("spec/{}.json", out.state.term));
    out.spec = read_small(&spec, JOURNAL_LIMIT)
        .ok()
        .and_then(|b| serde_json::from_slice::<RunSpec>(&b).ok())
        .map(Box::new);
    Ok(out)
}

fn terms(run_dir: &Utf8Path) -> io::Result<Vec<u32>> {
    let mut out: Vec<u32> = Vec::new();
    let entries = match run_dir.join("journal").read_dir_utf8() {
        Ok(e) => e,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(out),
        Err(e) => return Err(e),
    };
    for entry in entries {
        out.extend(
            entry?
                .file_name()
                .strip_suffix(".jsonl")
                .and_then(|n| n.parse::<u32>().ok()),
        );
    }
    out.sort_unstable();
    Ok(out)
}

/// Descendants that a guard of this boot wrote down.
fn recorded(tree: &Utf8Path, boot: &str) -> Vec<ProcRef> {
    // Without the file nothing was recorded; what lives is then found by its marks.
    read_small(tree, JOURNAL_LIMIT)
        .map(|bytes| parse_tree(&bytes, boot).procs)
        .unwrap_or_default()
}

/// The journal of the present term.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: Utf8PathBuf,
    reserve: Utf8PathBuf,
    len: u64,
}

impl Journal {
    /// Begins a term's file; it must not exist.
    pub(super) fn begin(run_dir: &Utf8Path, term: Term, spec: &RunSpec) -> Result<Self, ActError> {
        let path = run_dir.join(format!("journal/{term}.jsonl"));
        let at = |e: &io::Error| disk_error(&format!("beginning the journal {path}"), e);
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| at(&e))?;
        let reserve = run_dir.join("journal.reserve");
        fill(&reserve).map_err(|e| at(&e))?;
        let spec = serde_json::to_vec_pretty(spec).map_err(|e| at(&io::Error::other(e)))?;
        write_whole(&run_dir.join(format!("spec/{term}.json")), &spec, PRIVATE).map_err(|e| at(&e))?;
        sync_dir(&run_dir.join("journal")).map_err(|e| at(&e))?;
        Ok(Self {
            file,
            path,
            reserve,
            len: 0,
        })
    }

    /// Goes on with a file that another lane began; a torn last line is cut.
    pub(super) fn adopt(run_dir: &Utf8Path, term: Term) -> Result<Self, ActError> {
        let path = run_dir.join(format!("journal/{term}.jsonl"));
        let at = |e: &io::Error| disk_error(&format!("going on with the journal {path}"), e);
        let bytes = read_small(&path, JOURNAL_LIMIT).map_err(|e| at(&e))?;
        let len = journal::read(&bytes).whole;
        let file = OpenOptions::new().append(true).open(&path).map_err(|e| at(&e))?;
        file.set_len(len).map_err(|e| at(&e))?;
        Ok(Self {
            file,
            path,
            reserve: run_dir.join("journal.reserve"),
            len,
        })
    }

    /// Appends whole lines. On a full disk the reserve is given up first.
    pub(super) fn append(&mut self, text: &str, sync: bool) -> Result<(), ActError> {
        let mut result = self.write(text, sync);
        if result
            .as_ref()
            .is_err_and(|e| matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)))
        {
            // Nothing else can be given up; whether this one could, the second try shows.
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
                Ok(())
            }
            Err(e) => {
                // A torn line would be read as damage: back to the last whole one.
                let _ = self.file.set_len(self.len);
                Err(e)
            }
        }
    }
}

fn fill(path: &Utf8Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.len() >= RESERVE {
        return Ok(());
    }
    match nix::fcntl::posix_fallocate(&file, 0, RESERVE as i64) {
        // A file system that cannot preallocate gets real bytes.
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => (&file).write_all(&vec![0; RESERVE as usize]),
        other => other.map_err(io::Error::from),
    }
}

/// What we say of a file names it; what the system says stays what it is, for who sorts it.
pub(super) fn named(path: &Utf8Path, e: io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(_) => e,
        None => io::Error::new(e.kind(), format!("{path}: {e}")),
    }
}

fn is_no_file(path: &Utf8Path) -> bool {
    fs::metadata(path).is_ok_and(|m| !m.is_file())
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;

    #[test]
    fn a_copied_directory_begins_a_new_run_and_a_moved_one_goes_on() {
        let (_keep, dir) = temp_dir();
        let id = |name: &str| Identity {
            run: RunId(format!("run-of-{name}")),
            run_dir: dir.join(name).join(RUN_DIR_NAME),
            root: Some(dir.join(name)),
        };
        open(&id("a")).unwrap();
        fs::create_dir(dir.join("b")).unwrap();
        fs::create_dir(dir.join("b/.supervise")).unwrap();
        fs::copy(dir.join("a/.supervise/run.id"), dir.join("b/.supervise/run.id")).unwrap();
        let notes = open(&id("b")).unwrap().notes;
        assert!(notes.iter().any(|n| n.contains("is a copy")), "{notes:?}");
        fs::rename(dir.join("a"), dir.join("c")).unwrap();
        let notes = open(&id("c")).unwrap().notes;
        assert!(notes.iter().any(|n| n.contains("was moved here")), "{notes:?}");
    }
}
