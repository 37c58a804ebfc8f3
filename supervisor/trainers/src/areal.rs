//! AReaL: one checkpoint that every save overwrites in place, and what is kept of the run beside it.

mod agree;
mod arrange;
mod judge;
mod names;
mod preflight;
mod read;
mod rules;
mod set;
mod steps;

pub(crate) use read::read;

use crate::adapter::{Adapter, Expectation, HostFacts, LaunchPlan, StepTracker, TrainerFacts};
use supervise_core::checkpoint::Finding;
use supervise_core::reason::Reason;
use supervise_core::record::LaunchOrder;
use supervise_core::scan::ScanRule;
use supervise_core::spec::{RunSpec, TrainerKind};

/// The adapter of AReaL's trainers.
#[derive(Debug)]
pub struct ArealAdapter;

impl Adapter for ArealAdapter {
    fn kind(&self) -> TrainerKind {
        TrainerKind::Areal
    }

    fn rules(&self) -> Vec<ScanRule> {
        rules::rules()
    }

    fn tracker(&self, expect: &Expectation) -> Box<dyn StepTracker> {
        Box::new(steps::ArealSteps::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        arrange::arrange(spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
        preflight::preflight(spec, facts)
    }
}
