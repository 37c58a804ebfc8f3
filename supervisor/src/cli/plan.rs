//! `supervise plan`: what `run` would do now. Touches nothing.

use super::run::Source;
use super::target;
use crate::error::CliError;
use crate::exit::Exit;
use crate::prepare::{self, Learning, Prepared, Request, prepare};
use crate::printer;
use crate::render::doubts;
use crate::render::plan::PlanView;
use supervise_core::checkpoint::{Depth, Finding};
use supervise_core::event::ScanReport;
use supervise_core::record::{LaunchOrder, Outcome};
use supervise_core::resume::{Choice, choose};
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_core::state::{Mode, State};
use supervise_host::lane::{Prover, Where, look_at_run};
use supervise_trainers::{Expectation, HostFacts, LaunchPlan, adapter};

pub(super) const EXAMPLES: &str = "  supervise plan ppo.yaml
  supervise plan ppo.yaml --json --depth full
  supervise plan ppo.yaml --from 120
  supervise plan ppo.yaml --rehearse       does this verl take what a relaunch would be given?
  supervise plan --learn -- bash run_grpo.sh   runs the script up to the call of its trainer
";

pub(super) const EXITS: [Exit; 8] = [
    Exit::Finished,
    Exit::Deterministic,
    Exit::GaveUp,
    Exit::NoProof,
    Exit::LeaseHeld,
    Exit::Usage,
    Exit::Environment,
    Exit::Config,
];

/// Whole steps that are looked for: the newest, and one behind it.
const WHOLE: u32 = 2;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Run a script up to the call of its trainer, to learn which one it starts
    #[arg(long)]
    learn: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How deep to look, instead of what the settings say
    #[arg(long, value_enum)]
    depth: Option<super::DepthArg>,
    /// Let the trainer compose the configuration of a relaunch and compare it (imports verl: ten seconds and more)
    #[arg(long)]
    rehearse: bool,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let learning = if args.learn { Learning::Anew } else { Learning::Known };
    let mut prepared = prepare(&Request {
        learning,
        ..args.source.request()
    })?;
    if let Some(depth) = args.depth {
        prepared.spec.policy.depth = depth.into();
    }
    if args.rehearse {
        prepared.findings.extend(prepare::rehearse(&prepared));
    }
    let seen = target::of_prepared(&prepared.spec)?;
    let mut notes = seen.notes.clone();
    if seen.alive.supervisor.alive {
        notes.push("a supervisor of this run lives: `supervise status` tells what it does".to_owned());
    }
    if let Some(problem) = &seen.problem {
        return Err(CliError::environment(problem.clone()));
    }
    let before = seen.state.as_ref().and_then(ended_before);
    let state = next_term(seen.state.unwrap_or_default(), &prepared.spec);
    let scan = scan(&prepared, prepared.spec.policy.depth);
    let choice = choose(&state, &prepared.spec, &scan);
    let launch = arrange(&prepared, &state, &choice)?;
    let longest = state.attempt.as_ref().map(|a| a.longest_step);
    let mut view = PlanView::of(&prepared, &choice, launch.as_ref(), longest, notes);
    view.findings.extend(of_resume_point(&scan, &choice));
    if let Some(outcome) = &before {
        view.ended_before(outcome);
    }
    if args.json {
        super::print_json(&view)?;
    } else {
        printer::out(&view.text(&prepared));
    }
    // The first failure would be the end: that is no plan to go on with.
    let is_unknown = view.findings.iter().any(|f| f.code == "override_unknown");
    Ok(match view.exit_code.filter(|code| *code != Exit::Finished.code()) {
        Some(code) => code,
        None if is_unknown => Exit::Config.code(),
        None => Exit::Finished.code(),
    })
}

/// An outcome after which `run` answers the same without acting.
fn ended_before(state: &State) -> Option<Outcome> {
    let needs_a_person = |o: &Outcome| {
        matches!(
            o,
            Outcome::Deterministic { .. } | Outcome::NoProof { .. } | Outcome::GaveUp { .. }
        )
    };
    let finished = state.mode == Mode::Finished;
    state.outcome.clone().filter(|o| finished && needs_a_person(o))
}

/// What would be decided is decided in the term that would begin.
fn next_term(mut state: State, spec: &RunSpec) -> State {
    state.term = state.term.next();
    // What was printed of the plan before does not count for another configuration.
    state.total = state.total.filter(|_| state.config == spec.config_hash);
    state
}

fn scan(p: &Prepared, depth: Depth) -> ScanReport {
    let Some(root) = &p.spec.root else {
        return ScanReport {
            empty: true,
            ..ScanReport::default()
        };
    };
    if let Some(place) = Where::of(&p.spec).filter(|place| place.store.is_some()) {
        return look_at_run(&place, depth, &mut |_| true);
    }
    let expect = Expectation::of(&p.spec);
    let trainer = adapter(p.spec.trainer);
    let mut report = Prover::new(root, trainer, &expect).scan(depth, WHOLE, &mut |_| true);
    if let ResumeIntent::Path { path, .. } = &p.spec.resume
        && !path.starts_with(root)
        && let (Some(above), Some(name)) = (path.parent(), path.file_name())
    {
        let mut elsewhere = Prover::new(above, trainer, &expect);
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

/// What is doubtful about the step that it would resume from.
fn of_resume_point(scan: &ScanReport, choice: &Choice) -> Vec<Finding> {
    match choice {
        Choice::Start { from, .. } => doubts(scan, from),
        _ => Vec::new(),
    }
}

fn arrange(p: &Prepared, state: &State, choice: &Choice) -> Result<Option<LaunchPlan>, CliError> {
    let Choice::Start { from, lost, care, .. } = choice else {
        return Ok(None);
    };
    let order = LaunchOrder {
        attempt: state.attempts.next(),
        from: from.clone(),
        lost: lost.clone(),
    };
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let host = HostFacts {
        env: env.collect(),
        trainer: p.facts.clone(),
        began: state
            .care
            .as_ref()
            .filter(|_| !care)
            .map_or(order.attempt, |c| c.attempt)
            .0,
    };
    match adapter(p.spec.trainer).arrange(&p.spec, &order, &host) {
        Ok(plan) => Ok(Some(plan)),
        Err(reason) => Err(CliError::config(reason.text)),
    }
}
