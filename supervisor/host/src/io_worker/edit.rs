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
use supervise_core::spec::RunSpec;
use supervise_trainers::StepTracker;

pub(super) const OURS: &str = ".supervise";

/// The directory for steps moved aside and for the lease of a root that holds steps.
pub(super) fn store_dir(spec: &RunSpec, root: &Utf8Path) -> Utf8PathBuf {
    spec.outside_store().map_or_else(|| root.join(OURS), Utf8Path::to_owned)
}

/// A checkpoint root that holds steps, and where they are moved aside.
#[derive(Clone, Copy)]
pub(super) struct StepRoot<'a> {
    pub(super) root: &'a Utf8Path,
    pub(super) store: &'a Utf8Path,
    /// Knows the trainer's pointer and the names it takes for steps.
    pub(super) steps: &'a dyn StepTracker,
}

/// Performs the edits in order and stops at the first failure. A step's proof record moves with it.
pub(super) fn perform(
    place: StepRoot<'_>,
    edits: &[DiskEdit],
    by: &str,
    records: Option<&Utf8Path>,
) -> Result<(), ActError> {
    let StepRoot { root, steps, .. } = place;
    let tracker = steps.tracker_file();
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
                match move_aside(place, from, *whole, *foreign, why, by) {
                    Err(e) if *others && e.kind() == io::ErrorKind::PermissionDenied => {
                        hide(place, from, by).map(|hidden| {
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
                part_aside(place, from, entry, why, by),
            ),
            DiskEdit::WriteTracker { step } => (
                format!("writing {tracker}"),
                write_whole(&root.join(tracker), steps.tracker_text(*step).as_bytes(), 0o666),
            ),
            DiskEdit::RemoveTracker => (format!("removing {tracker}"), remove_file(&root.join(tracker))),
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
pub(super) fn prune(
    root: &Utf8Path,
    store: &Utf8Path,
    steps: &[CkptId],
    records: Option<&Utf8Path>,
) -> Result<(), ActError> {
    let bin = store.join("pruned");
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
    place: StepRoot<'_>,
    from: &CkptId,
    whole: bool,
    foreign: bool,
    why: &str,
    by: &str,
) -> io::Result<Option<Utf8PathBuf>> {
    inside(from)?;
    let source = place.root.join(&from.0);
    if fs::symlink_metadata(&source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let note = json!({ "from": from.0, "whole": whole, "foreign": foreign, "why": why, "by": by });
    put_aside(place.store, &source, from, foreign, &note, by).map(Some)
}

/// Moves a step, wherever below the root it is, to the directory of steps moved aside, and writes a note beside it.
/// Returns where it is now.
pub(super) fn put_aside(
    store: &Utf8Path,
    source: &Utf8Path,
    step: &CkptId,
    foreign: bool,
    note: &serde_json::Value,
    by: &str,
) -> io::Result<Utf8PathBuf> {
    let aside = store.join("aside");
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
fn part_aside(place: StepRoot<'_>, from: &CkptId, entry: &Utf8Path, why: &str, by: &str) -> io::Result<()> {
    inside(from)?;
    let plain = |c: camino::Utf8Component<'_>| matches!(c, camino::Utf8Component::Normal(_));
    if entry.as_str().is_empty() || !entry.components().all(plain) {
        let what = format!("{entry:?} is no entry of a step");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let source = place.root.join(&from.0).join(entry);
    if fs::symlink_metadata(&source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let aside = place.store.join("aside");
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
/// another directory, but it can be renamed in place. Returns false if even that fails, or if the trainer would take the new
/// name for a step too.
fn hide(place: StepRoot<'_>, from: &CkptId, by: &str) -> io::Result<bool> {
    let (hidden, _) = free_name(place.root, &format!(".aside.{from}"), by)?;
    if hidden.file_name().is_some_and(|name| place.steps.takes_name(name)) {
        return Ok(false);
    }
    let renamed = fs::rename(place.root.join(&from.0), hidden).map(|()| true);
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
    use supervise_core::spec::TrainerKind;
    use supervise_trainers::ExpectedLayout;

    fn edit(root: &Utf8Path, edits: &[DiskEdit], by: &str, records: Option<&Utf8Path>) -> Result<(), ActError> {
        let trainer = supervise_trainers::adapter(TrainerKind::new("verl_ppo"));
        let place = StepRoot {
            root,
            store: &root.join(OURS),
            steps: &*trainer.tracker(&ExpectedLayout::default()),
        };
        perform(place, edits, by, records)
    }

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
            edit(&root, &edits, "attempt-2", None).unwrap();
            edit(&root, &edits, "attempt-2", None).unwrap();
        }
        let kept = root.join(".supervise/aside");
        assert_eq!(fs::read_to_string(kept.join("global_step_6.attempt-2/x")).unwrap(), "1");
        assert_eq!(
            fs::read_to_string(kept.join("global_step_6.attempt-2.3/x")).unwrap(),
            "3"
        );
        assert_eq!(
            fs::read_to_string(root.join("latest_checkpointed_iteration.txt")).unwrap(),
            "4"
        );
    }

    #[test]
    fn a_part_of_a_step_goes_aside_and_the_step_stays() {
        let (_keep, root) = temp_dir();
        fs::create_dir(root.join("global_step_6")).unwrap();
        fs::write(root.join("global_step_6/data.pt"), "torn").unwrap();
        fs::write(root.join("global_step_6/model.pt"), "whole").unwrap();
        let part = |entry: &str| DiskEdit::PartAside {
            from: CkptId("global_step_6".into()),
            entry: entry.into(),
            why: "torn".into(),
        };
        for _ in 0..2 {
            edit(&root, &[part("data.pt")], "attempt-2", None).unwrap();
        }
        assert!(!root.join("global_step_6/data.pt").exists());
        assert!(root.join("global_step_6/model.pt").exists());
        let kept = root.join(".supervise/aside/global_step_6_data.pt.attempt-2");
        assert_eq!(fs::read_to_string(kept).unwrap(), "torn");
        for bad in ["", "..", "../x", "/etc", "."] {
            assert!(edit(&root, &[part(bad)], "t", None).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_outside_the_root_is_ever_touched() {
        let (_keep, root) = temp_dir();
        for bad in ["../x", "a/b", "", ".supervise", "/etc"] {
            assert!(edit(&root, &[aside(bad)], "t", None).is_err(), "{bad}");
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
            assert!(
                prune(&root, &root.join(OURS), &[CkptId(bad.into())], None).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn pruning_deletes_the_step_and_nothing_else() {
        let (_keep, root) = temp_dir();
        fs::create_dir_all(root.join("global_step_2/actor")).unwrap();
        fs::create_dir_all(root.join("global_step_4/actor")).unwrap();
        prune(&root, &root.join(OURS), &[CkptId("global_step_2".into())], None).unwrap();
        prune(&root, &root.join(OURS), &[CkptId("global_step_2".into())], None).unwrap();
        assert!(!root.join("global_step_2").exists());
        assert!(root.join("global_step_4/actor").exists());
        fs::create_dir_all(root.join("global_step_4/critic")).unwrap();
        prune(&root, &root.join(OURS), &[CkptId("global_step_4/actor".into())], None).unwrap();
        assert!(!root.join("global_step_4/actor").exists());
        assert!(root.join("global_step_4/critic").exists());
    }
}
