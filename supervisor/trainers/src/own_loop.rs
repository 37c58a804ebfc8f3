//! A hand-written training loop that reports its steps and checkpoints with the Python package.
//!
//! `supervise.saved()` leaves a mark beside each checkpoint ([`SavedMark`]); only what has one is a step.

mod entry;
mod judge;
mod mark;
mod steps;

pub use mark::SavedMark;

use crate::adapter::{
    ExpectedLayout, HostFacts, LaunchPlan, SaveDoor, StepTracker, TrainerAdapter, TrainerFacts, TrainerNames, save_door,
};
use crate::plain;
use crate::read::{ReadInput, ReadOutput};
use supervise_config::ConfigError;
use supervise_config::compose::ComposedConfig;
use supervise_core::checkpoint::Finding;
use supervise_core::event::progress::{report_end_rule, report_rule, report_unsaved_rule};
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{RunSpec, TrainerKind};

/// A loop that reports.
pub const LOOP: TrainerKind = TrainerKind::new("loop");

/// The directory in which `supervise.saved()` leaves its marks.
const SAVES: &str = "SUPERVISE_SAVES";
/// What `supervise.resume_from()` returns; empty for a fresh start.
const RESUME_FROM: &str = "SUPERVISE_RESUME_FROM";

const NAMES: TrainerNames = TrainerNames {
    name: "the loop",
    ..TrainerNames::NONE
};

/// Finding codes that only this adapter has, with the meaning of each.
const CODES: [(&str, &str); 2] = [
    (
        "reported_only",
        "a checkpoint that the loop reported as saved, in a format that supervise does not read",
    ),
    (
        "saved_differs",
        "a checkpoint does not have the number or the size of files that the loop reported",
    ),
];

/// The adapter of loops that report.
#[derive(Debug)]
pub struct LoopAdapter;

impl TrainerAdapter for LoopAdapter {
    fn kind(&self) -> TrainerKind {
        LOOP
    }

    fn framework(&self) -> &'static str {
        "loop"
    }

    fn words(&self) -> &'static TrainerNames {
        &NAMES
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &CODES
    }

    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout {
            roles: None,
            ..ExpectedLayout::of(spec)
        }
    }

    fn marks_steps(&self) -> bool {
        true
    }

    fn is_mark(&self, name: &str) -> bool {
        SavedMark::parse(name).is_some()
    }

    fn is_called(&self, _command: &[String]) -> bool {
        false
    }

    fn is_meant(&self, _composed: &ComposedConfig) -> bool {
        false
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        // A loop may end between two saves: exit code 0 and its last line say that it is over.
        Ok(ReadOutput {
            may_end_early: true,
            ..plain::read(LOOP, input)
        })
    }

    fn rules(&self) -> Vec<ScanRule> {
        vec![report_rule(RuleKind::Step), report_end_rule(), report_unsaved_rule()]
    }

    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(steps::LoopStepTracker::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        let root = spec.root.as_deref().filter(|root| root.is_absolute());
        let root =
            root.ok_or_else(|| Reason::new("no_root", "the checkpoint root is not known as an absolute path"))?;
        let mut plan = plain::launch(spec, host);
        plan.env.push((SAVES.to_owned(), root.to_string()));
        let from = match &order.from {
            StartPoint::AsIs => return Ok(plan),
            StartPoint::Fresh => String::new(),
            StartPoint::Step { ckpt, .. } => {
                let path = root.join(&ckpt.0);
                plan.notes.push(format!(
                    "supervise.resume_from() returns {path}: the loop loads it by itself"
                ));
                path.into_string()
            }
        };
        plan.env.push((RESUME_FROM.to_owned(), from));
        plan.help(save_door::setting(spec, order).into_iter().collect(), spec, host);
        Ok(plan)
    }

    fn save_door(&self, _spec: &RunSpec, _facts: &TrainerFacts) -> SaveDoor {
        SaveDoor::Open {
            how: "supervise.should_save() in the loop",
            python: &[],
        }
    }

    fn preflight(&self, _spec: &RunSpec, _facts: &TrainerFacts) -> Vec<Finding> {
        vec![Finding::note(
            "cadence",
            "the loop says when it saves: only what it reports with supervise.saved() is a step, and a crash costs what came after the last one",
        )]
    }
}
