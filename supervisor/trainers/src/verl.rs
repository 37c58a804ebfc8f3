//! verl: the PPO layout and the SFT trainer, saved by its FSDP or its Megatron checkpoint manager.

mod arrange;
mod assist;
mod basis;
mod data;
mod defaults;
mod evidence;
mod fits;
mod judge;
mod lineage;
mod marks;
mod megatron;
pub mod migrate;
mod mistyped;
mod names;
mod needs;
mod part;
mod preflight;
mod ranks;
mod ray;
mod read_ppo;
mod read_sft;
mod reader;
mod role;
mod rules;
mod settings;
mod steps;
mod strategy;
mod survey;
mod tracker;
mod trust;
mod version;
mod wishes;

pub(crate) use basis::{Basis, of as basis, one_data_file};
pub(crate) use defaults::default_keys;
pub use defaults::{Tree, verl_defaults};
pub(crate) use judge::unknown_step;
pub(crate) use mistyped::check as check_mistyped;
pub use ray::Ray;
pub(crate) use read_ppo::read as read_ppo;
pub(crate) use read_sft::read as read_sft;
pub(crate) use reader::Reader;
pub(crate) use settings::as_overrides;
pub use survey::pins;
pub(crate) use trust::{allow, not_trusted};
pub use version::{Release, Version};

use crate::adapter::{Adapter, Expectation, HostFacts, LaunchPlan, StepTracker, TrainerFacts};
use supervise_core::checkpoint::Finding;
use supervise_core::reason::Reason;
use supervise_core::record::LaunchOrder;
use supervise_core::scan::ScanRule;
use supervise_core::spec::{RunSpec, TrainerKind};

/// The adapter of verl's trainers.
#[derive(Debug)]
pub struct VerlAdapter {
    /// The SFT trainer; otherwise PPO and its relatives.
    pub sft: bool,
}

impl Adapter for VerlAdapter {
    fn kind(&self) -> TrainerKind {
        if self.sft {
            TrainerKind::VerlSft
        } else {
            TrainerKind::VerlPpo
        }
    }

    fn rules(&self) -> Vec<ScanRule> {
        rules::rules(self.sft)
    }

    fn tracker(&self, expect: &Expectation) -> Box<dyn StepTracker> {
        Box::new(steps::VerlSteps::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        arrange::arrange(self.sft, spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
        preflight::preflight(self.sft, spec, facts)
    }
}
