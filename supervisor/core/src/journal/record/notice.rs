//! Notices about an attempt, which do not end it.

use serde::{Deserialize, Serialize};

/// The kinds of notices. Each is given once per attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The first training record is the one after the resume point.
    ResumeConfirmed,
    /// The first training record is before the resume point: trained steps are repeated, from something else.
    UnconfirmedResume,
    /// The first training record is beyond the one expected after the resume point.
    ResumeAhead,
    /// The training is over, but its processes keep running.
    DoneButStays,
    /// Memory will run out soon.
    Creep,
    /// Space in `/dev/shm` will run out soon.
    CreepShm,
    /// Space for checkpoints will run out soon.
    CreepDisk,
    /// Open files will run out soon.
    CreepFiles,
    /// Steps take much longer than at first.
    SlowerSteps,
    /// Saves take much longer than at first.
    SlowerSaves,
    /// A loss or a gradient is non-finite.
    NotFinite,
    /// The loss was non-finite for several records in a row: the newest steps are checked.
    NotFiniteInARow,
    /// A saved step has non-finite weights.
    OddWeights,
    /// A saved step belongs to another user and will not be resumed from.
    AnotherOwner,
    /// A training loop saved something that is no checkpoint of the run.
    NotSaved,
    /// A step is in a format that is not read: the loop reported it, and the run will not resume from it.
    ReportedOnly,
    /// The entropy of the policy is a small part of its initial value.
    EntropyCollapse,
    /// The reward stays at the lowest value so far.
    RewardCollapse,
    /// Steps that were trained twice printed the same metrics.
    ResumeEqual,
    /// They printed different metrics, which shows nothing.
    ResumeWithin,
    /// They printed different metrics, far beyond the run's own scatter.
    ResumeJump,
}

impl NoticeKind {
    /// Its name in journals and in `--json`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::ResumeConfirmed => "resume_confirmed",
            Self::Creep => "creep",
            Self::CreepShm => "creep_shm",
            Self::CreepDisk => "creep_disk",
            Self::CreepFiles => "creep_files",
            Self::SlowerSteps => "slower_steps",
            Self::SlowerSaves => "slower_saves",
            Self::UnconfirmedResume => "unconfirmed_resume",
            Self::ResumeAhead => "resume_ahead",
            Self::DoneButStays => "done_but_stays",
            Self::NotFinite => "not_finite",
            Self::NotFiniteInARow => "not_finite_in_a_row",
            Self::OddWeights => "odd_weights",
            Self::AnotherOwner => "another_owner",
            Self::NotSaved => "not_saved",
            Self::ReportedOnly => "reported_only",
            Self::EntropyCollapse => "entropy_collapse",
            Self::RewardCollapse => "reward_collapse",
            Self::ResumeEqual => "resume_equal",
            Self::ResumeWithin => "resume_within",
            Self::ResumeJump => "resume_jump",
        }
    }

    /// Returns true if something is wrong, even if nothing is done about it.
    #[must_use]
    pub fn is_warning(self) -> bool {
        let odd = matches!(self, Self::NotFinite | Self::NotFiniteInARow | Self::OddWeights);
        let creeps = matches!(self, Self::Creep | Self::CreepShm | Self::CreepDisk | Self::CreepFiles);
        let collapse = matches!(self, Self::EntropyCollapse | Self::RewardCollapse);
        odd || creeps
            || collapse
            || matches!(
                self,
                Self::UnconfirmedResume
                    | Self::ResumeAhead
                    | Self::ResumeJump
                    | Self::AnotherOwner
                    | Self::NotSaved
                    | Self::ReportedOnly
            )
    }

    /// Returns true if it is the result of comparing steps that were trained twice.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::ResumeEqual | Self::ResumeWithin | Self::ResumeJump)
    }
}
