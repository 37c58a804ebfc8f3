//! Replaces dead I/O workers and reports silent ones.

use super::{BUMPS, IN_A_ROW, IoPurpose, PATIENCE};
use crate::driver::Driver;
use supervise_core::event::{ActError, ActErrorKind, EventKind, ScanReport};
use supervise_core::id::{Ms, Tick};
use supervise_host::io_worker::IoQuestion;
use supervise_host::process::limit_hint;

impl Driver {
    /// Replaces the work I/O worker, which was killed or ran out of memory; its question failed.
    fn replace_work_io_worker(&mut self) {
        let hopeless = self.work.is_hopeless();
        let mut old = match self.work.replace() {
            Ok(old) => old,
            Err(e) => return self.without_work_io_worker(&e),
        };
        self.introduce();
        self.scans.running = None;
        let why = hopeless.clone().unwrap_or_else(|| old.end_words());
        let error = || ActError {
            what: why.clone(),
            retryable: true,
            kind: ActErrorKind::Other,
        };
        let keeping = self.keeping();
        for tag in old.unanswered() {
            match tag {
                // Data that kills each worker in turn will kill the next one too.
                IoPurpose::Scan if hopeless.is_some() => self.feed(EventKind::Checkpoints(ScanReport {
                    unreadable: Some(format!("{why}, {IN_A_ROW} times in a row")),
                    ..ScanReport::default()
                })),
                IoPurpose::Scan => self.scan(self.spec.policy.proof.depth, 2),
                IoPurpose::Keep(_) => {}
                IoPurpose::Act(act) | IoPurpose::Pins(act, _) => self.feed(EventKind::ActDone {
                    act,
                    result: Err(error()),
                }),
                IoPurpose::Seen(_) => self.look_anew(),
                // The core asks again.
                IoPurpose::Finite(attempt, ckpt) => self.feed(EventKind::Finite {
                    attempt,
                    ckpt,
                    odd: None,
                    tensors: None,
                }),
                IoPurpose::Save(_)
                | IoPurpose::Usage(..)
                | IoPurpose::Space
                | IoPurpose::Append(_)
                | IoPurpose::Bump
                | IoPurpose::Nothing
                | IoPurpose::Setup => {}
            }
        }
        if let Some(act) = keeping {
            self.on_kept(act, Err(error()));
        }
    }

    /// Reports that no I/O worker can be started: a message while workers run, and a fact if a scan is waited for.
    fn without_work_io_worker(&mut self, e: &std::io::Error) {
        let text = format!("the I/O worker died, and another one cannot be started now: {e}");
        let hint = limit_hint(&text).map(|hint| format!(": {hint}"));
        self.printer.note(&format!("{text}{}", hint.unwrap_or_default()));
        if self.state.live().is_none() && self.scans.running.take().is_some() {
            self.feed(EventKind::Checkpoints(ScanReport {
                unreadable: Some(text),
                ..ScanReport::default()
            }));
        }
    }

    /// Reports silence once as a fact, and replaces a dead worker.
    pub(in crate::driver) fn check_io_workers(&mut self, now: Tick) {
        self.work.give_up_if_stopped();
        self.store.give_up_if_stopped();
        if self.work.replaced_in() == Some(Ms(0)) {
            self.replace_work_io_worker();
        }
        if self.store.replaced_in() == Some(Ms(0)) {
            self.replace_store_io_worker();
        }
        if self.work.deadline().is_some_and(|at| at <= now) {
            self.work.stalled = true;
            let what = format!(
                "the {} I/O worker has not answered for {} s",
                self.work.name,
                PATIENCE.0 / 1000
            );
            self.feed(EventKind::IoStalled { what });
        }
        if self.store.deadline().is_some_and(|at| at <= now) {
            self.store.stalled = true;
            self.journal.stalled = true;
            let why = format!(
                "the {} I/O worker has not answered for {} s",
                self.store.name,
                PATIENCE.0 / 1000
            );
            self.feed(EventKind::JournalStalled { why });
        }
        if self.journal.retry_at.is_some_and(|at| at <= now) {
            self.journal.retry_at = None;
        }
        if self.journal.bump_at <= now && self.store.is_idle() {
            self.journal.bump_at = now.after(Ms(self.journal.bump_every.0.max(BUMPS.0)));
            self.journal.bumped = now;
            self.store.ask(IoPurpose::Bump, IoQuestion::Bump, now);
        }
        self.check_fence(now);
    }
}
