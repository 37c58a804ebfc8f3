//! Watches a checkpoint root: a file is known to be written once the trainer closes it.
//!
//! The root and the directories of the newest steps are watched, each separately. A change directly under the root (a
//! new step, the trainer's pointer) is reported to the supervisor at once. A change in a step goes to the I/O worker,
//! which reads the file while the save is still running. Events are only hints; the file itself decides. If the
//! kernel lost events, cannot watch another directory, or the file system reports nothing, the I/O worker polls.

use super::fs_kind::FsKind;
use super::scan::RootProver;
use super::tree::WalkMode;
use camino::{Utf8Path, Utf8PathBuf};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{EventKind, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A change is reported after this long without another one ...
const QUIET: Duration = Duration::from_millis(5);
/// ... and after this in any case.
const GATHER: Duration = Duration::from_millis(50);
const STEPS: usize = 2;
/// More changes than this are not kept: the I/O worker checks everything instead.
const BACKLOG: usize = 100_000;
/// Rounds in which the directories of one step are found.
const ROUNDS: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchEvent {
    /// Something directly under the root was created, removed or written.
    Top,
    Changed {
        path: Utf8PathBuf,
        /// Its writer has closed it.
        closed: bool,
    },
    Lost,
}

pub(super) struct Watch {
    root: Utf8PathBuf,
    watcher: notify::RecommendedWatcher,
    followed: BTreeSet<Utf8PathBuf>,
    refused: bool,
    backlog: Backlog,
}

pub(super) type Backlog = Arc<AtomicUsize>;

impl Watch {
    /// Starts to watch the root itself. `None`: the file system reports nothing, or there is no watch left.
    pub(super) fn start(
        root: &Utf8Path,
        tell: impl Fn(WatchEvent) + Send + 'static,
        touched: impl Fn() + Send + 'static,
    ) -> Option<Self> {
        if let Some(name) = FsKind::of(root).untold {
            tracing::info!("changes under {root} are not told ({name}): it is looked at instead");
            return None;
        }
        let (tx, rx) = channel();
        std::thread::Builder::new()
            .name("touched".to_owned())
            .spawn(move || gather(&rx, &touched))
            .ok()?;
        let backlog = Backlog::default();
        let (top, waiting) = (root.to_owned(), Arc::clone(&backlog));
        let hear = move |event: notify::Result<notify::Event>| {
            for told in heard(&top, event) {
                if matches!(told, WatchEvent::Top | WatchEvent::Lost) {
                    // Its receiver lasts as long as this watcher.
                    let _ = tx.send(());
                }
                match waiting.fetch_add(1, Ordering::Relaxed) {
                    ..BACKLOG => tell(told),
                    BACKLOG => tell(WatchEvent::Lost),
                    _ => {}
                }
            }
        };
        match listening(root, hear) {
            Ok(watcher) => Some(Self {
                root: root.to_owned(),
                watcher,
                followed: BTreeSet::new(),
                refused: false,
                backlog,
            }),
            Err(e) => {
                tracing::warn!("changes under {root} cannot be listened to, it is looked at instead: {e}");
                None
            }
        }
    }

    pub(super) fn took(&self) {
        let less = |n: usize| Some(n.saturating_sub(1));
        // The closure always returns a number.
        let _ = self.backlog.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Everything that was lost has been checked: counting starts again.
    pub(super) fn caught_up(&self) {
        self.backlog.store(0, Ordering::Relaxed);
    }

    /// A directory was removed: it is no longer watched, even if another one takes its name.
    pub(super) fn gone(&mut self, path: &Utf8Path) {
        self.followed.retain(|dir| !dir.starts_with(path));
    }

    /// Returns true if some directories of the newest steps are not watched.
    pub(super) fn is_partial(&self) -> bool {
        self.refused
    }

    /// Watches the directories of the newest steps and no others. New ones are listed once more after the watch has
    /// started, so that no change is missed.
    pub(super) fn follow(&mut self, prover: &mut RootProver) {
        let steps: Vec<_> = prover.steps().into_iter().take(STEPS).map(|(id, _)| id).collect();
        let mut wanted = BTreeSet::new();
        for id in steps {
            for _ in 0..ROUNDS {
                let dirs = prover.dirs_of(&id);
                let new: Vec<&Utf8PathBuf> = dirs.iter().filter(|d| !self.followed.contains(*d)).collect();
                let more = new.iter().filter(|dir| self.add(prover, dir)).count();
                wanted.extend(dirs.iter().cloned());
                // The next scan reports what cannot be read now.
                if more == 0 || prover.tree.look(&id.0, WalkMode::Quick, &mut prover.cache).is_err() {
                    break;
                }
            }
        }
        let old: Vec<Utf8PathBuf> = self.followed.difference(&wanted).cloned().collect();
        for dir in old {
            // A removed directory is no longer watched anyway.
            let _ = self.watcher.unwatch(self.root.join(&dir).as_std_path());
            prover.tree.set_watched(&dir, false);
            self.followed.remove(&dir);
        }
    }

    fn add(&mut self, prover: &mut RootProver, dir: &Utf8Path) -> bool {
        let path = self.root.join(dir);
        match self.watcher.watch(path.as_std_path(), RecursiveMode::NonRecursive) {
            Ok(()) => {
                prover.tree.set_watched(dir, true);
                self.followed.insert(dir.to_owned())
            }
            Err(e) if matches!(e.kind, notify::ErrorKind::PathNotFound) => false,
            Err(e) => {
                if !std::mem::replace(&mut self.refused, true) {
                    tracing::warn!("changes in {path} cannot be listened to, it is looked at instead: {e}");
                }
                false
            }
        }
    }
}

/// Starts the watcher. Its library creates a thread and, if there is none, panics later, and once more while that
/// panic unwinds. So this first tests whether a thread can be created, and leaks a watcher without one.
fn listening(
    root: &Utf8Path,
    hear: impl FnMut(notify::Result<notify::Event>) + Send + 'static,
) -> notify::Result<notify::RecommendedWatcher> {
    std::thread::Builder::new()
        .spawn(|| ())
        .map_err(notify::Error::io)?
        .join()
        .map_err(|_| notify::Error::generic("a thread panicked"))?;
    let mut watcher = ManuallyDrop::new(notify::recommended_watcher(hear)?);
    let watched = catch_unwind(AssertUnwindSafe(|| {
        watcher.watch(root.as_std_path(), RecursiveMode::NonRecursive)
    }));
    match watched {
        Ok(Ok(())) => Ok(ManuallyDrop::into_inner(watcher)),
        Ok(Err(e)) => {
            drop(ManuallyDrop::into_inner(watcher));
            Err(e)
        }
        Err(_) => Err(notify::Error::generic("it has no thread")),
    }
}

/// Combines changes that come close together into one report.
fn gather(rx: &Receiver<()>, touched: &dyn Fn()) {
    while rx.recv().is_ok() {
        let first = Instant::now();
        while let Some(left) = GATHER.checked_sub(first.elapsed()) {
            match rx.recv_timeout(QUIET.min(left)) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        touched();
    }
}

/// Meaning of an event. Opening, reading and single writes mean nothing while the file is not closed.
fn heard(root: &Utf8Path, event: notify::Result<notify::Event>) -> Vec<WatchEvent> {
    let Ok(event) = event else {
        return vec![WatchEvent::Lost];
    };
    if event.need_rescan() {
        return vec![WatchEvent::Lost];
    }
    let (closed, dir) = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => (true, false),
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => (true, false),
        // The two names were reported one by one already.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return Vec::new(),
        EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_)) => (false, false),
        EventKind::Create(kind) => (false, kind == CreateKind::Folder),
        EventKind::Remove(_) => (false, false),
        _ => return Vec::new(),
    };
    let below = |path: &std::path::PathBuf| -> Option<WatchEvent> {
        let path = Utf8Path::from_path(path)?.strip_prefix(root).ok()?;
        let mut parts = path.iter();
        let top = parts.next().filter(|name| !name.starts_with('.'))?;
        match parts.next() {
            // A file is reported when it is closed or removed, a directory at once.
            None if top.is_empty() => None,
            None => Some(WatchEvent::Top),
            Some(_) => Some(WatchEvent::Changed {
                path: path.to_owned(),
                closed: closed && !dir,
            }),
        }
    };
    event.paths.iter().filter_map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::Event;
    use notify::event::{DataChange, Flag, RemoveKind};

    fn on(kind: EventKind, path: &str) -> Vec<WatchEvent> {
        heard(Utf8Path::new("/r"), Ok(Event::new(kind).add_path(path.into())))
    }

    #[test]
    fn what_is_closed_moved_in_or_gone_is_told_and_what_is_read_is_not() {
        let close = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let changed = |closed| {
            let path = "global_step_2/actor/x.pt".into();
            vec![WatchEvent::Changed { path, closed }]
        };
        assert_eq!(on(close, "/r/global_step_2/actor/x.pt"), changed(true));
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        assert_eq!(on(moved, "/r/global_step_2/actor/x.pt"), changed(true));
        let gone = EventKind::Remove(RemoveKind::File);
        assert_eq!(on(gone, "/r/global_step_2/actor/x.pt"), changed(false));
        for nothing in [
            EventKind::Access(AccessKind::Open(AccessMode::Any)),
            EventKind::Access(AccessKind::Close(AccessMode::Read)),
            EventKind::Modify(ModifyKind::Data(DataChange::Any)),
        ] {
            assert_eq!(on(nothing, "/r/global_step_2/actor/x.pt"), []);
        }
        assert_eq!(on(close, "/r/latest_checkpointed_iteration.txt"), [WatchEvent::Top]);
        assert_eq!(on(close, "/r/.supervise/run.id"), []);
        assert_eq!(on(close, "/r"), []);
    }

    #[test]
    fn an_overflow_and_an_error_are_a_loss() {
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(heard(Utf8Path::new("/r"), Ok(overflow)), [WatchEvent::Lost]);
        let error = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        assert_eq!(heard(Utf8Path::new("/r"), Err(error)), [WatchEvent::Lost]);
    }
}
