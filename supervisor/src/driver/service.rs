//! Messages to the service manager (sd_notify): ready, current step, watchdog, extended stop timeout.

use super::Driver;
use supervise_core::id::{Ms, Tick};
use supervise_core::journal::record::StartPoint;
use supervise_core::state::{RunMode, RunState};
use supervise_host::service_manager::ServiceManager;

/// Longest interval between two watchdog messages.
const EVERY: Ms = Ms::secs(10);
/// How much longer a stop may take with each message.
const EXTEND_MICROSECONDS: u64 = 60_000_000;

/// What was sent so far.
#[derive(Debug, Default)]
pub(super) struct Service {
    manager: ServiceManager,
    ready: bool,
    stopping: bool,
    status: String,
    /// When the next message is due.
    due: Option<Tick>,
}

impl Service {
    pub(super) fn new(now: Tick) -> Self {
        let manager = ServiceManager::of_this_process();
        Self {
            due: manager.is_there().then_some(now),
            manager,
            ..Self::default()
        }
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    /// Sends what changed, and the watchdog message if it is due. Called from the event loop itself, so that a loop that hangs is
    /// silent.
    fn tell(&mut self, s: &RunState, now: Tick) {
        if !self.manager.is_there() {
            return;
        }
        let mut lines = String::new();
        // A start of a run that is already finished counts as ready.
        let ready = matches!(s.mode, RunMode::Running | RunMode::Draining { .. } | RunMode::Finished);
        if ready && !self.ready {
            lines.push_str("READY=1\n");
        }
        let stopping = s.is_to_stop() || s.mode == RunMode::Finished;
        if stopping && !self.stopping {
            lines.push_str("STOPPING=1\n");
        }
        let status = status(s);
        if status != self.status {
            lines.push_str(&format!("STATUS={status}\n"));
        }
        if self.due.is_some_and(|at| at <= now) {
            lines.push_str("WATCHDOG=1\n");
            if stopping {
                lines.push_str(&format!("EXTEND_TIMEOUT_USEC={EXTEND_MICROSECONDS}\n"));
            }
            let every = self.manager.watchdog().map_or(EVERY, |w| Ms(w.0 / 3).min(EVERY));
            self.due = Some(now.after(every.max(Ms(100))));
        }
        // What could not be sent is sent next time.
        if !lines.is_empty() && self.manager.say(&lines) {
            self.ready |= ready;
            self.stopping |= stopping;
            self.status = status;
        }
    }
}

impl Driver {
    /// Informs the service manager, if there is one.
    pub(super) fn tell_manager(&mut self) {
        let now = self.now();
        self.service.tell(&self.state, now);
    }
}

/// The state of the run in one line.
fn status(s: &RunState) -> String {
    let mut out = s.mode.word().to_owned();
    let Some(a) = &s.attempt else { return out };
    out.push_str(&format!(", attempt {}", a.no));
    if let Some(step) = a.training.step {
        out.push_str(&format!(", step {step}"));
        if let Some(total) = s.progress.total {
            out.push_str(&format!(" of {total}"));
        }
    }
    if let StartPoint::Step { step: from, .. } = &a.order.from {
        out.push_str(&format!(", resumed from step {from}"));
    }
    if let Some(mark) = s.progress.mark {
        out.push_str(&format!(", newest proven step {mark}"));
    }
    out
}
