//! The trainer's own pointer to its newest step, in the root.

use super::files::read_plain;
use super::scan::RootProver;
use camino::Utf8Path;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use supervise_core::event::TrackerState;
use supervise_trainers::StepTracker;

const TRACKER_LIMIT: u64 = 256;

impl RootProver {
    /// Reads the pointer. A file of another user is ignored, and reported once.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) fn tracker(&mut self) -> io::Result<TrackerState> {
        let name = self.cache.steps.tracker_file();
        if name.is_empty() {
            return Ok(self.cache.read_tracker(None));
        }
        let path = self.root.join(name);
        let owner = fs::symlink_metadata(&path).map(|m| m.uid()).ok();
        if let Some(uid) = owner.filter(|uid| !self.cache.owners.accepts(*uid)) {
            let remark = format!("{name} belongs to user {uid}: what it says is ignored");
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
            return Ok(self.cache.read_tracker(None));
        }
        match read_plain(&path, TRACKER_LIMIT) {
            Ok(bytes) => Ok(self.cache.read_tracker(Some(&bytes))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(self.cache.read_tracker(None)),
            Err(e) => {
                let tracker = not_a_file(&path).ok_or(e)?;
                self.cache.read_tracker(None);
                Ok(tracker)
            }
        }
    }
}

/// Reads the trainer's pointer in a checkpoint root into a temporary tracker. An unreadable one is ignored.
pub fn read_tracker(root: &Utf8Path, steps: &mut dyn StepTracker) {
    let name = steps.tracker_file();
    let bytes = (!name.is_empty()).then(|| read_plain(&root.join(name), TRACKER_LIMIT).ok());
    steps.read_tracker(bytes.flatten().as_deref());
}

/// The result if the path is not a regular file; waiting would not change it. Links are not followed, because any
/// user who may write to the root could choose the target. A dangling link counts as a missing file.
fn not_a_file(path: &Utf8Path) -> Option<TrackerState> {
    let here = fs::symlink_metadata(path).ok()?;
    match here.is_symlink() {
        true if !path.exists() => Some(TrackerState::Missing),
        true => Some(TrackerState::NotAFile(
            "a symbolic link, which is not followed".to_owned(),
        )),
        false if here.is_file() => None,
        false => Some(TrackerState::NotAFile(
            "a directory, a FIFO, a socket or a device".to_owned(),
        )),
    }
}
