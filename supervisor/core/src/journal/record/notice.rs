//! Things that are noticed of an attempt and end nothing by themselves.

use serde::{Deserialize, Serialize};

/// Things that are noticed of an attempt, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The first training record is the one after the resume point.
    ResumeConfirmed,
    /// The first training record lies behind it: what was trained already is trained again, from something else.
    UnconfirmedResume,
    /// The first training record lies ahead of it.
    ResumeAhead,
    /// The training is over, and its processes stay.
    DoneButStays,
    /// Memory runs out soon.
    Creep,
    /// Room in `/dev/shm` runs out soon.
    CreepShm,
    /// Room for checkpoints runs out soon.
    CreepDisk,
    /// Open files run out soon.
    CreepFiles,
    /// Steps take much longer than at first.
    SlowerSteps,
    /// Saves take much longer than at first.
    SlowerSaves,
    /// A loss or a gradient is no finite number.
    NotFinite,
    /// The loss was no finite number for several records in a row: the newest steps are looked into.
    NotFiniteInARow,
    /// A saved step holds weights that are not finite.
    OddWeights,
    /// A step that was saved belongs to another user: it will not be resumed from.
    AnotherOwner,
    /// The entropy of the policy is a small part of what it was at first.
    EntropyCollapse,
    /// The reward lies flat at the lowest that it ever was.
    RewardCollapse,
    /// Steps that were trained twice printed the same numbers.
    ResumeEqual,
    /// They printed others, and that shows nothing.
    ResumeWithin,
    /// They printed others, far beyond the run's own scatter.
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
            Self::EntropyCollapse => "entropy_collapse",
            Self::RewardCollapse => "reward_collapse",
            Self::ResumeEqual => "resume_equal",
            Self::ResumeWithin => "resume_within",
            Self::ResumeJump => "resume_jump",
        }
    }

    /// Something is not as it should be, though nothing is done about it.
    #[must_use]
    pub fn is_warning(self) -> bool {
        let odd = matches!(self, Self::NotFinite | Self::NotFiniteInARow | Self::OddWeights);
        let creeps = matches!(self, Self::Creep | Self::CreepShm | Self::CreepDisk | Self::CreepFiles);
        let collapse = matches!(self, Self::EntropyCollapse | Self::RewardCollapse);
        odd || creeps
            || collapse
            || matches!(
                self,
                Self::UnconfirmedResume | Self::ResumeAhead | Self::ResumeJump | Self::AnotherOwner
            )
    }

    /// It says what came of steps that were trained twice.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::ResumeEqual | Self::ResumeWithin | Self::ResumeJump)
    }
}
