//! Keeping a copy of the only checkpoint, while the workers run.

use super::Driver;
use super::lanes::Tag;
use supervise_core::checkpoint::{CkptId, PinsHash};
use supervise_core::id::ActId;
use supervise_host::lane::Question;

impl Driver {
    pub(super) fn keep(&mut self, act: ActId, ckpt: CkptId, pins: PinsHash, rate: u64) {
        let now = self.now();
        self.work.ask(Tag::Act(act), Question::Keep { ckpt, pins, rate }, now);
    }
}
