//! Creates a term together with its holder file: both are written under another name and renamed.
//!
//! If a winner was killed between two steps, it would leave a term without a holder, and the next supervisor would
//! have to wait as long as for a holder that cannot be seen. Not every file system can rename without replacing (NFS
//! cannot): there the directory is created first, and its contents after it.

use super::HeldLease;
use crate::disk::{random, sync_dir};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;

const DRAFT: &str = ".draft-";
const RANDOM: usize = 8;

enum Placed {
    Won,
    Taken,
    /// This file system cannot do it.
    Impossible,
}

/// Creates the directory of the lease's term with its holder in it. Returns false if it exists already.
///
/// # Errors
/// The system's; nothing is left then.
pub(super) fn place(lease: &mut HeldLease) -> io::Result<bool> {
    let own = lease.own_dir();
    let draft = lease.dir.join(format!("{DRAFT}{}", random(RANDOM)?));
    create(&draft)?;
    let placed = lease.write_into(&draft).and_then(|()| rename(&draft, &own));
    let won = match placed {
        Ok(Placed::Won) => {
            // As durable as this file system makes it: a term lost in a power failure belonged to the old boot.
            let _ = sync_dir(&lease.dir);
            true
        }
        // The winner of this term removed our draft as a late one.
        Err(e) if e.kind() == io::ErrorKind::NotFound && lease.dir.exists() => false,
        Ok(Placed::Taken) => {
            let _ = fs::remove_dir_all(&draft);
            false
        }
        Ok(Placed::Impossible) => {
            let _ = fs::remove_dir_all(&draft);
            in_place(lease, &own)?
        }
        Err(e) => {
            let _ = fs::remove_dir_all(&draft);
            return Err(e);
        }
    };
    if won {
        remove_drafts(&lease.dir);
    }
    Ok(won)
}

fn create(dir: &Utf8Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir)
}

/// An existing entry is not replaced, not even an empty one.
fn rename(draft: &Utf8Path, own: &Utf8Path) -> io::Result<Placed> {
    match renameat_with(CWD, draft.as_std_path(), CWD, own.as_std_path(), RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Placed::Won),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(Placed::Taken),
        Err(Errno::NOENT) => Err(io::ErrorKind::NotFound.into()),
        // Any other refusal shows again in the next step.
        Err(_) => Ok(Placed::Impossible),
    }
}

/// Creates the directory first: it decides who won.
fn in_place(lease: &mut HeldLease, own: &Utf8PathBuf) -> io::Result<bool> {
    match create(own) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(e) => return Err(e),
    }
    if let Err(e) = lease.write_into(own) {
        // A term without a holder file would be waited for.
        let _ = fs::remove_dir_all(own);
        return Err(e);
    }
    Ok(true)
}

fn remove_drafts(dir: &Utf8Path) {
    let is_draft = |name: &str| {
        name.strip_prefix(DRAFT)
            .is_some_and(|rest| rest.len() == 2 * RANDOM && rest.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    for entry in dir.read_dir_utf8().into_iter().flatten().flatten() {
        if is_draft(entry.file_name()) && entry.file_type().is_ok_and(|t| t.is_dir()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{claim, take};
    use super::*;
    use crate::io_worker::lease::{HOLDER, terms};
    use crate::io_worker::temp_dir;
    use std::sync::atomic::{AtomicBool, Ordering};
    use supervise_core::id::Term;

    #[test]
    fn no_term_is_ever_seen_without_its_holder() {
        let (_keep, dir) = temp_dir();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                let mut seen = 0;
                while !over.load(Ordering::SeqCst) {
                    let newest = terms(&dir).unwrap().pop().unwrap_or_default();
                    if newest > Term(0) {
                        assert!(dir.join(newest.to_string()).join(HOLDER).exists(), "{newest}");
                        seen = newest.0;
                    }
                }
                seen
            });
            for _ in 0..200 {
                take(&dir, &claim(100)).unwrap();
            }
            over.store(true, Ordering::SeqCst);
            assert!(seen.join().unwrap() > 0);
        });
        let names = dir.read_dir_utf8().unwrap();
        assert!(names.flatten().all(|e| !e.file_name().starts_with('.')));
    }

    #[test]
    fn what_a_killed_winner_left_is_no_term_and_goes() {
        let (_keep, dir) = temp_dir();
        let draft = dir.join(format!("{DRAFT}0123456789abcdef"));
        let others = [".draft-mine", ".draft-0123456789abcdeg"].map(|n| dir.join(n));
        others.iter().chain([&draft]).for_each(|d| fs::create_dir(d).unwrap());
        fs::write(draft.join(HOLDER), "{").unwrap();
        let began = std::time::Instant::now();
        assert_eq!(take(&dir, &claim(60_000)).unwrap().term(), Term(1));
        assert!(began.elapsed().as_secs() < 30);
        assert!(!draft.exists() && others.iter().all(|d| d.exists()));
    }

    #[test]
    fn an_empty_term_of_another_winner_is_not_replaced() {
        let (_keep, dir) = temp_dir();
        let lease = |term| HeldLease {
            dir: dir.clone(),
            holder: claim(10).holder(Term(term)),
            beat: None,
            looked: Default::default(),
        };
        fs::create_dir(dir.join("1")).unwrap();
        assert!(!place(&mut lease(1)).unwrap());
        assert!(!in_place(&mut lease(1), &dir.join("1")).unwrap());
        assert!(in_place(&mut lease(2), &dir.join("2")).unwrap());
        assert!(!place(&mut lease(2)).unwrap());
        assert!(fs::read_dir(dir.join("1")).unwrap().next().is_none());
    }
}
