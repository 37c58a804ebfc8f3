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
    /// The scheduler was asked, because of this signal if there was one.
    asking: Option<Option<i32>>,
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

    /// SIGUSR1 or SIGUSR2: the scheduler knows how much time is left.
    pub(super) fn on_notice(&mut self, signal: i32) {
        if self.state.is_to_stop() {
            return;
        }
        match self.allocation.known {
            Some(_) => self.ask_scheduler(Some(signal)),
            None => self.notice(signal, None),
        }
    }

    fn notice(&mut self, signal: i32, ends: Option<u64>) {
        // Without a scheduler, the setting may say it.
        let ends = ends.or(self.spec.policy.assist.deadline).map(wall_of);
        self.feed(EventKind::Operator(OperatorRequest::HandBack {
            by: signal_name(signal),
            left: ends.map(left),
        }));
    }

    /// Asks when the job ends, off the loop. One question at a time; a notice that arrives meanwhile uses its answer.
    pub(super) fn ask_scheduler(&mut self, notice: Option<i32>) {
        let Some(job) = &self.allocation.known else { return };
        if let Some(before) = &mut self.allocation.asking {
            *before = notice.or(*before);
            return;
        }
        self.allocation.asking = Some(notice);
        let (mut job, tx) = (job.clone(), self.internal.clone());
        tokio::task::spawn_blocking(move || {
            job.look();
            let _ = tx.send(DriverMessage::Allocation(Box::new(job)));
        });
    }

    pub(super) fn on_scheduler(&mut self, said: SlurmAllocation) {
        let notice = self.allocation.asking.take().flatten();
        let ends = said.ends;
        self.allocation.known = Some(said);
        self.introduce_allocation();
        if let Some(signal) = notice.filter(|_| !self.state.is_to_stop()) {
            self.notice(signal, ends);
        }
    }
}

fn wall_of(seconds: u64) -> WallMs {
    WallMs(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

fn left(ends: WallMs) -> Ms {
    Ms(u64::try_from(ends.0.saturating_sub(wall().0)).unwrap_or_default())
}
