//! `supervise rollback`: makes a run resume from an earlier step.

use super::stop::outcome;
use super::stopped_run;
use super::target::{self, RunInfo};
use crate::environment;
use crate::error::{CliError, ErrorKind};
use crate::exit::SuperviseExitCode;
use crate::printer::ByteMeter;
use crate::render::rollback::RollbackView;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_core::event::{EventKind, OperatorRequest, ScanReport};
use supervise_core::id::Step;
use supervise_core::resume::{ResumeChoice, choose, needed_depth};
use supervise_core::state::OwnStep;
use supervise_host::io_worker::{RootProver, RunCheckpoints, look_at_run};

pub(super) const EXAMPLES: &str = "  supervise rollback ppo.yaml --to 120
  supervise rollback ppo.yaml --to 120 --dry-run --json | jq .aside
";

pub(super) const EXITS: [SuperviseExitCode; 6] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Journal,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Step to resume from; it is proven first
    #[arg(long, value_name = "N")]
    to: u64,
    /// Show what the next start would do, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The request comes from the page of this run (set by `serve`)
    #[arg(long, value_name = "IDENTITY", hide = true)]
    page_of: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::to_act_on(args.run.as_deref())?;
    let by = match &args.page_of {
        None => environment::user(),
        Some(id) if *id == seen.run.0 => environment::user_on_a_page(),
        Some(id) => {
            let there = &seen.run;
            return Err(CliError::usage(format!(
                "expected run {id} in its directory, found run {there}"
            )));
        }
    };
    let wish = RollbackRequest { by, to: Step(args.to) };
    stopped_run::check(&seen)?;
    let view = promise(&seen, &wish)?;
    if !args.dry_run {
        stopped_run::write_down(&seen, &[wish.asked()])?;
    }
    match args.json {
        true => super::print_json(&view.json(args.dry_run))?,
        false => super::print(&view.text(args.dry_run))?,
    }
    Ok(SuperviseExitCode::Finished.code())
}

struct RollbackRequest {
    by: String,
    to: Step,
}

impl RollbackRequest {
    fn asked(&self) -> EventKind {
        EventKind::Operator(OperatorRequest::RollBack {
            by: self.by.clone(),
            to: self.to,
        })
    }
}

/// What the next start will do, by the same choice that it makes.
fn promise(seen: &RunInfo, wish: &RollbackRequest) -> Result<RollbackView, CliError> {
    let to = wish.to;
    let run = &seen.run;
    let (Some(state), Some(mut spec)) = (&seen.state, seen.spec_as_seen()) else {
        return Err(CliError::environment(format!(
            "run {run}: its journal or its specification cannot be read"
        )));
    };
    // Flags of the last start's command line.
    (
        spec.policy.start.from,
        spec.policy.start.fresh,
        spec.policy.start.allow_fresh,
    ) = (None, false, false);
    let spec = &spec;
    let place = RunCheckpoints::of(spec).ok_or_else(|| {
        CliError::usage(format!(
            "run {run} has no checkpoint root: there is nothing to go back to"
        ))
    })?;
    let (mut after, _) = outcome::after(state.clone(), spec, state.term.next(), &[wish.asked()]);
    let depth = needed_depth(&after, spec);
    let mut found = scan(&place, &after.disk.own, to, depth);
    // A step that the run is not known to have written is read as a whole.
    after.disk.scan = Some(found.clone());
    let deeper = needed_depth(&after, spec);
    if deeper > depth {
        found = scan(&place, &after.disk.own, to, deeper);
    }
    let scan = found;
    if let Some(why) = &scan.unreadable {
        return Err(CliError::environment(format!("{}: {why}", place.root)));
    }
    after.outcome = None;
    match choose(&after, spec, &scan) {
        ResumeChoice::Start {
            from,
            edits,
            lost,
            reasons,
            ..
        } if from.step() == to => Ok(RollbackView::of(&run.0, &from, &edits, &lost, reasons)),
        ResumeChoice::Start { reasons, .. } => Err(no_way(to, reasons.first().map_or("", |r| r.text.as_str()))),
        ResumeChoice::Finished { .. } => Err(no_way(to, "it is the last planned step: nothing would be trained")),
        ResumeChoice::Unreadable { reasons } => Err(CliError::environment(
            reasons.first().map_or_else(String::new, |r| r.text.clone()),
        )),
        ResumeChoice::Refuse { reasons, .. } => {
            let why = reasons.first().map_or("", |r| r.text.as_str());
            Err(refused(&scan, &place, to, why))
        }
    }
}

/// Checks the structure of all steps, and the requested one at the depth of a start.
fn scan(place: &RunCheckpoints, own: &BTreeMap<String, OwnStep>, to: Step, depth: Depth) -> ScanReport {
    let mut meter = ByteMeter::new();
    let mut tell = |read| {
        meter.tell(read, None);
        true
    };
    let scan = match place.store {
        Some(_) => look_at_run(place, depth, &mut tell),
        None => {
            let mut prover = RootProver::new(&place.root, place.trainer, &place.expect).knowing(own);
            let mut scan = prover.scan(Depth::Structure, u32::MAX, &mut tell);
            for c in scan
                .steps
                .iter_mut()
                .filter(|c| c.step == to && c.verdict == Verdict::Whole)
            {
                *c = prover.prove(&c.id, depth, &mut tell);
            }
            scan
        }
    };
    meter.end();
    scan
}

fn no_way(to: Step, why: &str) -> CliError {
    CliError::usage(format!("step {to}: {why}"))
}

/// The error that lists the proven steps.
fn refused(scan: &ScanReport, place: &RunCheckpoints, to: Step, why: &str) -> CliError {
    let steps = scan.resumable().into_iter().filter(|step| *step != to);
    let whole: Vec<String> = steps.map(|step| step.to_string()).collect();
    let hint = match whole.is_empty() {
        true => "no other step is whole: put a whole copy of a step in its place, or start at step 0 with `supervise run --fresh`".to_owned(),
        false => format!("these steps are whole: {}", whole.join(", ")),
    };
    let error = match scan.steps.iter().find(|c| c.step == to) {
        None => CliError::usage(format!("there is no step {to} in {}", place.root)),
        Some(_) => CliError::new(ErrorKind::NoProof, why),
    };
    error.hint(hint).hint("`supervise checkpoints` shows all of them")
}
