//! Time limits on a lack of progress: learned from the run, bounded by its settings. Decisions and screens use the same.

use crate::id::{Ms, Tick};
use crate::observe::durations::DurationKind;
use crate::resume::last_step;
use crate::spec::{RunSpec, policy::HardLimit};
use crate::state::{Attempt, RunState};

/// Hard limit unless it is set: the larger of this and `HARD_FACTOR` times the longest time between steps.
const HARD: Ms = Ms::secs(3600);
const HARD_FACTOR: u64 = 20;
pub(super) const STALL_CHECK: Ms = Ms::secs(10);
/// A sample of the ranks, which names them, arrives within this time.
pub(super) const LOOKS: Ms = Ms::secs(15);
/// Factor on the hard limit for a phase that has never ended in this run.
const NEVER_ENDED: u64 = 4;
/// Without a configured pattern, a command's lines are taken to show steps once this many have risen, ...
const GUESSED: u64 = 3;
/// ... and are trusted like others after this many.
const TRUSTED: u64 = 10;
/// A silence shorter than this is never late: reports of progress are gathered.
const SHORT: Ms = Ms::secs(10);

/// Limits for an attempt in its current phase.
#[derive(Debug, Clone, Copy)]
pub struct StallLimits<'a> {
    s: &'a RunState,
    spec: &'a RunSpec,
    a: &'a Attempt,
}

impl<'a> StallLimits<'a> {
    #[must_use]
    pub fn new(s: &'a RunState, spec: &'a RunSpec, a: &'a Attempt) -> Self {
        Self { s, spec, a }
    }

    /// The clock of the current phase.
    #[must_use]
    pub fn clock(&self) -> DurationKind {
        self.a.training.pace.clock(self.a.training.phase)
    }

    /// When screens call the attempt late: past the time that this phase has been seen to need, or past the soft limit if it
    /// never ended.
    #[must_use]
    pub fn late(&self) -> Ms {
        let clock = self.clock();
        let known = self.s.clocks.of(clock).is_some();
        match known {
            true => self.learned(clock).max(SHORT).min(self.soft()),
            false => self.soft(),
        }
    }

    /// When the attempt is overdue: its processes decide then whether it is stuck.
    #[must_use]
    pub fn soft(&self) -> Ms {
        let p = &self.spec.policy;
        let learned = |clock| self.learned(clock);
        let clock = self.clock();
        match clock {
            DurationKind::Startup => p.stall.startup.max(learned(clock)),
            DurationKind::Save => p.stall.save.max(learned(clock)),
            // If no validation has ended yet, there is no measured time for it.
            DurationKind::Validate if self.s.clocks.of(clock).is_none() => {
                p.stall.startup.max(p.stall.minimum).max(learned(DurationKind::Step))
            }
            DurationKind::FirstStep => p.stall.minimum.max(learned(clock)).max(learned(DurationKind::Step)),
            DurationKind::Step | DurationKind::Validate | DurationKind::SaveProven | DurationKind::Exit => {
                p.stall.minimum.max(learned(clock))
            }
        }
    }

    /// When the attempt is ended whatever its processes do; `None`: never.
    #[must_use]
    pub fn hard(&self) -> Option<Ms> {
        let limit = match self.spec.policy.stall.hard {
            HardLimit::Never => return None,
            HardLimit::After(limit) => limit,
            HardLimit::Auto => HARD.max(Ms(self.s.clocks.longest_gap().0.saturating_mul(HARD_FACTOR))),
        };
        let guessed = self.spec.root.is_none()
            && self.spec.policy.stall.progress.is_none()
            && self.a.training.pace.steps < TRUSTED;
        let more = if guessed || self.s.clocks.of(self.clock()).is_none() {
            NEVER_ENDED
        } else {
            1
        };
        Some(Ms(limit.0.saturating_mul(more)))
    }

    /// By when the attempt is ended in any case: the hard limit, the wait for a sample that names the ranks, and the time to the next
    /// check; `None`: never.
    #[must_use]
    pub fn latest(&self) -> Option<Ms> {
        let more = LOOKS.0.saturating_add(STALL_CHECK.0);
        self.hard().map(|hard| Ms(hard.0.saturating_add(more)))
    }

    /// Returns true if progress is overdue by what the run has shown. Waiting for a file system that does not answer does not count.
    #[must_use]
    pub fn is_overdue(&self, now: Tick) -> bool {
        self.is_past(self.soft(), now)
    }

    /// Returns true if screens should call it late: see [`late`](Self::late).
    #[must_use]
    pub fn is_late(&self, now: Tick) -> bool {
        self.is_past(self.late(), now)
    }

    fn is_past(&self, limit: Ms, now: Tick) -> bool {
        self.s.context.io_stalled.is_none() && self.waited(now) >= limit && !self.is_healing(now)
    }

    /// The usual duration of the current phase; `None`: not measured yet.
    #[must_use]
    pub fn usual(&self) -> Option<Ms> {
        match self.clock() {
            DurationKind::Step | DurationKind::FirstStep => self.s.clocks.step_time(),
            clock => self.s.clocks.of(clock)?.median(),
        }
    }

    /// Returns true during an in-process restart, which may take as long as a start, however often it is announced.
    #[must_use]
    pub fn is_healing(&self, now: Tick) -> bool {
        let limit = || self.spec.policy.stall.startup.max(self.learned(DurationKind::Startup));
        let since = self.a.training.pace.heals;
        since.is_some_and(|since| now.since(since) < limit())
    }

    /// Returns true if no line of the command shows a step, so that nothing is known of its progress.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        let wanted = if self.spec.policy.stall.progress.is_some() {
            1
        } else {
            GUESSED
        };
        self.spec.root.is_none() && self.a.training.pace.steps < wanted
    }

    /// Returns true if the trainer announced its end, or its last planned step is proven: work after it belongs to the user.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_proven = |last| self.a.training.step >= Some(last) && self.s.progress.mark >= Some(last);
        self.a.output.ended || last_step(self.s, self.spec).is_some_and(is_proven)
    }

    /// Time without progress that counts towards [`soft`](Self::soft): waiting for a file system does not.
    #[must_use]
    pub fn waited(&self, now: Tick) -> Ms {
        let t = &self.a.training;
        now.since(t.last_progress.max(t.pace.excused.unwrap_or_default()))
    }

    /// The longest time that a phase should take, by what the run has shown, with the stall factor.
    fn learned(&self, clock: DurationKind) -> Ms {
        let high = self.s.clocks.of(clock).and_then(|d| d.high()).unwrap_or_default();
        Ms((high.0 as f64 * self.spec.policy.stall.factor) as u64)
    }
}
