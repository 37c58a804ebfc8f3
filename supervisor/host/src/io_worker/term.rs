//! A term on disk: opened, won, started, taken over, renewed, released.

use super::identity::{self, DirOwnership};
use super::lease::{HeldLease, LeaseAttempt};
use super::path_guard::PathGuard;
use super::protocol::{IoAnswer, IoQuestion, RunIdentity, TermStart};
use super::registry::RegisteredRun;
use super::replay::{ReplayedState, lines};
use super::reply::getting_on;
use super::requests;
use super::save_requests;
use super::store::{self, JournalFile, go_on, read_journals};
use super::write::internal;
use super::write::{PRIVATE, disk_error, make_dir, write_passing};
use crate::disk::own_dir;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use supervise_core::event::ActError;
use supervise_core::id::Term;
use supervise_core::lease::LeaseClaim;
use supervise_core::spec::RunSpec;

#[derive(Debug, Default)]
pub(super) struct TermOnDisk {
    pub(super) asked: u64,
    read: Option<Stamp>,
    folded: ReplayedState,
    /// The last run directory that was peeked into, with its replay, to continue from.
    peeked: Option<(Utf8PathBuf, ReplayedState)>,
    lease: Option<HeldLease>,
    run_dir: Option<Utf8PathBuf>,
    journal: Option<JournalFile>,
    ground: Option<PathGuard>,
}

/// The newest journal and its length: if unchanged, there is nothing new to read.
type Stamp = (u32, u64);

impl TermOnDisk {
    /// Answers requests about the run directory. `gone`: whether the requester has exited.
    pub(super) fn answer(&mut self, ask: IoQuestion, gone: &dyn Fn() -> bool) -> Result<IoAnswer, ActError> {
        match ask {
            IoQuestion::Open(id) => {
                self.read = stamp(&id.run_dir);
                let (loaded, folded) = identity::open(&id, &mut getting_on(self.asked))?;
                self.folded = folded;
                Ok(IoAnswer::Loaded(Box::new(loaded)))
            }
            IoQuestion::Lines { run_dir, from } => match lines(&run_dir, from) {
                Ok((at, text, next, left)) => Ok(IoAnswer::Lines {
                    at,
                    length: text.len(),
                    text,
                    next,
                    left,
                }),
                Err(e) => Err(disk_error(&format!("reading the journals in {run_dir}"), &e)),
            },
            IoQuestion::Peek { run_dir } => {
                let before = self.peeked.take().filter(|(dir, _)| *dir == run_dir);
                let folded = before.map(|(_, folded)| folded).unwrap_or_default();
                let (mut loaded, folded) = go_on(&run_dir, folded, &mut getting_on(self.asked))
                    .map_err(|e| disk_error(&format!("reading the journals in {run_dir}"), &e))?;
                loaded.copied = loaded
                    .spec
                    .as_ref()
                    .is_some_and(|spec| identity::is_in_a_copy(&run_dir, spec));
                self.peeked = Some((run_dir, folded));
                Ok(IoAnswer::Loaded(Box::new(loaded)))
            }
            IoQuestion::TakeLease { dir, claim, identity } => match identity {
                None => self.take(&dir, &claim, false, gone).map(|took| match took {
                    Ok(term) => IoAnswer::Term(term),
                    Err(who) => IoAnswer::Held(who),
                }),
                Some(id) => self.take_over(&dir, *claim, &id, gone),
            },
            IoQuestion::Begin {
                run_dir,
                term,
                spec,
                lease_dir,
                registry,
            } => {
                // An I/O worker that died may have won it.
                if self.lease.is_none() {
                    self.lease = Some(HeldLease::adopt(&lease_dir, term)?);
                }
                let folded = std::mem::take(&mut self.folded);
                let journal = JournalFile::begin(&run_dir, term, &spec, folded, &mut getting_on(self.asked))?;
                let own = lease_dir.join(term.to_string());
                let ground = PathGuard::hold(places(&run_dir, own, journal.path().to_owned()), &[])?;
                let inodes = ground.inodes();
                (self.journal, self.ground) = (Some(journal), Some(ground));
                self.run_dir = Some(run_dir.clone());
                if let Some(path) = registry {
                    register(&path, &run_dir, &spec);
                }
                Ok(IoAnswer::Begun(inodes))
            }
            IoQuestion::Adopt {
                run_dir,
                term,
                lease_dir,
                ground,
            } => self.adopt(&run_dir, term, &lease_dir, &ground),
            IoQuestion::Append { text, sync } => match &mut self.journal {
                Some(j) => j.append(&text, sync).map(|()| IoAnswer::Done),
                None => Err(internal("no journal was begun")),
            },
            IoQuestion::Bump => self.bump(),
            IoQuestion::Release => self.release(),
            IoQuestion::SaveRequest { dir, request } => save_requests::write(&dir, request).map(|()| IoAnswer::Done),
            IoQuestion::SaveAnswer { dir, request } => save_requests::answer(&dir, request).map(IoAnswer::SaveAnswer),
            IoQuestion::Attempt { dir, files } => attempt(&dir, &files).map(|()| IoAnswer::Done),
            _ => Err(internal("a question that no I/O worker answers")),
        }
    }

    fn take(
        &mut self,
        dir: &Utf8Path,
        claim: &LeaseClaim,
        copied: bool,
        gone: &dyn Fn() -> bool,
    ) -> Result<Result<Term, String>, ActError> {
        match HeldLease::take(dir, claim, copied, gone)? {
            LeaseAttempt::Won(lease) => {
                let term = lease.term();
                self.lease = Some(*lease);
                Ok(Ok(term))
            }
            LeaseAttempt::Held(who) => Ok(Err(who)),
            LeaseAttempt::Nobody => Err(internal("nobody waits for the lease any more")),
        }
    }

    /// Wins the lease inside the run directory; only then is anything in it moved or written.
    fn take_over(
        &mut self,
        dir: &Utf8Path,
        mut claim: LeaseClaim,
        id: &RunIdentity,
        gone: &dyn Fn() -> bool,
    ) -> Result<IoAnswer, ActError> {
        let at = |e: &io::Error| disk_error(&format!("opening the run directory {}", id.run_dir), e);
        let mut notes = Vec::new();
        // The lease may be outside the run directory.
        notes.extend(dir.parent().map(own_dir).transpose().map_err(|e| at(&e))?.flatten());
        notes.extend(own_dir(dir).map_err(|e| at(&e))?);
        let newest = store::terms(&id.run_dir).map_err(|e| at(&e))?.pop().unwrap_or(0);
        claim.above = claim.above.max(Term(newest));
        let copied = matches!(identity::whose(id).map_err(|e| at(&e))?, DirOwnership::Copied { .. });
        let mut term = match self.take(dir, &claim, copied, gone)? {
            Ok(term) => term,
            Err(who) => return Ok(IoAnswer::Held(who)),
        };
        let mut before = None;
        match identity::whose(id).map_err(|e| at(&e))? {
            DirOwnership::Ours => {}
            DirOwnership::Moved { from, run } => {
                before = Some(run);
                let from = from.map_or_else(String::new, |old| format!(" from {old}"));
                notes.push(format!("the checkpoint root was moved here{from}: the run goes on"));
            }
            DirOwnership::Copied { of } => {
                notes.push(identity::set_aside(id, of.as_deref()).map_err(|e| at(&e))?);
                own_dir(&id.run_dir).map_err(|e| at(&e))?;
                if dir.starts_with(&id.run_dir) {
                    claim.above = Term(0);
                    term = match self.take(dir, &claim, false, gone)? {
                        Ok(term) => term,
                        Err(who) => return Ok(IoAnswer::Held(who)),
                    };
                }
            }
        }
        let key = identity::settle(id).map_err(|e| at(&e))?;
        // The previous holder may have written until the end.
        let anew = match stamp(&id.run_dir) == self.read {
            true => None,
            false => {
                let (loaded, folded) = read_journals(&id.run_dir, &mut getting_on(self.asked)).map_err(|e| at(&e))?;
                self.folded = folded;
                Some(Box::new(loaded))
            }
        };
        Ok(IoAnswer::Taken(Box::new(TermStart {
            term,
            looked: self.lease.as_ref().map(HeldLease::looked).unwrap_or_default(),
            key,
            notes,
            before,
            anew,
        })))
    }

    fn adopt(
        &mut self,
        run_dir: &Utf8Path,
        term: Term,
        lease_dir: &Utf8Path,
        known: &[u64],
    ) -> Result<IoAnswer, ActError> {
        // A moved path must be reported, even if nothing else can be done.
        let journal = run_dir.join(format!("journal/{term}.jsonl"));
        if !known.is_empty() {
            let own = lease_dir.join(term.to_string());
            self.ground = Some(PathGuard::hold(places(run_dir, own, journal), known)?);
            self.still_there()?;
        }
        self.journal = Some(JournalFile::adopt(run_dir, term, &mut getting_on(self.asked))?);
        self.lease = Some(HeldLease::adopt(lease_dir, term)?);
        self.run_dir = Some(run_dir.to_owned());
        Ok(IoAnswer::Done)
    }

    /// Fails if a path was moved or replaced, so that nothing is written there.
    fn still_there(&self) -> Result<(), ActError> {
        match self.ground.as_ref().map(PathGuard::moved).transpose()?.flatten() {
            Some(moved) => Err(internal(&moved)),
            None => Ok(()),
        }
    }

    fn bump(&mut self) -> Result<IoAnswer, ActError> {
        if let Some(moved) = self.ground.as_ref().map(PathGuard::moved).transpose()?.flatten() {
            return Ok(IoAnswer::Displaced(moved));
        }
        let lease = self.lease.as_mut().ok_or_else(|| internal("no lease was taken"))?;
        let asked = || self.run_dir.as_deref().and_then(requests::take);
        Ok(match lease.bump()? {
            Some(who) => IoAnswer::Lost(who),
            None => asked().map_or(IoAnswer::Done, IoAnswer::Asked),
        })
    }

    /// Writes the snapshot if enough was appended; `now`: if anything was.
    pub(super) fn snapshot(&mut self, now: bool) {
        if let Some(journal) = &mut self.journal {
            journal.snapshot(now);
        }
    }

    fn release(&mut self) -> Result<IoAnswer, ActError> {
        self.still_there()?;
        self.snapshot(true);
        match &mut self.lease {
            Some(l) => l.release().map(|()| IoAnswer::Done),
            None => Ok(IoAnswer::Done),
        }
    }
}

fn places(run_dir: &Utf8Path, lease: Utf8PathBuf, journal: Utf8PathBuf) -> [(&'static str, Utf8PathBuf); 3] {
    [
        ("the run directory", run_dir.to_owned()),
        ("the lease", lease),
        ("the journal", journal),
    ]
}

fn stamp(run_dir: &Utf8Path) -> Option<Stamp> {
    let term = store::terms(run_dir).ok()?.pop()?;
    let journal = fs::metadata(run_dir.join(format!("journal/{term}.jsonl"))).ok()?;
    Some((term, journal.len()))
}

/// Not synced: facts for the operator, and copies that each start makes again.
fn attempt(dir: &Utf8Path, files: &[(String, String)]) -> Result<(), ActError> {
    let at = |e: &io::Error| disk_error(&format!("making the attempt's directory {dir}"), e);
    make_dir(dir).map_err(|e| at(&e))?;
    for (name, text) in files {
        write_passing(&dir.join(name), text.as_bytes(), PRIVATE).map_err(|e| at(&e))?;
    }
    Ok(())
}

fn register(path: &Utf8Path, run_dir: &Utf8Path, spec: &RunSpec) {
    if let Err(e) = RegisteredRun::of(spec, run_dir).write(path) {
        tracing::warn!("this run will not be listed by `supervise status`: {path}: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::own_claim;
    use super::super::temp_dir;
    use super::*;
    use supervise_core::id::{Ms, RunId};

    fn id(root: &Utf8Path) -> RunIdentity {
        RunIdentity {
            run: RunId(format!("run-of-{root}")),
            run_dir: root.join(identity::RUN_DIR_NAME),
            root: Some(root.to_owned()),
        }
    }

    fn start(root: &Utf8Path, claim: LeaseClaim) -> (TermOnDisk, IoAnswer) {
        let mut tenure = TermOnDisk::default();
        tenure.answer(IoQuestion::Open(id(root)), &|| false).unwrap();
        let ask = IoQuestion::TakeLease {
            dir: root.join(".supervise/lease"),
            claim: Box::new(claim),
            identity: Some(Box::new(id(root))),
        };
        let answer = tenure.answer(ask, &|| false).unwrap();
        (tenure, answer)
    }

    fn claim() -> LeaseClaim {
        own_claim(Ms(100), Ms(0), Term(0))
    }

    fn taken(answer: IoAnswer) -> TermStart {
        match answer {
            IoAnswer::Taken(taken) => *taken,
            other => panic!("{other:?}"),
        }
    }

    fn copy_all(from: &Utf8Path, to: &Utf8Path) {
        fs::create_dir_all(to).unwrap();
        for entry in from.read_dir_utf8().unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => copy_all(entry.path(), &to.join(entry.file_name())),
                false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
            }
        }
    }

    #[test]
    fn a_copied_directory_begins_a_new_run_and_a_moved_one_goes_on() {
        let (_keep, dir) = temp_dir();
        let (mut first, answer) = start(&dir.join("a"), claim());
        let key = taken(answer).key;
        first.answer(IoQuestion::Release, &|| false).unwrap();
        copy_all(&dir.join("a"), &dir.join("b"));
        let (_, answer) = start(&dir.join("b"), claim());
        let copy = taken(answer);
        assert!(copy.notes.iter().any(|n| n.contains("is a copy")), "{copy:?}");
        assert_eq!(copy.term, Term(1));
        assert!(copy.key != key && copy.before.is_none());
        fs::rename(dir.join("a"), dir.join("c")).unwrap();
        let (_, answer) = start(&dir.join("c"), claim());
        let moved = taken(answer);
        assert!(moved.notes.iter().any(|n| n.contains("was moved here")), "{moved:?}");
        assert_eq!((moved.key, moved.before), (key, Some(id(&dir.join("a")).run)));
    }

    #[test]
    fn a_directory_that_is_held_is_neither_moved_nor_written() {
        let (_keep, dir) = temp_dir();
        let mut elsewhere = claim();
        elsewhere.seat.pid_ns += 1;
        elsewhere.ttl = Ms(60_000);
        let (mut first, _) = start(&dir.join("a"), elsewhere);
        // Visible under another path, with another device number in its `run.id`.
        fs::rename(dir.join("a"), dir.join("b")).unwrap();
        let file = dir.join("b/.supervise/run.id");
        let text = fs::read_to_string(&file).unwrap().replace("\"dev\":", "\"dev\":9");
        fs::write(&file, &text).unwrap();
        if let Some(lease) = &mut first.lease {
            *lease = HeldLease::adopt(&dir.join("b/.supervise/lease"), Term(1)).unwrap();
        }
        let beating = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            first.answer(IoQuestion::Bump, &|| false).unwrap();
        });
        let (_, answer) = start(&dir.join("b"), claim());
        assert!(matches!(answer, IoAnswer::Held(_)), "{answer:?}");
        beating.join().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert!(!dir.join("b/.supervise.copied-1").exists());
    }

    #[test]
    fn what_was_written_while_the_lease_was_waited_for_is_read() {
        let (_keep, dir) = temp_dir();
        let root = dir.join("a");
        let mut tenure = TermOnDisk::default();
        tenure.answer(IoQuestion::Open(id(&root)), &|| false).unwrap();
        fs::create_dir_all(root.join(".supervise/journal")).unwrap();
        fs::write(root.join(".supervise/journal/4.jsonl"), "").unwrap();
        let ask = IoQuestion::TakeLease {
            dir: root.join(".supervise/lease"),
            claim: Box::new(claim()),
            identity: Some(Box::new(id(&root))),
        };
        let taken = taken(tenure.answer(ask, &|| false).unwrap());
        assert!(taken.anew.is_some());
        assert_eq!(taken.term, Term(5), "a journal of that term is there already");
    }
}
