//! AReaL: a single checkpoint that every save overwrites in place, with the run's own state next to it.

mod arrange;
mod backend;
mod call;
mod codes;
mod consistency;
mod defaults;
mod engines;
mod fields;
mod frequency;
mod jobs;
mod judge;
mod layout;
mod live;
mod names;
mod older;
mod preflight;
mod ray;
mod read;
mod rules;
mod set;
mod steps;
mod trial_dirs;

pub use frequency::{EditedFile, with_frequencies};
pub use live::ArealSpec;
pub use names::{as_live, as_own};
pub use supervise_checkpoint::Frequencies;

use crate::adapter::{
    AdapterPayload, ExpectedLayout, HostFacts, InPlaceLayout, LaunchPlan, SaveDoor, StepTracker, TrainerAdapter,
    TrainerFacts, TrainerNames, UserPart,
};
use crate::read::{ReadInput, ReadOutput};
use crate::slurm::SlurmJobs;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST};
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ConfigNode, ConfigTree, parse_trainer_yaml};
use supervise_core::checkpoint::Finding;
use supervise_core::event::scan::ScanRule;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::{AcceptAhead, RunSpec, SavePolicy, TrainerKind};

fn is_called(command: &[String]) -> bool {
    call::launcher(command).is_some()
}

/// Returns true if a configuration belongs to AReaL: no other known trainer names its experiment at the top level, or
/// has so many of these sections (the names may come from the command).
#[must_use]
pub fn is_meant(root: &ConfigNode) -> bool {
    let has = |key: &str| root.child(key).is_some();
    let parts = [
        "recover",
        "saver",
        "evaluator",
        "stats_logger",
        "cluster",
        "allocation_mode",
        "rollout",
    ];
    let found = parts.into_iter().filter(|part| has(part)).count();
    let named = has("experiment_name") && has("trial_name");
    !has("trainer") && (named && found > 0 || found > 2)
}

/// The position after the last `checkpoints` that is followed by user, experiment and trial.
fn place_of_user(parts: &[&str]) -> Option<usize> {
    let at = parts.iter().rposition(|p| *p == "checkpoints")?;
    (parts.len() > at + 3).then_some(at + 1)
}

/// The value to force on `recover.mode`, whatever the file says.
struct RecoverMode(Option<&'static str>);

#[derive(Debug, Clone, Default)]
struct Sets {
    live: Option<ArealSpec>,
    /// Weights may be newer than the counters next to them.
    ahead: bool,
}

impl Sets {
    fn live(expect: &ExpectedLayout) -> Option<&ArealSpec> {
        expect.own.get::<Self>()?.live.as_ref()
    }
}

/// AReaL, any of its trainers.
pub const AREAL: TrainerKind = TrainerKind::new("areal");

const WORDS: TrainerNames = TrainerNames {
    name: "AReaL",
    root: &["recover.fileroot"],
    every: Some("recover.freq_steps"),
    retries: Some("recover.retries"),
    fixed_root: Some("recover.fileroot, the user's name, recover.experiment_name and recover.trial_name"),
    ..TrainerNames::NONE
};

/// The adapter of AReaL's trainers.
#[derive(Debug)]
pub struct ArealAdapter;

impl TrainerAdapter for ArealAdapter {
    fn kind(&self) -> TrainerKind {
        AREAL
    }

    fn framework(&self) -> &'static str {
        "areal"
    }

    fn words(&self) -> &'static TrainerNames {
        &WORDS
    }

    fn package(&self) -> Option<&'static str> {
        Some("areal")
    }

    fn has_releases(&self) -> bool {
        true
    }

    fn save_door(&self, spec: &RunSpec, facts: &TrainerFacts) -> SaveDoor {
        save_door(spec, facts)
    }

    fn refuses_block(&self) -> bool {
        true
    }

    fn config_in(&self, command: &[String]) -> Option<String> {
        call::config_option(command).map(|option| option.file)
    }

    fn is_config(&self, text: &str, name: &str) -> bool {
        match parse_trainer_yaml(text, name) {
            Ok(root) => is_meant(&root),
            // Reading it reports the error.
            Err(_) => ["experiment_name:", "trial_name:"]
                .iter()
                .all(|key| text.lines().any(|l| l.starts_with(key))),
        }
    }

    fn user_part(&self, root: &Utf8Path) -> Option<UserPart> {
        let mut parts: Vec<&str> = root.as_str().split('/').collect();
        let at = place_of_user(&parts)?;
        let user = std::mem::replace(parts.get_mut(at)?, "*").to_owned();
        Some(UserPart {
            user,
            place: parts.join("/"),
            saves: &[names::INFO, LATEST, GENERATIONS],
        })
    }

    fn store_of(&self, root: &Utf8Path) -> Option<Utf8PathBuf> {
        let parts: Vec<&str> = root.as_str().split('/').collect();
        let at = place_of_user(&parts)? - 1;
        let named = |i: usize| if i == at { "supervise" } else { parts[i] };
        Some((0..parts.len()).map(named).collect::<Vec<_>>().join("/").into())
    }

    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout {
            own: AdapterPayload::new(Sets {
                live: ArealSpec::of(&spec.saves),
                ahead: spec.policy.protect.ahead == AcceptAhead::Always,
            }),
            ..ExpectedLayout::of(spec)
        }
    }

    fn in_place(&self) -> Option<&'static dyn InPlaceLayout> {
        Some(&layout::ArealLayout)
    }

    fn jobs(&self, saves: &SavePolicy) -> Option<SlurmJobs> {
        ArealSpec::of(saves)?.slurm
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        &codes::CODES
    }

    fn is_run_by_file(&self) -> bool {
        true
    }

    fn proposal(&self, tree: &ConfigTree) -> Option<Vec<String>> {
        Some(match older::is_configured(tree) {
            true => older::proposal(),
            false => call::proposal(tree),
        })
    }

    fn is_called(&self, command: &[String]) -> bool {
        is_called(command)
    }

    fn is_meant(&self, composed: &ComposedConfig) -> bool {
        is_meant(&composed.tree.root)
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        read::read(input)
    }

    fn rules(&self) -> Vec<ScanRule> {
        rules::rules()
    }

    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(steps::ArealSteps::new(expect.clone()))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        arrange::arrange(spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
        preflight::preflight(spec, facts)
    }
}

/// The first release whose trainers ask at each step whether to save is the first one that is known here.
fn save_door(spec: &RunSpec, facts: &TrainerFacts) -> SaveDoor {
    if call::launcher(&spec.command).is_some() {
        return SaveDoor::none("AReaL's launcher starts the trainer itself");
    }
    if facts
        .own
        .get()
        .is_some_and(|RecoverMode(mode)| *mode == Some("disabled"))
    {
        return SaveDoor::none("recover.mode is disabled");
    }
    match spec.trainer_version.as_deref().map(|v| v.starts_with("1.0.")) {
        Some(true) => SaveDoor::Open {
            how: "RecoverHandler of AReaL",
            python: &[include_str!("areal/door.py")],
        },
        Some(false) => SaveDoor::none("this release of AReaL is not known here"),
        None => SaveDoor::none("the release of AReaL is not known"),
    }
}
