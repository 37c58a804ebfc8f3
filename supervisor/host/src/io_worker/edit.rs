//! Changes under a checkpoint root. Each is idempotent.

use super::proof_record::{follow, forget};
use super::write::{PRIVATE, disk_error, free_name, make_dir, remove_file, write_whole};
use crate::disk::sync_dir;
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs;
use std::io;
use supervise_core::checkpoint::CkptId;
use supervise_core::event::ActError;
use supervise_core::journal::record::DiskEdit;

pub(super) const OURS: &str = ".supervise";
const TRACKER: &str = "latest_checkpointed_iteration.txt";

/// Performs the edits in order and stops at the first failure. A step's proof record moves with it.
pub(super) fn perform(
    root: &Utf8Path,
    edits: &[DiskEdit],
    by: &str,
    records: Option<&Utf8Path>,
) -> Result<(), ActError> {
    let mut left = Vec::new();
    for edit in edits {
        let (what, result) = match edit {
            DiskEdit::MoveAside {
                from,
                whole,
                foreign,
                others,
                why,
            } => (
                format!("moving {from} aside"),
                match move_aside(root, from, *whole, *foreign, why, by) {
                    Err(e) if *others && e.kind() == io::ErrorKind::PermissionDenied => {
                        hide(root, from, by).map(|hidden| {
                            left.extend((!hidden).then_some(from));
                            None
                        })
                    }
                    moved => moved,
                }
                .map(|to| {
                    if let (Some(records), Some(to)) = (records, to) {
                        follow(records, from, &to);
                    }
                }),
            ),
            DiskEdit::PartAside { from, entry, why } => (
                format!("moving {entry} of {from} aside"),
                part_aside(root, from, entry, why, by),
            ),
            DiskEdit::WriteTracker { step } => (
                format!("writing {TRACKER}"),
                write_whole(&root.join(TRACKER), step.to_string().as_bytes(), 0o666),
            ),
            DiskEdit::RemoveTracker => (format!("removing {TRACKER}"), remove_file(&root.join(TRACKER))),
            DiskEdit::Reshard(cut) | DiskEdit::EndReshard(cut) => (
                format!("cutting {} anew", cut.ckpt),
                Err(io::Error::other("it is not done here")),
            ),
            DiskEdit::PutBack { .. } | DiskEdit::SetFrequencies => (
                "changing the only checkpoint".to_owned(),
                Err(io::Error::other(
                    "this trainer keeps each step in a directory of its own",
                )),
            ),
        };
        result.map_err(|e| disk_error(&format!("{what} in {root}"), &e))?;
    }
    tell_left(&left);
    sync_dir(root).map_err(|e| disk_error(&format!("syncing {root}"), &e))
}

/// Deletes steps that retention does not keep. They are renamed out of the trainer's sight first, so that none is
/// seen half deleted.
pub(super) fn prune(root: &Utf8Path, steps: &[CkptId], records: Option<&Utf8Path>) -> Result<(), ActError> {
    let bin = root.join(OURS).join("pruned");
    make_dir(&bin).map_err(|e| disk_error(&format!("creating {bin}"), &e))?;
    for id in steps {
        let step = prunable(id).map_err(|e| disk_error(&format!("pruning {id}"), &e))?;
        let to = bin.join(id.0.as_str().replace('/', "_"));
        let renamed = match fs::rename(root.join(&id.0), &to) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                fs::remove_dir_all(&to).and_then(|()| fs::rename(root.join(&id.0), &to))
            }
            other => other,
        };
        renamed.map_err(|e| disk_error(&format!("pruning {id}"), &e))?;
        if let Some(records) = records {
            forget(records, &step);
        }
    }
    match fs::remove_dir_all(&bin) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(disk_error(&format!("deleting {bin}"), &e)),
        _ => Ok(()),
    }
}

/// Returns where the step is now; `None` if it was already gone.
fn move_aside(
    root: &Utf8Path,
    from: &CkptId,
    whole: bool,
    foreign: bool,
    why: &str,
    by: &str,
) -> io::Result<Option<Utf8PathBuf>> {
    inside(from)?;
    let source = root.join(&from.0);
    if fs::symlink_metadata(&source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let note = json!({ "from": from.0, "whole": whole, "foreign": foreign, "why": why, "by": by });
    put_aside(root, &source, from, foreign, &note, by).map(Some)
}

/// Moves a step, wherever below the root it is, to the directory of steps moved aside, and writes a note beside it.
/// Returns where it is now.
pub(super) fn put_aside(
    root: &Utf8Path,
    source: &Utf8Path,
    step: &CkptId,
    foreign: bool,
    note: &serde_json::Value,
    by: &str,
) -> io::Result<Utf8PathBuf> {
    let aside = root.join(OURS).join("aside");
    let aside = if foreign { aside.join("foreign") } else { aside };
    make_dir(&aside)?;
    let (target, place) = free_name(&aside, step.0.as_str(), by)?;
    write_whole(&place, format!("{note:#}\n").as_bytes(), PRIVATE)?;
    if let Err(e) = fs::rename(source, &target) {
        // A note without a step does no harm if it cannot be removed either.
        let _ = remove_file(&place);
        return Err(e);
    }
    sync_dir(&aside)?;
    source.parent().map_or(Ok(()), sync_dir)?;
    Ok(target)
}

/// Moves one entry of a step aside; the step stays where it is.
fn part_aside(root: &Utf8Path, from: &CkptId, entry: &Utf8Path, why: &str, by: &str) -> io::Result<()> {
    inside(from)?;
    let plain = |c: camino::Utf8Component<'_>| matches!(c, camino::Utf8Component::Normal(_));
    if entry.as_str().is_empty() || !entry.components().all(plain) {
        let what = format!("{entry:?} is no entry of a step");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let source = root.join(&from.0).join(entry);
    if fs::symlink_metadata(&source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let aside = root.join(OURS).join("aside");
    make_dir(&aside)?;
    let (target, note) = free_name(&aside, from.0.join(entry).as_str(), by)?;
    let text = json!({ "from": from.0, "entry": entry, "whole": false, "why": why, "by": by });
    write_whole(&note, format!("{text:#}\n").as_bytes(), PRIVATE)?;
    fs::rename(&source, &target)?;
    sync_dir(&aside)?;
    match source.parent() {
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}

/// Gives another user's step a name that no trainer reads. A directory that we may not write to cannot be moved to
/// another directory, but it can be renamed in place. Returns false if even that fails.
fn hide(root: &Utf8Path, from: &CkptId, by: &str) -> io::Result<bool> {
    let (hidden, _) = free_name(root, &format!(".aside.{from}"), by)?;
    let renamed = fs::rename(root.join(&from.0), hidden).map(|()| true);
    if_ours(true, renamed)
}

/// Another user's step that may not be moved stays where it is: no run resumes from it.
pub(super) fn if_ours<T: Default>(others: bool, moved: io::Result<T>) -> io::Result<T> {
    match moved {
        Err(e) if others && e.kind() == io::ErrorKind::PermissionDenied => Ok(T::default()),
        moved => moved,
    }
}

fn tell_left(left: &[&CkptId]) {
    let Some((first, more)) = left.split_first() else {
        return;
    };
    match more.len() {
        0 => tracing::warn!("{first} belongs to another user and cannot be moved aside: it stays where it is"),
        n => tracing::warn!(
            "{first} and {n} more belong to other users and cannot be moved aside: they stay where they are"
        ),
    }
}

/// Only a plain name directly under the root is ever moved or deleted.
pub(super) fn inside(id: &CkptId) -> io::Result<()> {
    let name = id.0.as_str();
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no step directly under the root"),
        ));
    }
    Ok(())
}

fn prunable(id: &CkptId) -> io::Result<CkptId> {
    let step = match id.0.as_str().split_once('/') {
        Some((step, role)) => {
            inside(&CkptId(role.into()))?;
            CkptId(step.into())
        }
        None => id.clone(),
    };
    inside(&step)?;
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;
    use supervise_core::id::Step;

    fn aside(name: &str) -> DiskEdit {
        DiskEdit::MoveAside {
            from: CkptId(name.into()),
            whole: false,
            foreign: false,
            others: false,
            why: "torn".into(),
        }
    }

    #[test]
    fn edits_done_twice_are_done_once_and_nothing_is_overwritten() {
        let (_keep, root) = temp_dir();
        for round in 1..=3 {
            fs::create_dir(root.join("global_step_6")).unwrap();
            fs::write(root.join("global_step_6/x"), format!("{round}")).unwrap();
            let edits = [aside("global_step_6"), DiskEdit::WriteTracker { step: Step(4) }];
            perform(&root, &edits, "attempt-2", None).unwrap();
            perform(&root, &edits, "attempt-2", None).unwrap();
        }
        let kept = root.join(".supervise/aside");
        assert_eq!(fs::read_to_string(kept.join("global_step_6.attempt-2/x")).unwrap(), "1");
        assert_eq!(
            fs::read_to_string(kept.join("global_step_6.attempt-2.3/x")).unwrap(),
            "3"
        );
        assert_eq!(fs::read_to_string(root.join(TRACKER)).unwrap(), "4");
    }

    #[test]
    fn a_part_of_a_step_goes_aside_and_the_step_stays() {
        let (_keep, root) = temp_dir();
        fs::create_dir(root.join("global_step_6")).unwrap();
        fs::write(root.join("global_step_6/data.pt"), "torn").unwrap();
        fs::write(root.join("global_step_6/model.pt"), "whole").unwrap();
        let edit = |entry: &str| DiskEdit::PartAside {
            from: CkptId("global_step_6".into()),
            entry: entry.into(),
            why: "torn".into(),
        };
        for _ in 0..2 {
            perform(&root, &[edit("data.pt")], "attempt-2", None).unwrap();
        }
        assert!(!root.join("global_step_6/data.pt").exists());
        assert!(root.join("global_step_6/model.pt").exists());
        let kept = root.join(".supervise/aside/global_step_6_data.pt.attempt-2");
        assert_eq!(fs::read_to_string(kept).unwrap(), "torn");
        for bad in ["", "..", "../x", "/etc", "."] {
            assert!(perform(&root, &[edit(bad)], "t", None).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_outside_the_root_is_ever_touched() {
        let (_keep, root) = temp_dir();
        for bad in ["../x", "a/b", "", ".supervise", "/etc"] {
            assert!(perform(&root, &[aside(bad)], "t", None).is_err(), "{bad}");
        }
        for bad in [
            "../x",
            "a/b/c",
            "a/..",
            "a/",
            "/etc",
            "",
            ".supervise",
            ".supervise/journal",
        ] {
            assert!(prune(&root, &[CkptId(bad.into())], None).is_err(), "{bad}");
        }
    }

    #[test]
    fn pruning_deletes_the_step_and_nothing_else() {
        let (_keep, root) = temp_dir();
        fs::create_dir_all(root.join("global_step_2/actor")).unwrap();
        fs::create_dir_all(root.join("global_step_4/actor")).unwrap();
        prune(&root, &[CkptId("global_step_2".into())], None).unwrap();
        prune(&root, &[CkptId("global_step_2".into())], None).unwrap();
        assert!(!root.join("global_step_2").exists());
        assert!(root.join("global_step_4/actor").exists());
        fs::create_dir_all(root.join("global_step_4/critic")).unwrap();
        prune(&root, &[CkptId("global_step_4/actor".into())], None).unwrap();
        assert!(!root.join("global_step_4/actor").exists());
        assert!(root.join("global_step_4/critic").exists());
    }
}
