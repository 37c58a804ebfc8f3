//! verl: PPO and the SFT trainer, with checkpoints of its FSDP or its Megatron manager.

mod arrange;
mod assist;
mod base_config;
mod batch;
pub(crate) mod call;
mod codes;
mod compatibility;
mod data;
mod defaults;
mod degraded;
mod door;
mod easyr1;
mod evidence;
mod facts;
mod finished;
mod interpreter_query;
mod judge;
mod lineage;
mod marks;
mod megatron;
pub mod migrate;
mod mistyped;
mod names;
mod preflight;
mod queue;
mod ranks;
mod ray;
pub(crate) mod read;
mod read_ppo;
mod read_sft;
mod required_files;
mod role;
mod rules;
mod settings;
mod step_files;
mod steps;
mod strategy;
mod tracker;
mod trust;
mod untrained;
mod user_settings;
mod version;

use base_config::one_data_file;
pub(crate) use base_config::{VerlBasis, of as basis};
pub(crate) use defaults::default_keys;
pub use defaults::{VerlBaseConfig, verl_defaults};
pub use facts::VerlFacts;
pub(crate) use mistyped::check as check_mistyped;
pub(crate) use read_ppo::read as read_ppo;
pub(crate) use read_sft::read as read_sft;
pub(crate) use settings::as_overrides;
pub use version::{ReleaseSeries, VerlRelease};

use crate::adapter::{
    AdapterPayload, Asks, ExpectedLayout, HostFacts, LaunchPlan, SaveDoor, StepTracker, TrainerAdapter, TrainerFacts,
    TrainerNames,
};
use crate::read::{ReadInput, ReadOutput};
use crate::script_call::RewrittenCall;
use supervise_config::ConfigError;
use supervise_config::compose::ComposedConfig;
use supervise_core::checkpoint::Finding;
use supervise_core::event::scan::ScanRule;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::script::CallOrder;
use supervise_core::spec::{RunSpec, TrainerKind};

pub(crate) type VerlConfigReader<'a> = crate::kit::ConfigReader<'a, &'a VerlBasis>;

/// Layout of a run's steps. `None`: either is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layouts {
    /// The layout of the SFT trainer (`true`) or of PPO (`false`).
    pub sft: Option<bool>,
    /// SFT stores the dataloader state in one `data.pt` (`true`, the older trainer) or in one `data_R.pt` per
    /// data-parallel rank.
    pub one_data_file: Option<bool>,
}

impl Layouts {
    fn of(expect: &ExpectedLayout) -> Self {
        expect.own.get().copied().unwrap_or_default()
    }
}

/// PPO and its variants (`main_ppo`).
pub const PPO: TrainerKind = TrainerKind::new("verl_ppo");
/// The SFT trainer.
pub const SFT: TrainerKind = TrainerKind::new("verl_sft");

const WORDS: TrainerNames = TrainerNames {
    name: "verl",
    entry: Some(("verl.trainer", "main_ppo")),
    root: &[
        "trainer.default_local_dir",
        "trainer.project_name",
        "trainer.experiment_name",
    ],
    every: Some("trainer.save_freq"),
    nodes: Some("trainer.nnodes"),
    gpus_per_node: Some("trainer.n_gpus_per_node"),
    resume_path: Some("trainer.resume_from_path"),
    ..TrainerNames::NONE
};

/// The adapter of verl's trainers.
#[derive(Debug)]
pub struct VerlAdapter {
    /// The SFT trainer; otherwise PPO and its variants.
    pub sft: bool,
}

impl TrainerAdapter for VerlAdapter {
    fn kind(&self) -> TrainerKind {
        if self.sft { SFT } else { PPO }
    }

    fn framework(&self) -> &'static str {
        "verl"
    }

    fn entries(&self) -> Option<&'static str> {
        Some("name the entry point in the command (-m verl.trainer.main_ppo or -m verl.trainer.sft_trainer)")
    }

    fn words(&self) -> &'static TrainerNames {
        &WORDS
    }

    fn step_prefix(&self) -> Option<&'static str> {
        Some(names::STEP)
    }

    fn own_configs(&self) -> &'static [&'static str] {
        &read::OWN_CONFIGS
    }

    fn is_learnt(&self) -> bool {
        true
    }

    fn starts(&self, words: &[String]) -> bool {
        call::is_call(words)
    }

    fn call_root(&self, words: &[String]) -> String {
        call::root(words)
    }

    fn fill(
        &self,
        words: &[String],
        order: &CallOrder,
        restarts_by_environment: bool,
    ) -> Result<RewrittenCall, String> {
        call::fill(words, order, restarts_by_environment)
    }

    fn package(&self) -> Option<&'static str> {
        Some("verl")
    }

    /// Checked for verl 0.9: the only library setting it changes at import, tensordict's, is read at each call.
    fn imports_plainly(&self) -> bool {
        true
    }

    fn has_releases(&self) -> bool {
        true
    }

    fn rehearsed(&self, command: &[String]) -> Option<Vec<String>> {
        crate::rehearsal::rehearsed(command)
    }

    fn asks(&self, input: &ReadInput<'_>) -> Option<Asks> {
        interpreter_query::asks(input, self.sft)
    }

    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout {
            own: AdapterPayload::new(Layouts {
                sft: Some(self.sft),
                one_data_file: one_data_file(spec),
            }),
            ..ExpectedLayout::of(spec)
        }
    }

    fn is_of_role(&self, name: &str) -> bool {
        names::is_of_role(name)
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &codes::CODES
    }

    fn save_door(&self, spec: &RunSpec, facts: &TrainerFacts) -> SaveDoor {
        door::save_door(self.sft, spec, facts)
    }

    fn is_called(&self, command: &[String]) -> bool {
        read::called(command) == Some(self.kind())
    }

    fn is_meant(&self, composed: &ComposedConfig) -> bool {
        read::meant(composed) == Some(self.kind())
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        read::read(input, self.sft)
    }

    fn rules(&self) -> Vec<ScanRule> {
        rules::rules(self.sft)
    }

    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(steps::VerlSteps::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        arrange::arrange(self.sft, spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
        preflight::preflight(self.sft, spec, facts)
    }
}
