//! Checks of the checkpoints and their disk that the core requests besides its scans.

use super::Driver;
use super::io_workers::IoPurpose;
use supervise_core::checkpoint::CkptId;
use supervise_core::decide::danger::save_room;
use supervise_host::io_worker::{IoQuestion, PathQuery};

impl Driver {
    /// Asks whether the weights of a step are finite.
    pub(super) fn ask_for_finite(&mut self, ckpt: CkptId) {
        // One at a time: each record asks again while a check is in progress.
        let is_asked = self.work.asks(|tag| matches!(tag, IoPurpose::Finite(..)));
        if let Some(attempt) = self.state.attempt.as_ref().map(|a| a.no).filter(|_| !is_asked) {
            let now = self.now();
            let tag = IoPurpose::Finite(attempt, ckpt.clone());
            let thorough = self.state.live().is_none();
            self.work.ask(tag, IoQuestion::Finite { ckpt, thorough }, now);
        }
    }

    /// Asks for the free space on the disk. Nothing is written while workers run.
    pub(super) fn ask_for_space(&mut self) {
        let run_dir = self.spec.run_dir.clone();
        let look = PathQuery::Disk {
            root: self.spec.root.clone().unwrap_or_else(|| run_dir.clone()),
            run_dir,
            bytes: match self.state.live() {
                Some(_) => 0,
                None => save_room(&self.state).bytes,
            },
        };
        let now = self.now();
        self.work.ask(IoPurpose::Space, IoQuestion::Look(look), now);
    }
}
