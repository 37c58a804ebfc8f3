//! The categories that the wall time of a run is split into.

use crate::id::Ms;
use crate::journal::record::{RunOutcome, WaitCondition};
use serde::{Deserialize, Serialize};

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    Backoff,
    /// A step that cannot be read now.
    Readable,
    Journal,
    Processes,
    /// A cluster that does not answer or still holds the previous attempt.
    Cluster,
    Space,
    /// The scheduler, which will restart the run.
    Scheduler,
    /// An operator: the run ended with an outcome that needs one, or an operator holds it.
    Person,
}

impl WaitFor {
    /// All of them, in display order.
    pub const ALL: [Self; 8] = [
        Self::Backoff,
        Self::Readable,
        Self::Journal,
        Self::Processes,
        Self::Cluster,
        Self::Space,
        Self::Scheduler,
        Self::Person,
    ];

    /// Its name in `--json` and in metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::Readable => "readable",
            Self::Journal => "journal",
            Self::Processes => "processes",
            Self::Cluster => "cluster",
            Self::Space => "space",
            Self::Scheduler => "scheduler",
            Self::Person => "person",
        }
    }

    pub(super) fn of(what: &WaitCondition) -> Self {
        match what {
            WaitCondition::Backoff => Self::Backoff,
            WaitCondition::Readable => Self::Readable,
            WaitCondition::JournalWritable => Self::Journal,
            WaitCondition::TreeGone | WaitCondition::GpusFree => Self::Processes,
            WaitCondition::ClusterFree => Self::Cluster,
            WaitCondition::Space => Self::Space,
            WaitCondition::Unheld => Self::Person,
        }
    }
}

/// A category of a run's wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeCategory {
    /// Steps that were trained for the first time, and validations between them.
    Productive,
    /// Steps that had been trained before, and interrupted steps.
    Repeated,
    Saving,
    /// Detection: from the first sign of a failure, or the last sign of progress before a stall, to the decision to
    /// stop the attempt.
    Noticing,
    /// From that decision until no process is left.
    Ending,
    /// Scanning the checkpoints and choosing where to start.
    Proving,
    /// From the choice to the first sign of training: disk edits, starting the workers, loading.
    Launching,
    Waiting(WaitFor),
    /// The run was over or stopped by its operators, and was restarted later.
    Stopped,
    /// Not observed: the supervisor was dead, or the machine slept.
    Unknown,
}

impl TimeCategory {
    /// The categories other than waiting, in display order; waiting comes before the last two.
    const PLAIN: [Self; 9] = [
        Self::Productive,
        Self::Repeated,
        Self::Saving,
        Self::Noticing,
        Self::Ending,
        Self::Proving,
        Self::Launching,
        Self::Stopped,
        Self::Unknown,
    ];

    /// All of them, in display order.
    pub fn all() -> impl Iterator<Item = Self> {
        let waits = WaitFor::ALL.into_iter().map(Self::Waiting);
        let (work, rest) = Self::PLAIN.split_at(7);
        work.iter().copied().chain(waits).chain(rest.iter().copied())
    }

    /// Its name in `--json` and in metrics; every kind of waiting is named `waiting`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Productive => "productive",
            Self::Repeated => "repeated",
            Self::Saving => "saving",
            Self::Noticing => "noticing",
            Self::Ending => "ending",
            Self::Proving => "proving",
            Self::Launching => "launching",
            Self::Waiting(_) => "waiting",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if it counts as a cost of the last failure, if there was one.
    pub(super) fn is_cost(self) -> bool {
        !matches!(
            self,
            Self::Productive | Self::Saving | Self::Stopped | Self::Unknown | Self::Waiting(WaitFor::Person)
        )
    }

    /// The category of the time between the end of a run and its restart.
    pub(super) fn after(outcome: Option<&RunOutcome>) -> Self {
        match outcome {
            Some(RunOutcome::Finished { .. } | RunOutcome::ScriptUnfinished { .. } | RunOutcome::Stopped) => {
                Self::Stopped
            }
            Some(RunOutcome::OutOfTime) => Self::Waiting(WaitFor::Scheduler),
            Some(RunOutcome::LeaseHeld { .. }) | None => Self::Unknown,
            Some(_) => Self::Waiting(WaitFor::Person),
        }
    }
}

/// Wall time by category. The sum is the total, with nothing left over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TimeBreakdown {
    by: Vec<(TimeCategory, Ms)>,
}

impl TimeBreakdown {
    /// Time of one category.
    #[must_use]
    pub fn of(&self, part: TimeCategory) -> Ms {
        let found = self.by.iter().find(|(p, _)| *p == part);
        found.map(|(_, ms)| *ms).unwrap_or_default()
    }

    /// The time of all kinds of waiting.
    #[must_use]
    pub fn waiting(&self) -> Ms {
        Ms(WaitFor::ALL
            .into_iter()
            .map(|w| self.of(TimeCategory::Waiting(w)).0)
            .sum())
    }

    /// The wall time since the first attempt.
    #[must_use]
    pub fn whole(&self) -> Ms {
        Ms(self.by.iter().map(|(_, ms)| ms.0).sum())
    }

    /// Productive time as a share of the total without operator stops, 0 to 1; `None` if there is no such time.
    #[must_use]
    pub fn goodput(&self) -> Option<f64> {
        let of = self.whole().0 - self.of(TimeCategory::Stopped).0;
        (of > 0).then(|| self.of(TimeCategory::Productive).0 as f64 / of as f64)
    }

    /// The categories with any time, in display order.
    pub fn iter(&self) -> impl Iterator<Item = (TimeCategory, Ms)> {
        TimeCategory::all().map(|p| (p, self.of(p))).filter(|(_, ms)| ms.0 > 0)
    }

    pub(super) fn add(&mut self, part: TimeCategory, ms: u64) {
        if ms == 0 {
            return;
        }
        match self.by.iter_mut().find(|(p, _)| *p == part) {
            Some((_, sum)) => sum.0 = sum.0.saturating_add(ms),
            None => self.by.push((part, Ms(ms))),
        }
    }
}
