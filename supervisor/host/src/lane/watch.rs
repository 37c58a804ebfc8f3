//! Says when something changes under a checkpoint root. A hint only: what changed, a scan finds out; where the
//! file system tells nothing (NFS, Lustre, FUSE), the driver's regular scans do.

use camino::Utf8Path;
use notify::{RecursiveMode, Watcher};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Changes are gathered for this long before they are told.
const GATHER: Duration = Duration::from_millis(20);

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    _watcher: notify::RecommendedWatcher,
}

/// Starts to watch the root itself (not what is below it: the trainer writes its pointer there last).
///
/// # Errors
/// The system's, where no watch is to be had.
pub(super) fn watch(root: &Utf8Path, touched: impl Fn() + Send + 'static) -> notify::Result<Watch> {
    let (tx, rx): (Sender<()>, Receiver<()>) = channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let worth = match event {
            Ok(e) => {
                !e.kind.is_access() || matches!(e.kind, notify::EventKind::Access(notify::event::AccessKind::Close(_)))
            }
            Err(_) => true,
        };
        if worth {
            // The receiver lives as long as this thread's watcher; its end ends the watch.
            let _ = tx.send(());
        }
    })?;
    watcher.watch(root.as_std_path(), RecursiveMode::NonRecursive)?;
    std::thread::spawn(move || {
        while rx.recv().is_ok() {
            std::thread::sleep(GATHER);
            while rx.try_recv().is_ok() {}
            touched();
        }
    });
    Ok(Watch { _watcher: watcher })
}
