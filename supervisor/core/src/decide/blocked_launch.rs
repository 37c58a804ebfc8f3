//! Launches that something outside the run blocks: a cluster that is not free, or a limit of the machine.

use super::Deciding;
use super::start::LIMIT;
use crate::event::{ActError, ActErrorKind, TimerKey};
use crate::id::Ms;
use crate::journal::reason::Reason;
use crate::journal::record::{Decision, RunOutcome, WaitCondition};

/// How often a blocked cluster is queried again, with growing intervals up to `ASK_SELDOM`.
const ASK_AGAIN: Ms = Ms::secs(10);
const ASK_SELDOM: Ms = Ms::secs(120);
/// A GPU that is still in use after the earlier checks ([`crate::event::gpu::looks_again`]).
const GPU_AGAIN: Ms = Ms::secs(2);
/// How long a limit may prevent a launch, and how often it is retried.
const LIMIT_PATIENCE: Ms = Ms::secs(20);
const LIMIT_PAUSE: Ms = Ms::secs(4);

impl Deciding<'_> {
    /// Waits without charging a retry, because only the cluster knows when it has released the attempt, and its owner
    /// when it answers again. Idle machines cost money, so the wait is no longer than for a disk.
    pub(super) fn on_held(&mut self, error: &ActError, reason: Reason) {
        let held = self.s.context.held_since.map_or(Ms(0), |at| self.e.at.since(at));
        if held >= super::CHOOSING_LIMIT {
            let why = format!("after {} minutes: {}", held.0 / 60_000, error.what);
            let reason = Reason::new("deadline", why.clone());
            return self.finish(RunOutcome::Environment { why }, vec![reason]);
        }
        let (what, first) = match error.kind {
            ActErrorKind::GpuBusy => (WaitCondition::GpusFree, GPU_AGAIN),
            _ => (WaitCondition::ClusterFree, ASK_AGAIN),
        };
        let pause = Ms((held.0 / 4).clamp(first.0, ASK_SELDOM.0));
        let until = self.e.at.after(pause);
        self.decided(Decision::Wait { what, until }, vec![reason]);
        self.wake(TimerKey::Backoff, pause);
    }

    /// Waits without charging a retry. Processes that exit may free the resource soon; a limit that is too low never
    /// will.
    pub(super) fn on_limit(&mut self, error: &ActError, reason: Reason) {
        let refused = self.s.context.held_since.map_or(Ms(0), |at| self.e.at.since(at));
        if refused >= LIMIT_PATIENCE {
            let why = format!("{}, for {} seconds", error.what, refused.0 / 1000);
            let reason = Reason::new(LIMIT, why.clone());
            return self.finish(RunOutcome::Environment { why }, vec![reason]);
        }
        let until = self.e.at.after(LIMIT_PAUSE);
        let what = WaitCondition::Backoff;
        self.decided(Decision::Wait { what, until }, vec![reason]);
        self.wake(TimerKey::Backoff, LIMIT_PAUSE);
    }
}
