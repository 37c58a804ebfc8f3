//! `supervise plan`: what `run` would do now. Changes nothing.

use super::run::LaunchArgs;
use super::{prompt, target};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{Learning, PLAIN_CODE, PrepareRequest, prepare};
use crate::rehearse::{not_rehearsed, rehearse};
use crate::render::doubts;
use crate::render::plan::{OPEN_CASE, PlanView};
use crate::run_order::PreparedRun;
use std::collections::BTreeMap;
use supervise_config::settings::CgroupChoice;
use supervise_core::checkpoint::{Depth, Finding};
use supervise_core::event::ScanReport;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::resume::{ResumeChoice, answered_again, choose, in_next_term, needed_depth, scan_width};
use supervise_core::spec::ResumeIntent;
use supervise_core::state::{OwnStep, RunState};
use supervise_host::io_worker::{
    RootProver, RunCheckpoints, RunIdentity, came_with_a_copy, look_at_run, name_own_modules,
};
use supervise_host::process::boot_id;
use supervise_host::process::cgroup::CgroupLeaf;
use supervise_trainers::{HostFacts, LaunchPlan, adapter_of, expect};

pub(super) const EXAMPLES: &str = "  supervise plan ppo.yaml
  supervise plan ppo.yaml --json --depth full
  supervise plan ppo.yaml --from 120
  supervise plan ppo.yaml --rehearse       does this verl accept what a relaunch would pass?
  supervise plan --learn -- bash run_grpo.sh   runs the script up to its trainer's start
";

pub(super) const EXITS: [SuperviseExitCode; 8] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Deterministic,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::GaveUp,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Config,
];

/// The code of the finding about the cost of a crash.
const CADENCE: &str = "cadence";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: LaunchArgs,
    /// Run a script up to its trainer's start, to find out which it is
    #[arg(long)]
    learn: bool,
    /// Run the script without asking
    #[arg(long, requires = "learn")]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How much to read of each file [default: the setting]
    #[arg(long, value_enum)]
    depth: Option<super::DepthArg>,
    /// Let the trainer compose a relaunch's configuration and check it
    ///
    /// Imports verl, which takes ten seconds or more.
    #[arg(long)]
    rehearse: bool,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let learning = if args.learn { Learning::Anew } else { Learning::Known };
    let mut prepared = prepare(PrepareRequest {
        learning,
        asks_first: !args.yes,
        asking: args.learn || args.rehearse,
        planned: true,
        quiet: args.json,
        ..args.source.request()
    })?;
    prompt::check_from(&prepared)?;
    if let Some(depth) = args.depth {
        prepared.order.spec.policy.proof.depth = depth.into();
        prepared.order.spec.policy.proof.depth_is_fixed = true;
    }
    if args.rehearse {
        let found = match &prepared.left_out {
            Some(why) => vec![not_rehearsed(why)],
            None => rehearse(&prepared.order),
        };
        prepared.findings.extend(found);
    }
    let mut seen = target::of_prepared(&prepared.order.spec)?;
    prompt::check_taken(&prepared.order.spec, |_| Ok(seen.clone()))?;
    prompt::check_fresh(&prepared, |_| Ok(seen.clone()))?;
    let mut notes = seen.notes.clone();
    notes.extend(open_case(&prepared));
    let alive = seen.alive;
    if let Some(problem) = &seen.problem {
        return Err(CliError::environment(problem.clone()));
    }
    let spec = &prepared.order.spec;
    let identity = RunIdentity {
        run: spec.run.clone(),
        run_dir: spec.run_dir.clone(),
        root: spec.root.clone(),
    };
    // An unreadable one was reported already.
    if let Ok(Some(copied)) = came_with_a_copy(&identity) {
        notes.push(copied);
        seen.state = None;
    }
    let before = seen
        .state
        .as_ref()
        .and_then(|s| answered_again(s, &prepared.order.spec))
        .cloned();
    let found = seen.state.unwrap_or_default();
    take_trainer(&found, &mut prepared);
    if let Some(held) = found.requests.held.as_ref().filter(|_| !alive.supervisor.alive) {
        notes.push(format!(
            "{}: a start launches nothing before `supervise unhold`",
            held.words()
        ));
    }
    let mut state = in_next_term(found, &prepared.order.spec, boot_id().unwrap_or_default());
    let depth = needed_depth(&state, &prepared.order.spec);
    let whole = scan_width(&state, &prepared.order.spec);
    let mut report = scan(&prepared, &state.disk.own, depth, whole);
    // A step that the run is not known to have written is read as a whole.
    state.disk.scan = Some(report.clone());
    let deeper = needed_depth(&state, &prepared.order.spec);
    if deeper > depth {
        report = scan(&prepared, &state.disk.own, deeper, whole);
    }
    let scan = report;
    let choice = choose(&state, &prepared.order.spec, &scan);
    let launch = arrange(&prepared, &state, &choice)?;
    take_interval(&mut prepared, &scan, &choice);
    let longest = state.attempt.as_ref().map(|a| a.training.longest_step);
    let mut view = PlanView::of(&prepared, &choice, launch.as_ref(), longest, notes);
    view.findings.extend(of_resume_point(&scan, &choice));
    if let Some(outcome) = &before {
        view.ended_before(outcome);
    }
    if alive.supervisor.alive {
        view.is_held();
    } else if alive.guard.alive {
        view.takes_over();
    }
    if view
        .exit_code
        .is_none_or(|code| code == SuperviseExitCode::Finished.code())
    {
        view.exit_code = prepared.refused.or(view.exit_code);
    }
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text(&prepared))?;
    }
    let success = SuperviseExitCode::Finished.code();
    Ok(match view.exit_code.unwrap_or(success) {
        // If the first failure would end the run, the plan is no success.
        code if code == success && view.findings.iter().any(|f| f.code == "override_unknown") => {
            SuperviseExitCode::Config.code()
        }
        code => code,
    })
}

/// Uses the trainer that was seen while the run was running, if the command does not show it.
fn take_trainer(state: &RunState, prepared: &mut PreparedRun) {
    let spec = &prepared.order.spec;
    let Some(seen) = state.seen.as_ref().filter(|_| spec.root.is_none()) else {
        return;
    };
    let applied = seen.applied(spec);
    let note = Finding::note("trainer_seen", seen.words());
    if applied.root.is_some() {
        prepared.findings.retain(|f| f.code != PLAIN_CODE);
    }
    prepared.order.spec = applied;
    prepared.findings.push(note);
}

/// A resume continues with the save interval stored in its step, so the cost of a crash is computed from it.
fn take_interval(prepared: &mut PreparedRun, scan: &ScanReport, choice: &ResumeChoice) {
    let ResumeChoice::Start {
        from: StartPoint::Step { ckpt, .. },
        ..
    } = choice
    else {
        return;
    };
    let of_step = scan
        .steps
        .iter()
        .find(|c| c.id == *ckpt)
        .and_then(|c| c.trainer_note?.save_every);
    let order = &mut prepared.order;
    if order.spec.save_door || of_step.is_none() || order.spec.cadence.every.is_none_or(|every| Some(every) == of_step)
    {
        return;
    }
    order.spec.cadence.every = of_step;
    let anew = adapter_of(&order.spec).preflight(&order.spec, &order.facts);
    prepared.findings.retain(|f| f.code != CADENCE);
    prepared.findings.extend(anew.into_iter().filter(|f| f.code == CADENCE));
}

/// The finding if no cgroup would contain the workers.
fn open_case(p: &PreparedRun) -> Option<String> {
    if p.order.settings.kill.cgroup == CgroupChoice::Off {
        return Some(format!("kill.cgroup is off: {OPEN_CASE}"));
    }
    let why = CgroupLeaf::could_be_made().err()?;
    Some(format!(
        "no control group of our own can be made here ({why}): {OPEN_CASE}"
    ))
}

fn scan(p: &PreparedRun, own: &BTreeMap<String, OwnStep>, depth: Depth, whole: u32) -> ScanReport {
    let mut report = scan_root(p, own, depth, whole);
    name_own_modules(&p.order.spec, &mut report.steps);
    report
}

fn scan_root(p: &PreparedRun, own: &BTreeMap<String, OwnStep>, depth: Depth, whole: u32) -> ScanReport {
    let Some(root) = &p.order.spec.root else {
        return ScanReport {
            empty: true,
            ..ScanReport::default()
        };
    };
    if let Some(place) = RunCheckpoints::of(&p.order.spec).filter(|place| place.store.is_some()) {
        return look_at_run(&place, depth, &mut |_| true);
    }
    let expect = expect(&p.order.spec);
    let trainer = adapter_of(&p.order.spec);
    let mut prover = RootProver::new(root, trainer, &expect).knowing(own);
    let mut report = prover.scan(depth, whole, &mut |_| true);
    if let ResumeIntent::Path { path, .. } = &p.order.spec.resume
        && !path.starts_with(root)
        && let (Some(above), Some(name)) = (path.parent(), path.file_name())
    {
        let mut elsewhere = RootProver::new(above, trainer, &expect);
        let found = elsewhere
            .scan(depth, 0, &mut |_| true)
            .steps
            .into_iter()
            .find(|c| c.id.0 == name);
        if let Some(found) = found {
            let mut proven = elsewhere.prove(&found.id, depth, &mut |_| true);
            proven.id.0.clone_from(path);
            report.steps.push(proven);
        }
    }
    report
}

/// Doubts about the step to resume from.
fn of_resume_point(scan: &ScanReport, choice: &ResumeChoice) -> Vec<Finding> {
    match choice {
        ResumeChoice::Start { from, .. } => doubts(scan, from),
        _ => Vec::new(),
    }
}

fn arrange(p: &PreparedRun, state: &RunState, choice: &ResumeChoice) -> Result<Option<LaunchPlan>, CliError> {
    let ResumeChoice::Start { from, lost, care, .. } = choice else {
        return Ok(None);
    };
    let order = LaunchOrder {
        attempt: state.attempts.next(),
        from: from.clone(),
        lost: lost.clone(),
        nodes: p.order.spec.gang.nodes,
    };
    let host = HostFacts {
        env: crate::environment::own(),
        trainer: p.order.facts.clone(),
        began: state
            .requests
            .care
            .as_ref()
            .filter(|_| !care)
            .map_or(order.attempt, |c| c.attempt)
            .0,
    };
    match adapter_of(&p.order.spec).arrange(&p.order.spec, &order, &host) {
        Ok(plan) => Ok(Some(plan)),
        Err(reason) => Err(CliError::config(reason.text)),
    }
}
