//! Facts from verl's configuration that its adapter needs at every launch, beyond the specification.

use crate::adapter::TrainerFacts;

/// Facts from verl's configuration beyond a run's specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerlFacts {
    /// Keys that enable asynchronous saves.
    pub async_save: Vec<String>,
    pub file_logger: bool,
    pub loggers: Vec<String>,
    /// The trainer saves before a preemption if it knows the time.
    pub saves_on_demand: bool,
    pub validates_first: bool,
    /// The older SFT trainer (`fsdp_sft_trainer`), whose keys for loading differ.
    pub older_sft: bool,
    /// The trainer cannot resume from what it saves.
    pub never_resumes: bool,
}

static NONE: VerlFacts = VerlFacts {
    async_save: Vec::new(),
    file_logger: false,
    loggers: Vec::new(),
    saves_on_demand: false,
    validates_first: false,
    older_sft: false,
    never_resumes: false,
};

impl VerlFacts {
    /// The facts as read, or defaults if nothing was read.
    #[must_use]
    pub fn of(facts: &TrainerFacts) -> &Self {
        facts.own.get().unwrap_or(&NONE)
    }
}
