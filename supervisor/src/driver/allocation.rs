//! The scheduler job in which this term runs: its deadline, and its notice of preemption.

use super::{Driver, DriverMessage};
use crate::environment::wall;
use supervise_core::event::{EventKind, OperatorRequest, signal_name};
use supervise_core::id::{Ms, WallMs};
use supervise_host::allocation::SlurmAllocation;

#[derive(Debug, Default)]
pub(super) struct AllocationWatch {
    known: Option<SlurmAllocation>,
    /// A question is in progress; the value is whether a signal caused it.
    asking: Option<bool>,
}

impl AllocationWatch {
    pub(super) fn new(known: Option<SlurmAllocation>) -> Self {
        Self { known, asking: None }
    }

    /// The time between the scheduler's SIGTERM and its SIGKILL.
    pub(super) fn kill_wait(&self) -> Option<Ms> {
        self.known.as_ref().map(|job| job.kill_wait)
    }
}

impl Driver {
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

    /// SIGUSR1: the scheduler knows how much time is left.
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
        // Without a scheduler, the setting may say it.
        let ends = ends.or(self.spec.policy.assist.deadline).map(wall_of);
        self.feed(EventKind::Operator(OperatorRequest::HandBack {
            by: signal_name(libc::SIGUSR1),
            left: ends.map(left),
        }));
    }

    /// Asks when the job ends, off the loop. One question at a time; a notice that arrives meanwhile uses its answer.
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

fn wall_of(seconds: u64) -> WallMs {
    WallMs(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

fn left(ends: WallMs) -> Ms {
    Ms(u64::try_from(ends.0.saturating_sub(wall().0)).unwrap_or_default())
}
