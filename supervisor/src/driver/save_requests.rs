//! Requests for a save: written into the attempt's directory, and answered there by the trainer.

use super::Driver;
use super::io_workers::{IoPurpose, SavePurpose};
use camino::Utf8PathBuf;
use supervise_core::event::{ActError, ActErrorKind, ActOutput, EventKind};
use supervise_core::id::{ActId, AttemptNo};
use supervise_core::journal::record::LaunchOrder;
use supervise_host::io_worker::{IoAnswer, IoQuestion};

impl Driver {
    pub(super) fn write_save_request(&mut self, act: ActId, attempt: AttemptNo, id: u64) {
        let (dir, now) = (self.dir_of(attempt), self.now());
        let request = Some(id);
        let ask = IoQuestion::SaveRequest { dir, request };
        self.store.ask(IoPurpose::Save(SavePurpose::Request(act)), ask, now);
    }

    pub(super) fn look_for_save_answer(&mut self, attempt: AttemptNo, id: u64) {
        let looks = |purpose: &IoPurpose| matches!(purpose, IoPurpose::Save(SavePurpose::Answer(..)));
        if self.store.asks(looks) {
            return;
        }
        let (dir, now) = (self.dir_of(attempt), self.now());
        let ask = IoQuestion::SaveAnswer { dir, request: id };
        self.store
            .ask(IoPurpose::Save(SavePurpose::Answer(attempt, id)), ask, now);
    }

    /// Creates the empty file of requests before a launch. Returns true if the launch waits for it.
    pub(super) fn prepares_save_requests(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let is_there = self.launch.save_requests.replace(order.attempt) == Some(order.attempt);
        if is_there || self.spec.no_save_door().is_some() {
            return false;
        }
        let (dir, now) = (self.dir_of(order.attempt), self.now());
        let ask = IoQuestion::SaveRequest { dir, request: None };
        let purpose = SavePurpose::Prepared(act, Box::new(order.clone()));
        self.store.ask(IoPurpose::Save(purpose), ask, now);
        true
    }

    pub(super) fn on_save_file(&mut self, purpose: SavePurpose, answer: Result<IoAnswer, ActError>) {
        match purpose {
            SavePurpose::Request(act) => {
                let result = answer.map(|_| ActOutput::Done);
                self.feed(EventKind::ActDone { act, result });
            }
            SavePurpose::Prepared(act, order) => {
                if let Err(e) = answer {
                    self.printer.note(&e.what);
                }
                self.launch_from(act, *order);
            }
            SavePurpose::Answer(attempt, id) => match answer {
                Ok(IoAnswer::SaveAnswer(Some(step))) => self.feed(EventKind::SaveAnswered { attempt, id, step }),
                Ok(_) => {}
                Err(e) => tracing::warn!("{}", e.what),
            },
        }
    }

    /// The I/O worker died before it answered.
    pub(super) fn on_save_file_lost(&mut self, purpose: SavePurpose) {
        let error = ActError {
            what: "the I/O worker died before it answered".to_owned(),
            retryable: true,
            kind: ActErrorKind::Other,
        };
        self.on_save_file(purpose, Err(error));
    }

    pub(super) fn dir_of(&self, attempt: AttemptNo) -> Utf8PathBuf {
        self.spec.run_dir.join(format!("attempts/{:04}", attempt.0))
    }
}
