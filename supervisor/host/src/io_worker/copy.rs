//! Copies of sets: into a generation while the trainer runs, and back before a launch.
//!
//! A copy is made under a name that no reader uses, proven there, and renamed. It is never a hard link, because the
//! trainer overwrites files in place.

use super::checkpoint_places::{CheckpointDirs, StoredSet};
use super::files::{open_file, read_plain};
use super::latest::LatestPointer;
use super::rate_limit::RateLimit;
use super::scan::RootProver;
use super::trainer_generations::{dir_name, is_used, own_aside, point_at, pointer_aside, put_in};
use super::write::{disk_error, free_name, make_dir, write_note, write_whole};
use crate::disk::{CloneMode, clone_file, remove_empty, remove_tree, sync_dir};
use camino::Utf8Path;
use std::fs;
use std::io;
use supervise_checkpoint::latest_file::generation_step;
use supervise_core::checkpoint::kind::{is_kept, is_older, is_own, save_of};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, PinsHash, Verdict};
use supervise_core::event::{ActError, ActErrorKind};
use supervise_core::id::Step;

/// After this many copied bytes, and at the end, check whether a save has begun.
const LOOK: u64 = 64 << 20;

/// Longest file in which frequencies are changed; a real one has a thousand bytes.
const INFO_LIMIT: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct CopyRequest {
    pub(super) ckpt: CkptId,
    pub(super) step: Step,
    pub(super) pins: PinsHash,
    /// At most this many bytes per second; 0: no limit.
    pub(super) rate: u64,
    pub(super) reserve: u64,
}

pub(super) fn keep(places: &CheckpointDirs, wanted: &CopyRequest) -> Result<(), ActError> {
    let Some(save) = save_of(&wanted.ckpt) else {
        return Err(other(format!("{} has no name of its own", wanted.ckpt)));
    };
    let name = format!("step_{}.{save}", wanted.step);
    // A scan that began before the copy existed may have requested it again.
    if fs::symlink_metadata(places.protected().join(&name)).is_ok() {
        let there = proven(places, &places.protected(), &name)?;
        if there.verdict == Verdict::Whole && there.save.as_deref() == Some(save) {
            return Ok(());
        }
    }
    let staging = places.staging("keep");
    let at = |what: &str, e: &io::Error| refused(&format!("{what} of step {}", wanted.step), e);
    remove_tree(&staging).map_err(|e| at("clearing an unfinished copy", &e))?;
    let made = make_copy(places, wanted, &staging.join(&name)).and_then(|()| {
        let copy = proven(places, &staging, &name)?;
        if copy.verdict != Verdict::Whole || copy.save.as_deref() != Some(save) {
            let why = copy.why().map_or_else(String::new, |f| format!(": {f}"));
            return Err(other(format!(
                "the copy of step {} is {}{why}",
                wanted.step, copy.verdict
            )));
        }
        put_in_place(places, &staging.join(&name), &name).map_err(|e| at("keeping the copy", &e))
    });
    // The rest of a failed copy takes space that the next save needs.
    let cleared = remove_tree(&staging).map_err(|e| at("clearing an unfinished copy", &e));
    made.and(cleared)
}

fn make_copy(places: &CheckpointDirs, wanted: &CopyRequest, to: &Utf8Path) -> Result<(), ActError> {
    let failed = |e: &io::Error| refused(&format!("copying step {}", wanted.step), e);
    let live = places.live().map_err(|e| failed(&e))?;
    let is_still = || -> Result<Option<u64>, ActError> {
        match places.files_of(&live) {
            Ok((facts, pins)) if pins == Some(wanted.pins) => Ok(Some(facts.iter().map(|f| f.size).sum())),
            Ok(_) => Ok(None),
            // Directories appear and disappear during a save.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    };
    let bytes = is_still()?.ok_or_else(|| voided(wanted))?;
    make_dir(to).map_err(|e| failed(&e))?;
    check_room(places, to, bytes, wanted)?;
    let mut limit = RateLimit::new(wanted.rate);
    let mut done = 0_u64;
    let mut changed = false;
    let mut looked = 0;
    let copied = copy_set(&live, to, &mut |n| {
        done = done.saturating_add(n);
        limit.hold(done, || false);
        if done - looked < LOOK {
            return Ok(());
        }
        looked = done;
        changed = !matches!(is_still(), Ok(Some(_)));
        match changed {
            true => Err(io::Error::other("a save began")),
            false => Ok(()),
        }
    });
    match (copied, is_still()?) {
        (Ok(()), Some(_)) => Ok(()),
        (Err(e), Some(_)) if !changed => Err(failed(&e)),
        _ => Err(voided(wanted)),
    }
}

/// Copies the directories of a set and syncs each file; the directory read first is written last.
fn copy_set(from: &StoredSet, to: &Utf8Path, copied: &mut dyn FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    for dir in from.dirs()? {
        fs::create_dir_all(to.join(&dir))?;
        for entry in from.place(&dir).read_dir_utf8()? {
            let entry = entry?;
            if entry.file_type()?.is_file() && from.has_entry(entry.file_name()) {
                let mut source = open_file(entry.path())?;
                clone_file(
                    &mut source,
                    &to.join(&dir).join(entry.file_name()),
                    CloneMode::Either,
                    copied,
                )?;
            }
        }
        for above in dir.ancestors() {
            sync_dir(&to.join(above))?;
        }
    }
    to.parent().map_or(Ok(()), sync_dir)
}

/// Checks free space for the copy, the next save and the reserve. A copy that shares its blocks costs as much as soon
/// as the trainer overwrites the original.
fn check_room(places: &CheckpointDirs, at: &Utf8Path, bytes: u64, wanted: &CopyRequest) -> Result<(), ActError> {
    let (reserve, step) = (wanted.reserve, wanted.step);
    let needed = bytes.saturating_mul(2).saturating_add(reserve);
    let Ok(room) = rustix::fs::statvfs(at.as_std_path()) else {
        return Ok(());
    };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if room.f_blocks == 0 || free >= needed {
        return Ok(());
    }
    let mib = |n: u64| n.div_ceil(1 << 20);
    Err(ActError {
        what: format!(
            "no copy of step {step} is kept: {} MiB are free in {}, and {} MiB are needed (the copy, the next save and a reserve of {} MiB). A save that is killed now destroys the only checkpoint: free some space, or lower protect.reserve",
            mib(free),
            places.store,
            mib(needed),
            mib(reserve)
        ),
        retryable: true,
        kind: ActErrorKind::NoRoom,
    })
}

fn proven(places: &CheckpointDirs, dir: &Utf8Path, name: &str) -> Result<CheckpointSummary, ActError> {
    let mut prover = RootProver::new(dir, places.trainer, &places.expect());
    let report = prover.scan(Depth::Structure, u32::MAX, &mut |_| true);
    let found = report.steps.into_iter().find(|c| c.id.0 == name);
    found.ok_or_else(|| other(format!("the copy in {dir} cannot be read back")))
}

/// Makes a finished copy a generation. A directory that has its name was not whole and is moved aside.
fn put_in_place(places: &CheckpointDirs, copy: &Utf8Path, name: &str) -> io::Result<()> {
    let protected = places.protected();
    make_dir(&protected)?;
    let target = protected.join(name);
    if fs::symlink_metadata(&target).is_ok() {
        generation_aside(places, name, false, "it is not whole, and was copied anew", "keep")?;
    }
    fs::rename(copy, &target)?;
    sync_dir(&protected)
}

pub(super) fn generation_aside(
    places: &CheckpointDirs,
    name: &str,
    foreign: bool,
    why: &str,
    by: &str,
) -> io::Result<()> {
    let source = places.protected().join(name);
    if fs::symlink_metadata(&source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let aside = places.aside(foreign);
    make_dir(&aside)?;
    let (target, note) = free_name(&aside, name, by)?;
    write_note(&note, name, foreign, why, by)?;
    fs::rename(&source, &target)?;
    sync_dir(&aside)?;
    sync_dir(&places.protected())
}

/// Moves the set that the trainer would load aside. If its pointer is wrong, there is none.
pub(super) fn live_aside(places: &CheckpointDirs, id: &CkptId, foreign: bool, why: &str, by: &str) -> io::Result<()> {
    match places.pointer() {
        LatestPointer::Missing => in_place_aside(places, id, foreign, why, by),
        LatestPointer::Names(pointer) => own_aside(places, &pointer.generation(), foreign, why, by),
        LatestPointer::Wrong(_) | LatestPointer::Unreadable(_) => Ok(()),
    }
}

/// Moves the in-place set aside, starting with the directory read first: a trainer that is started meanwhile must not
/// resume from half of it.
pub(super) fn in_place_aside(
    places: &CheckpointDirs,
    id: &CkptId,
    foreign: bool,
    why: &str,
    by: &str,
) -> io::Result<()> {
    let mut dirs = places.in_place().movable()?;
    dirs.reverse();
    let mut full = Vec::new();
    for dir in dirs {
        let path = places.root.join(&dir);
        if !path.is_dir() || path.read_dir_utf8()?.next().is_some() {
            full.push(dir);
        }
    }
    if full.is_empty() {
        return Ok(());
    }
    let aside = places.aside(foreign);
    make_dir(&aside)?;
    let (target, note) = free_name(&aside, id.0.as_str(), by)?;
    write_note(&note, id.0.as_str(), foreign, why, by)?;
    make_dir(&target)?;
    for dir in full {
        let to = target.join(&dir);
        if let Some(parent) = to.parent() {
            make_dir(parent)?;
        }
        let from = places.root.join(&dir);
        fs::rename(&from, &to)?;
        from.parent().map_or(Ok(()), sync_dir)?;
    }
    sync_dir(&target)?;
    sync_dir(&aside)
}

/// Makes the trainer resume from a step: puts a copy where it looks, or points its own pointer to an existing
/// generation.
pub(super) fn put_back(
    places: &CheckpointDirs,
    from: &CkptId,
    by: &str,
    working: &mut dyn FnMut(u64) -> bool,
) -> Result<(), ActError> {
    let failed = |e: io::Error| refused(&format!("making the trainer go on from {from}"), &e);
    if is_older(from) {
        return pointer_aside(places, &format!("{from} is gone on from"), by).map_err(failed);
    }
    if is_own(from) {
        let step = dir_name(from).map(generation_step).map_err(failed)?;
        return point_at(places, step.unwrap_or_default(), by).map_err(failed);
    }
    put_copy_back(places, from, by, working)
}

/// Puts a copy of a generation where the trainer looks, completely or not at all. If this is interrupted, there is no
/// `recover_info` yet, so the trainer sees no live set, and the generation is unchanged.
fn put_copy_back(
    places: &CheckpointDirs,
    from: &CkptId,
    by: &str,
    working: &mut dyn FnMut(u64) -> bool,
) -> Result<(), ActError> {
    let name = from.0.as_str();
    let failed = |what: &str, e: &io::Error| refused(&format!("{what} {name}"), e);
    let staging = places.staging("back");
    remove_tree(&staging).map_err(|e| failed("clearing an unfinished copy of", &e))?;
    let copy = staging.join(name);
    let mut done = 0_u64;
    let copied = make_dir(&copy).and_then(|()| {
        copy_set(&places.plain(&places.protected().join(name)), &copy, &mut |n| {
            done = done.saturating_add(n);
            // This runs before a launch and is never cancelled.
            working(done);
            Ok(())
        })
    });
    if let Err(e) = copied {
        // The generation is unchanged; this frees the space.
        let _ = remove_tree(&staging);
        return Err(failed("copying", &e));
    }
    let summary = proven(places, &staging, name)?;
    if summary.verdict != Verdict::Whole || summary.save.as_deref() != save_of(from) {
        let why = summary.why().map_or_else(String::new, |f| format!(": {f}"));
        return Err(other(format!(
            "the copy of {name} that was to be put back is {}{why}",
            summary.verdict
        )));
    }
    let put = match places.layout.file().is_none() && is_used(&places.root) {
        true => put_in(places, &copy, summary.step, by),
        false => swap_in(places, &copy),
    };
    put.map_err(|e| failed("putting back", &e))?;
    remove_tree(&staging).map_err(|e| failed("clearing what is left of", &e))
}

fn swap_in(places: &CheckpointDirs, copy: &Utf8Path) -> io::Result<()> {
    for dir in places.plain(copy).movable()? {
        let to = places.root.join(&dir);
        let above = to.parent().unwrap_or(&places.root).to_owned();
        fs::create_dir_all(&above)?;
        // The trainer's own path helpers create empty directories; files are not removed.
        if copy.join(&dir).is_dir() {
            remove_empty(&to)?;
        }
        fs::rename(copy.join(&dir), &to)?;
        sync_dir(&above)?;
    }
    sync_dir(&places.root)
}

/// Replaces the stored save and evaluation frequencies, which would override the configuration. The file is replaced
/// atomically.
pub(super) fn set_frequencies(places: &CheckpointDirs) -> Result<(), ActError> {
    let live = places.live().map_err(|e| refused("changing frequencies", &e))?;
    let expect = places.expect();
    for name in &places.layout.stored(&expect) {
        let path = live.place(&Utf8Path::new(places.layout.info()).join(name));
        let failed = |e: &io::Error| refused(&format!("changing {path}"), e);
        let bytes = read_plain(&path, INFO_LIMIT).map_err(|e| failed(&e))?;
        match places.layout.corrected(&expect, name, &bytes) {
            Ok(Some(edited)) => write_whole(&path, &edited, 0o666).map_err(|e| failed(&e))?,
            Ok(None) => {}
            // The set is whole anyway; that the stored frequencies win was reported.
            Err(why) => tracing::warn!("{path} is left as it is: {why}"),
        }
    }
    Ok(())
}

/// Deletes generations that are no longer retained: they are renamed first, so that none is seen half deleted.
pub(super) fn drop_generations(places: &CheckpointDirs, ids: &[CkptId]) -> Result<(), ActError> {
    let bin = places.staging("dropped");
    for id in ids {
        let name = id.0.as_str();
        let failed = |e: &io::Error| disk_error(&format!("deleting {name}"), e);
        if name.contains('/') || !is_kept(id) {
            return Err(other(format!("{name:?} is no generation")));
        }
        make_dir(&bin).map_err(|e| failed(&e))?;
        match fs::rename(places.protected().join(name), bin.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&e)),
            _ => {}
        }
    }
    remove_tree(&bin).map_err(|e| disk_error("deleting old generations", &e))
}

fn voided(wanted: &CopyRequest) -> ActError {
    ActError {
        what: format!("a save began while step {} was copied: the copy is void", wanted.step),
        retryable: true,
        kind: ActErrorKind::Voided,
    }
}

/// A full disk is not a failure of the run: report what is needed.
fn refused(what: &str, e: &io::Error) -> ActError {
    let mut error = disk_error(what, e);
    if error.kind == ActErrorKind::NoRoom {
        error
            .what
            .push_str("; free some space (what was moved out of the way is in `aside`, next to `protected`)");
    }
    error
}

fn other(what: String) -> ActError {
    ActError {
        what,
        retryable: true,
        kind: ActErrorKind::Other,
    }
}
