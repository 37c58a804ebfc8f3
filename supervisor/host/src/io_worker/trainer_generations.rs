//! Generations that newer releases of AReaL write themselves, and the pointer that names one of them.
//!
//! The pointer is untrusted input. It is changed by replacing it, and the previous pointer, or whatever was in its
//! place, is moved aside.

use super::checkpoint_places::CheckpointDirs;
use super::latest::{LatestPointer, bytes_of, latest};
use super::write::{PRIVATE, free_name, make_dir, write_note, write_whole};
use crate::disk::sync_dir;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use supervise_checkpoint::latest_file::{
    GENERATIONS, LATEST, LatestFile, POINTER_LIMIT, generation_name, generation_step,
};
use supervise_core::checkpoint::CkptId;
use supervise_core::id::Step;

/// The directory of a generation, from the name used by the run.
pub(super) fn dir_name(id: &CkptId) -> io::Result<&str> {
    let name = id.0.as_str().split('.').next().unwrap_or_default();
    match generation_step(name) {
        Some(_) => Ok(name),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no generation of the trainer's"),
        )),
    }
}

/// Returns true if this trainer keeps its own generations: a copy that is put back must then become one.
pub(super) fn is_used(root: &Utf8Path) -> bool {
    let any = |dir: Utf8PathBuf| dir.read_dir_utf8().is_ok_and(|mut all| all.next().is_some());
    latest(root) != LatestPointer::Missing || any(root.join(GENERATIONS))
}

/// Moves one of the trainer's generations aside. The pointer stays, so that AReaL refuses to start instead of
/// starting over.
pub(super) fn own_aside(places: &CheckpointDirs, name: &str, foreign: bool, why: &str, by: &str) -> io::Result<()> {
    aside(places, &places.generations().join(name), name, foreign, why, by)
}

pub(super) fn pointer_aside(places: &CheckpointDirs, why: &str, by: &str) -> io::Result<()> {
    aside(places, &places.root.join(LATEST), LATEST, false, why, by)
}

fn aside(places: &CheckpointDirs, source: &Utf8Path, name: &str, foreign: bool, why: &str, by: &str) -> io::Result<()> {
    if fs::symlink_metadata(source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let aside = places.aside(foreign);
    make_dir(&aside)?;
    let (target, note) = free_name(&aside, name, by)?;
    write_note(&note, name, foreign, why, by)?;
    fs::rename(source, &target)?;
    sync_dir(&aside)?;
    source.parent().map_or(Ok(()), sync_dir)
}

/// Makes the pointer name the generation of a step; it is replaced atomically.
pub(super) fn point_at(places: &CheckpointDirs, step: Step, by: &str) -> io::Result<()> {
    let generation = places.own(&places.generations(), &generation_name(step));
    let there = generation.engines()?;
    if there.is_empty() {
        return Err(io::Error::other(format!("there is nothing in {}", generation.dir)));
    }
    let wanted = places.engines();
    let pointer = LatestFile {
        step,
        // AReaL refuses a generation that lacks the run's engines.
        engines: if wanted.is_empty() { there } else { wanted },
    };
    let (path, new) = (places.root.join(LATEST), pointer.to_bytes());
    let why = format!("{} is gone on from", pointer.generation());
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= POINTER_LIMIT => {
            let old = bytes_of(&path)?;
            if old == new {
                return Ok(());
            }
            let aside = places.aside(false);
            make_dir(&aside)?;
            let (copy, note) = free_name(&aside, LATEST, by)?;
            write_note(&note, LATEST, false, &why, by)?;
            write_whole(&copy, &old, PRIVATE)?;
        }
        Ok(_) => pointer_aside(places, &why, by)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    write_whole(&path, &new, 0o666)
}

/// Makes a copy one of the trainer's generations, named by the pointer. An existing one of that name is moved aside.
pub(super) fn put_in(places: &CheckpointDirs, copy: &Utf8Path, step: Step, by: &str) -> io::Result<()> {
    let (generations, name) = (places.generations(), generation_name(step));
    let made = places.own(&places.staging("back"), &name);
    for dir in places.plain(copy).dirs()? {
        let to = made.place(&dir);
        let above = to.parent().unwrap_or(&made.dir).to_owned();
        fs::create_dir_all(&above)?;
        fs::rename(copy.join(&dir), &to)?;
        sync_dir(&above)?;
    }
    sync_dir(&made.dir)?;
    own_aside(places, &name, false, "a copy of this step is put in its place", by)?;
    fs::create_dir_all(&generations)?;
    fs::rename(&made.dir, generations.join(&name))?;
    sync_dir(&generations)?;
    sync_dir(&places.root)?;
    point_at(places, step, by)
}
