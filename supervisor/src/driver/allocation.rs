//! The scheduler's job that this term runs in: what is asked of the scheduler, and its notice that the end is near.

use super::{Driver, DriverMessage};
use crate::environment::wall;
use supervise_core::event::{EventKind, OperatorRequest, signal_name};
use supervise_core::id::{Ms, WallMs};
use supervise_host::allocation::SlurmAllocation;

/// The job, where there is one.
#[derive(Debug, Default)]
pub(super) struct AllocationWatch {
    known: Option<SlurmAllocation>,
    /// A question is on its way; a signal asked it.
    asking: Option<bool>,
}

impl AllocationWatch {
    pub(super) fn new(known: Option<SlurmAllocation>) -> Self {
        Self { known, asking: None }
    }

    /// From the scheduler's SIGTERM to its SIGKILL.
    pub(super) fn kill_wait(&self) -> Option<Ms> {
        self.known.as_ref().map(|job| job.kill_wait)
    }
}

impl Driver {
    /// Tells the core of the job.
    pub(super) fn introduce_allocation(&mut self) {
        let Some(job) = &self.allocation.known else { return };
        let ends = job.ends.map(wall_of);
        let event = EventKind::Allocation {
            job: job.job.clone(),
            restarts: job.restarts,
            ends,
            left: ends.map(left),
        };
        self.feed(event);
    }

    /// SIGUSR1: how much time is left is for the scheduler to say.
    pub(super) fn on_notice(&mut self) {
        if self.state.is_to_stop() {
            return;
        }
        match self.allocation.known {
            Some(_) => self.ask_scheduler(true),
            None => self.notice(None),
        }
    }

    fn notice(&mut self, ends: Option<u64>) {
        // Without a scheduler, a person may have said it.
        let ends = ends.or(self.spec.policy.assist.deadline).map(wall_of);
        self.feed(EventKind::Operator(OperatorRequest::HandBack {
            by: signal_name(libc::SIGUSR1),
            left: ends.map(left),
        }));
    }

    /// Asks when the job ends, beside the loop. One question at a time; a notice that comes meanwhile gets its answer.
    pub(super) fn ask_scheduler(&mut self, noticed: bool) {
        let Some(job) = &self.allocation.known else { return };
        if let Some(before) = &mut self.allocation.asking {
            *before |= noticed;
            return;
        }
        self.allocation.asking = Some(noticed);
        let (mut job, tx) = (job.clone(), self.internal.clone());
        tokio::task::spawn_blocking(move || {
            job.look();
            let _ = tx.send(DriverMessage::Allocation(Box::new(job)));
        });
    }

    pub(super) fn on_scheduler(&mut self, said: SlurmAllocation) {
        let noticed = self.allocation.asking.take().unwrap_or_default();
        let ends = said.ends;
        self.allocation.known = Some(said);
        self.introduce_allocation();
        if noticed && !self.state.is_to_stop() {
            self.notice(ends);
        }
    }
}

/// Of seconds since 1970.
fn wall_of(seconds: u64) -> WallMs {
    WallMs(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

fn left(ends: WallMs) -> Ms {
    Ms(u64::try_from(ends.0.saturating_sub(wall().0)).unwrap_or_default())
}
