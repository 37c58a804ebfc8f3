//! Launches that something outside of the run holds up: a cluster that is not free, a limit of the machine.

use super::Deciding;
use super::start::LIMIT;
use crate::event::{ActError, ActErrorKind, TimerKey};
use crate::id::Ms;
use crate::journal::reason::Reason;
use crate::journal::record::{Decision, RunOutcome, WaitCondition};

/// How often a cluster that holds something of the attempt before is asked again; more seldom the longer it does.
const ASK_AGAIN: Ms = Ms::secs(10);
const ASK_SELDOM: Ms = Ms::secs(120);
/// A GPU that the looks before ([`crate::event::gpu::looks_again`]) found in use.
const GPU_AGAIN: Ms = Ms::secs(2);
/// How long a limit may keep a launch from being made, and how often that is tried.
const LIMIT_PATIENCE: Ms = Ms::secs(20);
const LIMIT_PAUSE: Ms = Ms::secs(4);

impl Deciding<'_> {
    /// Nobody's failure, so nothing is charged: the cluster alone knows when it has let go, its owner when it answers again. Idle
    /// machines cost, so it is not waited for longer than for a disk.
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

    /// Nobody's failure either. What dies may give it back in a moment; a limit that is simply too low never will.
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
