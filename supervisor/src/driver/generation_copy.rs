//! Copies the only checkpoint while the workers run.

use super::Driver;
use super::io_workers::IoPurpose;
use supervise_core::event::{ActError, ActOutput, EventKind};
use supervise_core::id::ActId;
use supervise_core::journal::record::{Act, ActKind};
use supervise_host::io_worker::IoQuestion;

impl Driver {
    pub(super) fn keep(&mut self, act: Act) {
        let ActKind::Keep { ckpt, step, pins, rate } = act.kind else {
            return;
        };
        let now = self.now();
        let ask = IoQuestion::Keep {
            act: act.id,
            ckpt,
            step,
            pins,
            rate,
        };
        self.work.ask(IoPurpose::Keep(act.id), ask, now);
    }

    /// A copy finished or could not be started.
    pub(super) fn on_kept(&mut self, act: ActId, result: Result<(), ActError>) {
        if let Err(e) = &result {
            self.printer.note(&e.what);
        }
        let result = result.map(|()| ActOutput::Done);
        self.feed(EventKind::ActDone { act, result });
    }

    /// The copy that was in progress when the I/O worker died.
    pub(super) fn keeping(&self) -> Option<ActId> {
        let keeps = |a: &&Act| matches!(a.kind, ActKind::Keep { .. });
        self.state.pending.values().find(keeps).map(|a| a.id)
    }
}
