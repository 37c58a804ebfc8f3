//! `supervise gc`: lists the leftovers of a run, and deletes them after confirmation.

use super::prompt;
use super::stop::{StopLease, outcome};
use super::target::{self, RunInfo};
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;

use crate::printer::{self, ByteMeter};
use crate::render::gc::{GcSelection, GcView};
use camino::{Utf8Path, Utf8PathBuf};
use std::io::IsTerminal;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_core::event::{Event, EventKind};
use supervise_core::id::{Seq, Tick};
use supervise_core::journal::encode;
use supervise_core::journal::record::JournalRecord;
use supervise_host::io_worker::{IoAnswer, IoQuestion, Leftover, RunCheckpoints, lease_dir, look_at_run};

pub(super) const EXAMPLES: &str = "  supervise gc ppo.yaml --dry-run
  supervise gc ppo.yaml --keep-attempts 3
  supervise gc /ckpt/my-run --all --yes
";

/// Maximum number of deleted paths in the journal.
const TOLD: usize = 20;

pub(super) const EXITS: [SuperviseExitCode; 5] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Include steps that were whole, those of other runs, and those from before a fresh start
    #[arg(long)]
    all: bool,
    /// Keep the output of this many of the newest attempts
    #[arg(long, value_name = "N", default_value_t = 10)]
    keep_attempts: usize,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Print JSON; deletes only with --yes
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let run_dir = seen.run_dir()?.to_owned();
    let gc = Gc {
        args,
        store: store(&seen, &run_dir)?,
        run_dir,
        seen,
    };
    let acts = !args.dry_run;
    if acts && !args.yes && (args.json || !std::io::stdin().is_terminal()) {
        return Err(CliError::usage("cannot ask for confirmation: not a terminal")
            .hint("use --yes to delete, or --dry-run to only list"));
    }
    if acts {
        gc.seen.may_act()?;
        gc.check_idle()?;
    }
    let mut view = gc.view()?;
    if !args.json {
        super::print(&view.text())?;
    }
    if acts && !view.chosen().is_empty() && (args.yes || prompt::confirm(&view.question())?) {
        gc.delete(&mut view)?;
        view.deleted = true;
        if !args.json {
            super::print(&format!("{}\n", view.done()))?;
        }
    }
    if args.json {
        super::print_json(&view)?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

struct Gc<'a> {
    args: &'a Args,
    seen: RunInfo,
    run_dir: Utf8PathBuf,
    store: Utf8PathBuf,
}

impl Gc<'_> {
    fn check_idle(&self) -> Result<(), CliError> {
        if let Some(e) = self.seen.unreadable() {
            return Err(e);
        }
        let alive = &self.seen.alive;
        if alive.supervisor.alive || alive.guard.alive || self.seen.left_behind().is_some() {
            return Err(CliError::lease_held(format!("run {} is at work", self.seen.run))
                .hint("`supervise stop` ends it; --dry-run shows what is left over meanwhile"));
        }
        Ok(())
    }

    fn view(&self) -> Result<GcView, CliError> {
        let choice = GcSelection {
            all: self.args.all,
            keep_attempts: self.args.keep_attempts,
            has_whole: !self.args.all || has_whole(&self.seen)?,
        };
        let found = leftovers(&self.run_dir, &self.store)?;
        Ok(GcView::of(&self.seen.run.0, &self.run_dir, &self.store, found, &choice))
    }

    /// Deletes what was confirmed, as far as it would still be selected. Takes the lease only now, so that a start need not wait
    /// for the operator's answer.
    fn delete(&self, agreed: &mut GcView) -> Result<(), CliError> {
        let mut lease = StopLease::take(&self.seen)?;
        if !lease.is_held() {
            return Err(CliError::environment(format!(
                "{}: the file system does not answer",
                self.run_dir
            )));
        }
        let done = self.view().and_then(|now| {
            let (mut places, still) = (agreed.chosen(), now.chosen());
            places.retain(|place| still.contains(place));
            answer(IoQuestion::Delete {
                run_dir: self.run_dir.clone(),
                store: self.store.clone(),
                places: places.clone(),
            })?;
            Ok(places)
        });
        if let Ok(places) = &done {
            agreed.narrow(places);
            if let Err(why) = self.write_down(&mut lease, places, agreed.bytes) {
                printer::note(&format!("what was deleted is not in the run's journal: {why}"));
            }
        }
        lease.release();
        done.map(|_| ())
    }

    /// A term without a record would look as if its journal was lost.
    fn write_down(&self, lease: &mut StopLease, places: &[Utf8PathBuf], bytes: u64) -> Result<(), String> {
        let (at, wall) = (self.seen.state.as_ref().map_or(Tick(0), |s| s.now), wall());
        let fact = JournalRecord::Fact(Event {
            at,
            wall,
            entropy: 0,
            kind: EventKind::Collected {
                places: places.iter().take(TOLD).cloned().collect(),
                count: places.len() as u64,
                bytes,
            },
        });
        outcome::append(&self.seen, lease, |_, _| encode(Seq(1), at, wall, &fact))
    }
}

/// The directory into which steps are moved aside; terms are stored there too.
fn store(seen: &RunInfo, run_dir: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    let spec = seen.spec.as_ref().ok_or_else(|| {
        CliError::environment(format!(
            "run {}: its specification cannot be read in {run_dir}",
            seen.run
        ))
    })?;
    let lease = lease_dir(Some(spec), run_dir);
    Ok(lease.parent().unwrap_or(run_dir).to_owned())
}

/// Returns true if there is a whole step where the trainer looks; otherwise a step that was moved aside may be the last good one.
fn has_whole(seen: &RunInfo) -> Result<bool, CliError> {
    let Some(place) = seen.spec.as_ref().and_then(RunCheckpoints::of) else {
        return Ok(false);
    };
    let mut meter = ByteMeter::new();
    let scan = look_at_run(&place, Depth::Structure, &mut |read| {
        meter.tell(read, None);
        true
    });
    meter.end();
    match scan.unreadable {
        Some(why) => Err(CliError::environment(format!("{}: {why}", place.root))),
        None => Ok(scan.steps.iter().any(|step| step.verdict == Verdict::Whole)),
    }
}

fn leftovers(run_dir: &Utf8Path, store: &Utf8Path) -> Result<Vec<Leftover>, CliError> {
    let ask = IoQuestion::Leftovers {
        run_dir: run_dir.to_owned(),
        store: store.to_owned(),
    };
    match answer(ask)? {
        IoAnswer::Leftovers(found) => Ok(found),
        _ => Err(CliError::internal("I/O worker: unexpected answer")),
    }
}

fn answer(ask: IoQuestion) -> Result<IoAnswer, CliError> {
    let failed = |e: supervise_host::io_worker::IoWorkerError| CliError::environment(e.to_string());
    let mut io_worker = target::io_worker().map_err(failed)?;
    io_worker.ask(ask, target::DELETING).map_err(failed)
}
