//! Hugging Face's `Trainer`, and programs built on it: TRL, LLaMA-Factory, ms-swift.

mod arguments;
mod arrange;
mod call;
mod entry;
mod groups;
mod judge;
mod marks;
mod names;
mod padded;
mod parts;
mod program;
mod ranks;
mod read;
mod rules;
mod saving;
mod script;
mod seen;
mod steps;
mod v1;

use self::saving::Saving;
use crate::adapter::{
    AdapterPayload, ExpectedLayout, HostFacts, LaunchPlan, SaveDoor, StepTracker, TrainerAdapter, TrainerFacts,
    TrainerNames,
};
use crate::code::PlainCode;
use crate::read::{ReadInput, ReadOutput};
use crate::script_call::RewrittenCall;
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, parse_trainer_yaml};
use supervise_core::checkpoint::Finding;
use supervise_core::event::scan::ScanRule;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::script::CallOrder;
use supervise_core::spec::seen::TrainerSeen;
use supervise_core::spec::{RunSpec, TrainerKind};

/// Hugging Face's `Trainer`, including its variants.
pub const HF: TrainerKind = TrainerKind::new("hf");

const WORDS: TrainerNames = TrainerNames {
    name: "Hugging Face's Trainer",
    root: &["output_dir"],
    every: Some("save_steps"),
    keeps_every: true,
    resume_path: Some(call::RESUME),
    ..TrainerNames::NONE
};

/// Finding codes that only this adapter has, with the meaning of each.
const CODES: [(&str, &str); 7] = [
    (
        "deepspeed_universal",
        "DeepSpeed's copy for another number of ranks, which no resume loads by itself",
    ),
    (
        "hub_upload",
        "push_to_hub, and what supervise writes into the output directory",
    ),
    (
        "known_by_flags",
        "nothing but its flags tells which trainer the command starts",
    ),
    (
        "padded_name",
        "a step's name with leading zeros, which the trainer would take for that step and never writes",
    ),
    (
        "saves_at_stop",
        "the trainer saves when it is told to end, each rank by itself",
    ),
    (
        "told_not_passed_on",
        "a setting is believed and cannot be given to the command",
    ),
    ("state_missing", "a file of state that the step before has is not there"),
];

/// The adapter of Hugging Face's `Trainer`.
#[derive(Debug)]
pub struct HfAdapter;

impl TrainerAdapter for HfAdapter {
    fn kind(&self) -> TrainerKind {
        HF
    }

    fn framework(&self) -> &'static str {
        "hf"
    }

    fn words(&self) -> &'static TrainerNames {
        &WORDS
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &CODES
    }

    fn is_called(&self, command: &[String]) -> bool {
        call::is_called(command)
    }

    fn is_learnt(&self) -> bool {
        true
    }

    fn programs(&self) -> &'static [&'static str] {
        &program::PROGRAMS
    }

    fn call_root(&self, words: &[String]) -> String {
        script::root(words)
    }

    fn fill(
        &self,
        words: &[String],
        order: &CallOrder,
        restarts_by_environment: bool,
    ) -> Result<RewrittenCall, String> {
        script::fill(words, order, restarts_by_environment)
    }

    fn resumes_by_itself(&self) -> bool {
        true
    }

    fn is_meant(&self, composed: &ComposedConfig) -> bool {
        is_meant(&|key: &str| composed.tree.get(key).is_some())
    }

    fn refuses_block(&self) -> bool {
        true
    }

    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout {
            own: AdapterPayload::new(ranks::of_node(spec.trainer_command())),
            ..ExpectedLayout::of(spec)
        }
    }

    fn config_in(&self, command: &[String]) -> Option<String> {
        call::config_in(command)
    }

    fn trains_by_code(&self, code: &PlainCode) -> bool {
        code.has_trainer()
    }

    fn hook(&self, spec: &RunSpec) -> Option<&'static str> {
        let is_blind = call::style(spec.trainer_command()) == call::ArgStyle::None && spec.learnt.is_none();
        (is_blind || call::pushes_to_hub(&spec.command)).then_some(seen::HOOK)
    }

    fn save_door(&self, _spec: &RunSpec, _facts: &TrainerFacts) -> SaveDoor {
        SaveDoor::Open {
            how: "a callback of transformers",
            python: &[include_str!("hf/door.py")],
        }
    }

    fn is_seen(&self) -> bool {
        true
    }

    fn seen(&self, told: &str, known: Option<&TrainerSeen>) -> Option<TrainerSeen> {
        seen::seen(told, known)
    }

    fn hook_failed(&self, told: &str) -> Option<String> {
        seen::failed(told)
    }

    fn configs_in(&self, command: &[String]) -> Vec<String> {
        call::configs_in(command)
    }

    fn is_config(&self, text: &str, name: &str) -> bool {
        let node = parse_trainer_yaml(text, name);
        node.is_ok_and(|node| is_meant(&|key: &str| node.child(key).is_some()))
    }

    fn step_prefix(&self) -> Option<&'static str> {
        Some(names::PREFIX)
    }

    fn is_step(&self, name: &str, names: &[String]) -> bool {
        let marks = |n: &String| {
            matches!(
                n.as_str(),
                names::STATE | names::SCHEDULE | names::SENTINEL | names::V1_COMPLETE
            )
        };
        matches!(names::root_name(name), names::HfRootName::Step(_)) || names.iter().any(marks)
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        read::read(input)
    }

    fn rules(&self) -> Vec<ScanRule> {
        rules::rules()
    }

    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(steps::HfSteps::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        arrange::arrange(spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
        cadence(spec, facts).into_iter().collect()
    }
}

fn is_meant(has: &dyn Fn(&str) -> bool) -> bool {
    !has("trainer") && call::is_meant(has)
}

fn cadence(spec: &RunSpec, facts: &TrainerFacts) -> Option<Finding> {
    if !spec.policy.start.recovery {
        return None;
    }
    match spec.cadence.every {
        Some(n) => Some(Finding::note(
            "cadence",
            format!("every {n} steps are saved: a crash costs up to {n} steps"),
        )),
        None => facts.own.get().copied().unwrap_or(Saving::Unknown).words(),
    }
}
