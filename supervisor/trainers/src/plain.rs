//! Any command: supervised and launched as it is; nothing is known of its checkpoints.

use crate::adapter::{ExpectedLayout, HostFacts, LaunchPlan, StepTracker, TrainerAdapter, TrainerFacts, TrainerNames};
use crate::command;
use crate::read::{ReadInput, ReadOutput};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_config::ConfigError;
use supervise_config::compose::ComposedConfig;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, Finding, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::event::scan::ScanRule;
use supervise_core::id::Step;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{GangSpec, RunSpec, TrainerKind};

/// Kind of a command that is no known trainer.
pub const PLAIN: TrainerKind = TrainerKind::new("plain");

/// The adapter of commands that are no known trainer.
#[derive(Debug)]
pub struct PlainAdapter;

impl TrainerAdapter for PlainAdapter {
    fn kind(&self) -> TrainerKind {
        PLAIN
    }

    fn framework(&self) -> &'static str {
        "plain"
    }

    fn words(&self) -> &'static TrainerNames {
        &TrainerNames::NONE
    }

    fn has_steps(&self) -> bool {
        false
    }

    fn expect(&self, spec: &RunSpec) -> ExpectedLayout {
        ExpectedLayout {
            roles: None,
            ..ExpectedLayout::of(spec)
        }
    }

    fn is_called(&self, _command: &[String]) -> bool {
        false
    }

    fn is_meant(&self, _composed: &ComposedConfig) -> bool {
        false
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        Ok(read(PLAIN, input))
    }

    fn rules(&self) -> Vec<ScanRule> {
        Vec::new()
    }

    fn tracker(&self, _expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(NoSteps)
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        if let StartPoint::Step { ckpt, .. } = &order.from {
            return Err(Reason::new(
                "no_resume",
                format!("a plain command cannot be started from {ckpt}"),
            ));
        }
        Ok(launch(spec, host))
    }

    fn preflight(&self, _spec: &RunSpec, _facts: &TrainerFacts) -> Vec<Finding> {
        vec![Finding::warning(
            "plain_command",
            "nothing is known of this command's checkpoints, so they are NOT protected: none is proven before a start or kept from being deleted or overwritten, and where it resumes is its own affair. It is started again as it is; a printed step beyond those of all attempts before refills its retries",
        )]
    }
}

/// A run of which the command line says everything.
pub(crate) fn read(kind: TrainerKind, input: &ReadInput<'_>) -> ReadOutput {
    let mut out = ReadOutput::blank(kind);
    if let Some(workers) = input.workers {
        out.gang = GangSpec::ranks(workers);
    }
    if let Some(composed) = input.composed {
        out.tree = composed.tree.clone();
    }
    out.command = input.command.to_vec();
    out
}

/// The command as it is.
pub(crate) fn launch(spec: &RunSpec, host: &HostFacts) -> LaunchPlan {
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    let mut argv = command::fill(&spec.command, &[], config);
    let by_environment = [&spec.env, &host.env]
        .iter()
        .any(|env| env.contains_key("PET_MAX_RESTARTS"));
    let notes = command::forbid_restarts(&mut argv, by_environment)
        .into_iter()
        .collect();
    let unbuffered = !spec.env.contains_key(UNBUFFERED) && !host.env.contains_key(UNBUFFERED);
    let env = unbuffered
        .then(|| (UNBUFFERED.to_owned(), "1".to_owned()))
        .into_iter()
        .collect();
    LaunchPlan {
        argv,
        env,
        notes,
        ..LaunchPlan::default()
    }
}

/// Without it Python buffers output for minutes when writing to a pipe.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

#[derive(Debug)]
struct NoSteps;

impl StepTracker for NoSteps {
    fn note(&mut self, _fact: &FileFact) {}

    fn steps(&self) -> Vec<(CkptId, Step)> {
        Vec::new()
    }

    fn needs(&self, _ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        Vec::new()
    }

    fn judge(
        &mut self,
        ckpt: &CkptId,
        _depth: Depth,
        _reports: &BTreeMap<Utf8PathBuf, FileReport>,
    ) -> CheckpointSummary {
        crate::kit::unknown_step(ckpt)
    }

    fn marks(&self, _ckpt: &CkptId, _reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        StepCounters::default()
    }

    fn remember(&mut self, _earlier: Vec<EarlierStep>) {}

    fn pins(&self, _ckpt: &CkptId) -> Option<PinsHash> {
        None
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn forget(&mut self, _ckpt: &CkptId) {}

    fn tracker_file(&self) -> &'static str {
        ""
    }

    fn read_tracker(&mut self, _bytes: Option<&[u8]>) -> TrackerState {
        TrackerState::Missing
    }
}
