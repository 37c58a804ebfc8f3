//! Leftovers of a run: steps that were moved aside, and the directories of its attempts. Listed, and deleted at the
//! operator's request.

use super::files::{SMALL, read_small};
use super::protocol::{Leftover, LeftoverKind};
use super::write::{disk_error, make_dir};
use crate::disk::{remove_tree, sync_dir};
use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use supervise_core::event::ActError;
use supervise_core::id::AttemptNo;

/// Unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;
/// Depth to which leftovers are measured; deeper files do not count.
const DEEPEST: usize = 32;
/// Directories whose entries are leftovers, below the store.
const ASIDE: [&str; 2] = ["aside", "aside/foreign"];

#[derive(Debug, Default, Deserialize)]
struct Note {
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    foreign: bool,
    #[serde(default)]
    why: Option<String>,
}

/// Lists leftovers: steps moved aside by name, then attempts by number. `store`: where steps are moved aside.
///
/// # Errors
/// The system's, if a directory cannot be read.
pub(super) fn list(run_dir: &Utf8Path, store: &Utf8Path) -> Result<Vec<Leftover>, ActError> {
    let at = |e: io::Error| disk_error(&format!("listing what {run_dir} keeps"), &e);
    let mut out = Vec::new();
    for dir in ASIDE {
        // A link leads out of our own directories.
        if store.join(dir).is_symlink() {
            continue;
        }
        for name in names(&store.join(dir)).map_err(at)? {
            let place = Utf8Path::new(dir).join(&name);
            // Notes belong to their step; `foreign` is the other directory.
            if ASIDE.iter().any(|other| place == *other) || is_note(store, &place) {
                continue;
            }
            out.extend(aside(store, place).map_err(at)?);
        }
    }
    let mut attempts = Vec::new();
    for name in names(&run_dir.join("attempts")).map_err(at)? {
        let Some(no) = attempt_no(&name) else { continue };
        let place = Utf8Path::new("attempts").join(&name);
        attempts.extend(leftover(run_dir, place, LeftoverKind::Attempt(no), None).map_err(at)?);
    }
    attempts.sort_by_key(|l| l.kind);
    out.extend(attempts);
    Ok(out)
}

fn aside(store: &Utf8Path, place: Utf8PathBuf) -> io::Result<Option<Leftover>> {
    let note = read_small(&note_of(&store.join(&place)), SMALL)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
    // Without a note its worth is unknown, so it is treated as whole.
    let note = note.unwrap_or(Note {
        whole: true,
        ..Note::default()
    });
    let kind = match note {
        Note { foreign: true, .. } => LeftoverKind::Foreign,
        Note { whole: true, .. } => LeftoverKind::Whole,
        _ => LeftoverKind::Torn,
    };
    leftover(store, place, kind, note.why)
}

fn leftover(
    base: &Utf8Path,
    place: Utf8PathBuf,
    kind: LeftoverKind,
    why: Option<String>,
) -> io::Result<Option<Leftover>> {
    let path = base.join(&place);
    let since = match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta?.ctime(),
    };
    let bytes = size(&path, DEEPEST)?;
    Ok(Some(Leftover {
        kind,
        place,
        bytes,
        since,
        why,
    }))
}

fn size(path: &Utf8Path, depth: usize) -> io::Result<u64> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        meta => meta?,
    };
    let mut bytes = meta.blocks().saturating_mul(BLOCK);
    if meta.is_dir() && depth > 0 {
        for name in names(path)? {
            bytes = bytes.saturating_add(size(&path.join(name), depth - 1)?);
        }
    }
    Ok(bytes)
}

/// Names in a directory, sorted; empty if the directory does not exist. Names that are not UTF-8 are not ours.
fn names(dir: &Utf8Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn attempt_no(name: &str) -> Option<AttemptNo> {
    let no = name.parse::<u32>().ok()?;
    (name == format!("{no:04}")).then_some(AttemptNo(no))
}

fn note_of(path: &Utf8Path) -> Utf8PathBuf {
    Utf8PathBuf::from(format!("{path}.json"))
}

fn is_note(store: &Utf8Path, place: &Utf8Path) -> bool {
    place.extension() == Some("json") && fs::symlink_metadata(store.join(place)).is_ok_and(|m| m.is_file())
}

/// Deletes leftovers by their paths from [`list`]. Each is renamed out of its directory first, so that none is seen
/// half deleted.
///
/// # Errors
/// A path that is not a leftover's, or the system's; earlier ones are deleted then.
pub(super) fn delete(run_dir: &Utf8Path, store: &Utf8Path, places: &[Utf8PathBuf]) -> Result<(), ActError> {
    let bin = store.join("pruned");
    for place in places {
        let base = base(run_dir, store, place).map_err(|e| disk_error(&format!("deleting {place}"), &e))?;
        let path = base.join(place);
        let deleted = match base == store {
            true => through(&bin, &path),
            // Not on the root's file system if `run_dir` was set.
            false => remove_tree(&path),
        };
        deleted
            .and_then(|()| remove_tree(&note_of(&path)))
            .map_err(|e| disk_error(&format!("deleting {path}"), &e))?;
    }
    remove_tree(&bin).map_err(|e| disk_error(&format!("deleting {bin}"), &e))
}

fn through(bin: &Utf8Path, path: &Utf8Path) -> io::Result<()> {
    make_dir(bin)?;
    let to = bin.join(path.file_name().unwrap_or_default());
    remove_tree(&to)?;
    match fs::rename(path, &to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    if let Some(dir) = path.parent() {
        sync_dir(dir)?;
    }
    remove_tree(&to)
}

/// The directory that contains a leftover. Only a plain name directly below a directory of leftovers is accepted.
fn base<'a>(run_dir: &'a Utf8Path, store: &'a Utf8Path, place: &Utf8Path) -> io::Result<&'a Utf8Path> {
    let is_plain = place.components().all(|c| matches!(c, Utf8Component::Normal(_)));
    let dir = place.parent().map_or("", Utf8Path::as_str);
    let number = place.file_name().and_then(attempt_no).is_some();
    match dir {
        _ if !is_plain => {}
        "attempts" if number => return Ok(run_dir),
        dir if ASIDE.contains(&dir) && !store.join(dir).is_symlink() && !ASIDE.contains(&place.as_str()) => {
            return Ok(store);
        }
        _ => {}
    }
    let what = format!("{place:?} is no leftover");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;

    fn put(path: &Utf8Path, note: Option<&str>) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("model.pt"), vec![1; 5000]).unwrap();
        if let Some(note) = note {
            fs::write(note_of(path), note).unwrap();
        }
    }

    fn listed(dir: &Utf8Path) -> Vec<(String, LeftoverKind)> {
        let all = list(dir, dir).unwrap();
        all.into_iter().map(|l| (l.place.into_string(), l.kind)).collect()
    }

    #[test]
    fn leftovers_are_listed_with_their_worth_and_deleted_with_their_notes() {
        let (_keep, dir) = temp_dir();
        assert_eq!(list(&dir, &dir).unwrap(), []);
        put(
            &dir.join("aside/global_step_2.attempt-1"),
            Some(r#"{"whole": true, "why": "fell back"}"#),
        );
        put(&dir.join("aside/global_step_4.attempt-1"), Some(r#"{"whole": false}"#));
        put(&dir.join("aside/global_step_6.attempt-1"), Some("{"));
        put(
            &dir.join("aside/foreign/global_step_8.attempt-1"),
            Some(r#"{"foreign": true, "whole": true}"#),
        );
        put(&dir.join("attempts/0010"), None);
        put(&dir.join("attempts/0002"), None);
        for odd in ["attempts/effective", "attempts/+7", "attempts/007"] {
            put(&dir.join(odd), None);
        }
        fs::write(dir.join("aside/gone.json"), "{}").unwrap();
        let all = [
            ("aside/global_step_2.attempt-1", LeftoverKind::Whole),
            ("aside/global_step_4.attempt-1", LeftoverKind::Torn),
            ("aside/global_step_6.attempt-1", LeftoverKind::Whole),
            ("aside/foreign/global_step_8.attempt-1", LeftoverKind::Foreign),
            ("attempts/0002", LeftoverKind::Attempt(AttemptNo(2))),
            ("attempts/0010", LeftoverKind::Attempt(AttemptNo(10))),
        ];
        assert_eq!(listed(&dir), all.map(|(place, kind)| (place.to_owned(), kind)));
        assert!(list(&dir, &dir).unwrap().iter().all(|l| l.bytes >= 5000));

        let gone: Vec<Utf8PathBuf> = [all[1].0, all[3].0, all[4].0].map(Into::into).to_vec();
        delete(&dir, &dir, &gone).unwrap();
        delete(&dir, &dir, &gone).unwrap();
        let left = [all[0], all[2], all[5]];
        assert_eq!(listed(&dir), left.map(|(place, kind)| (place.to_owned(), kind)));
        assert!(!dir.join("aside/global_step_4.attempt-1.json").exists());
        assert!(!dir.join("pruned").exists());
    }

    #[test]
    fn nothing_else_is_ever_deleted() {
        let (_keep, dir) = temp_dir();
        put(&dir.join("aside/foreign/x"), None);
        put(&dir.join("protected/x"), None);
        let bad = [
            "",
            "aside",
            "aside/foreign",
            "aside/../protected/x",
            "/etc",
            "protected/x",
            "attempts/x",
            "aside/a/b",
        ];
        for place in bad {
            assert!(delete(&dir, &dir, &[place.into()]).is_err(), "{place}");
        }
        assert!(dir.join("aside/foreign/x").exists() && dir.join("protected/x").exists());
    }

    #[test]
    fn a_link_is_deleted_and_not_followed() {
        let (_keep, dir) = temp_dir();
        put(&dir.join("protected/x"), None);
        fs::create_dir_all(dir.join("aside")).unwrap();
        std::os::unix::fs::symlink(dir.join("protected/x"), dir.join("aside/global_step_2.a")).unwrap();
        delete(&dir, &dir, &["aside/global_step_2.a".into()]).unwrap();
        assert!(dir.join("protected/x/model.pt").exists());
        assert!(dir.join("aside/global_step_2.a").symlink_metadata().is_err());
    }
}
