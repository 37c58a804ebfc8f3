//! `supervise rollback`: a person sends a run back to a step.

use super::stop::{Lease, jobs, outcome};
use super::target::{self, Seen};
use crate::environment::{self, wall};
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::printer::Meter;
use crate::render::rollback::RollbackView;
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::decide::decide;
use supervise_core::event::{Event, EventKind, Request, ScanReport};
use supervise_core::id::{Seq, Step, Term, Tick};
use supervise_core::journal::encode_all;
use supervise_core::resume::{Choice, choose, needed_depth};
use supervise_core::spec::RunSpec;
use supervise_core::state::State;
use supervise_host::io_worker::{Prover, RunCheckpoints, look_at_run};
use supervise_trainers::adapter;

pub(super) const EXAMPLES: &str = "  supervise rollback ppo.yaml --to 120
  supervise rollback ppo.yaml --to 120 --dry-run --json | jq .aside
";

pub(super) const EXITS: [Exit; 6] = [
    Exit::Finished,
    Exit::NoProof,
    Exit::LeaseHeld,
    Exit::Usage,
    Exit::Environment,
    Exit::Journal,
];

/// The run must be stopped. The wish is written into its journal and obeyed by its next start, once: it resumes from exactly that
/// step, and newer ones go to `aside/` first. Nothing is deleted or moved before; another `rollback` replaces the wish, and
/// `run --from` and `run --fresh` come before it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// The step; it is proven before anything is promised
    #[arg(long, value_name = "N")]
    to: u64,
    /// Say what the next start would do, and leave the journal as it is
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Asked for on the page of the run of this identity (set by `serve`)
    #[arg(long, value_name = "IDENTITY", hide = true)]
    page_of: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
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
    let wish = Wish { by, to: Step(args.to) };
    check_idle(&seen)?;
    let view = promise(&seen, &wish)?;
    if !args.dry_run {
        write_down(&seen, &wish)?;
    }
    match args.json {
        true => super::print_json(&view.json(args.dry_run))?,
        false => super::print(&view.text(args.dry_run))?,
    }
    Ok(Exit::Finished.code())
}

/// A step to go back to, and the asker.
struct Wish {
    by: String,
    to: Step,
}

/// A run that still trains would save above the step.
fn check_idle(seen: &Seen) -> Result<(), CliError> {
    let run = &seen.run;
    if let Some(problem) = &seen.problem {
        return Err(CliError::environment(problem.clone()));
    }
    if let Some(e) = seen.unreachable("stop") {
        return Err(e);
    }
    let lives = seen.alive.supervisor.alive || seen.alive.guard.alive || seen.left_behind().is_some();
    if lives || jobs::any(seen)? {
        return Err(
            CliError::lease_held(format!("run {run} is at work: it is sent back when it has ended"))
                .hint(format!("`supervise stop {run}` ends it first")),
        );
    }
    let was_seen_to_end = seen.state.as_ref().is_none_or(|s| s.live().is_none());
    if !was_seen_to_end {
        return Err(
            CliError::lease_held(format!("the last attempt of run {run} was not seen to end"))
                .hint(format!("`supervise stop {run}` makes sure of it first")),
        );
    }
    Ok(())
}

/// The next start's doing, by the same choice that it makes.
fn promise(seen: &Seen, wish: &Wish) -> Result<RollbackView, CliError> {
    let to = wish.to;
    let run = &seen.run;
    let (Some(state), Some(spec)) = (&seen.state, &seen.spec) else {
        return Err(CliError::environment(format!(
            "run {run}: its journal or its specification cannot be read"
        )));
    };
    // Flags of the command line that the last term was started with.
    let mut spec = spec.clone();
    (spec.policy.from, spec.policy.fresh, spec.policy.allow_fresh) = (None, false, false);
    let spec = &spec;
    let place = RunCheckpoints::of(spec).ok_or_else(|| {
        CliError::usage(format!(
            "run {run} has no checkpoint root: there is nothing to go back to"
        ))
    })?;
    let (mut after, _) = wished(state.clone(), spec, state.term.next(), wish);
    let depth = needed_depth(&after, spec);
    let scan = scan(&place, to, depth);
    if let Some(why) = &scan.unreadable {
        return Err(CliError::environment(format!("{}: {why}", place.root)));
    }
    after.outcome = None;
    match choose(&after, spec, &scan) {
        Choice::Start {
            from,
            edits,
            lost,
            reasons,
            ..
        } if from.step() == to => Ok(RollbackView::of(&run.0, &from, &edits, &lost, reasons)),
        Choice::Start { reasons, .. } => Err(no_way(to, reasons.first().map_or("", |r| r.text.as_str()))),
        Choice::Finished { .. } => Err(no_way(to, "it is the last planned step: nothing would be trained")),
        Choice::Unreadable { reasons } => Err(CliError::environment(
            reasons.first().map_or_else(String::new, |r| r.text.clone()),
        )),
        Choice::Refuse { reasons, .. } => {
            let why = reasons.first().map_or("", |r| r.text.as_str());
            Err(refused(&scan, &place, to, why))
        }
    }
}

/// All steps by their structure, and the one that is asked for as deeply as a start would prove it.
fn scan(place: &RunCheckpoints, to: Step, depth: Depth) -> ScanReport {
    let mut meter = Meter::new();
    let mut tell = |read| {
        meter.tell(read, None);
        true
    };
    let scan = match place.store {
        Some(_) => look_at_run(place, depth, &mut tell),
        None => {
            let mut prover = Prover::new(&place.root, adapter(place.trainer), &place.expect);
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

/// Names the steps that are proven.
fn refused(scan: &ScanReport, place: &RunCheckpoints, to: Step, why: &str) -> CliError {
    let is_whole = |c: &&CheckpointSummary| c.verdict == Verdict::Whole && !c.husk && c.step != to;
    let mut whole: Vec<String> = scan.steps.iter().filter(is_whole).map(|c| c.step.to_string()).collect();
    whole.dedup();
    let hint = match whole.is_empty() {
        true => "no other step is whole".to_owned(),
        false => format!("whole are: {}", whole.join(", ")),
    };
    let error = match scan.steps.iter().find(|c| c.step == to) {
        None => CliError::usage(format!("there is no step {to} in {}", place.root)),
        Some(_) => CliError::new(ErrorKind::NoProof, why),
    };
    error.hint(hint).hint("`supervise checkpoints` shows all of them")
}

/// The wish as a term of its own: nobody else can begin one meanwhile.
fn write_down(seen: &Seen, wish: &Wish) -> Result<(), CliError> {
    let mut lease = Lease::take(seen)?;
    // A start between the look and the lease counts.
    let now = target::look(&seen.run, seen.run_dir.as_deref());
    let term = |seen: &Seen| seen.state.as_ref().map(|s| s.term);
    let done = if term(&now) != term(seen) {
        Err(CliError::lease_held(format!("run {} was started meanwhile", seen.run)))
    } else {
        check_idle(&now).and_then(|()| {
            let state = now.state.clone().unwrap_or_default();
            outcome::append(&now, &mut lease, |spec, term| {
                let (_, lines) = wished(state, spec, term, wish);
                Ok(String::from_utf8_lossy(&lines?).into_owned())
            })
            .map_err(|why| CliError::journal(format!("run {}: the wish cannot be written down: {why}", seen.run)))
        })
    };
    lease.release();
    done
}

/// The state after the wish, and the lines of the journal that say so.
fn wished(mut state: State, spec: &RunSpec, term: Term, wish: &Wish) -> (State, Result<Vec<u8>, serde_json::Error>) {
    let wall = wall();
    let began = outcome::began(&state, term);
    let asked = EventKind::Operator(Request::RollBack {
        by: wish.by.clone(),
        to: wish.to,
    });
    let mut records = Vec::new();
    for kind in [began, asked] {
        let event = Event {
            at: Tick(0),
            wall,
            entropy: 0,
            kind,
        };
        let decided = decide(&state, spec, &event).records;
        decided.iter().for_each(|record| state.apply(record));
        records.extend(decided);
    }
    let lines = encode_all(Seq(1), Tick(0), wall, &records);
    (state, lines)
}
