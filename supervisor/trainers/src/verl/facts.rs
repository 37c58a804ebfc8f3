//! Facts that verl's adapter reads at every launch beside the specification.

use crate::adapter::TrainerFacts;

/// Facts of verl's configuration beyond a run's specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerlFacts {
    /// Keys under which asynchronous saves are switched on.
    pub async_save: Vec<String>,
    /// The trainer writes its metrics to a file.
    pub file_logger: bool,
    /// Place where the trainer writes its metrics, by verl's names.
    pub loggers: Vec<String>,
    /// The trainer can be told when its machine is taken away, and saves before.
    pub saves_on_demand: bool,
    /// A validation runs before the first step of every launch.
    pub validates_first: bool,
    /// The SFT trainer is the older one (`fsdp_sft_trainer`), which has names of its own for what it loads.
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
    /// Those that were read; nothing is known where they were not.
    #[must_use]
    pub fn of(facts: &TrainerFacts) -> &Self {
        facts.own.get().unwrap_or(&NONE)
    }
}
