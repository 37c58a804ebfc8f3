//! `supervise run`: starts or resumes a run.

mod detach;

use super::logs::tee::Tee;
use super::settings_files::SettingsFiles;
use super::{prompt, target};
use crate::driver::{self, RunFlags};
use crate::environment;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::path_access;
use crate::prepare::{self, Learning, PrepareRequest, prepare};
use crate::printer::{self, OutputMode, Printer};
use crate::render;
use crate::run_order::PreparedRun;
use camino::Utf8PathBuf;
use std::io::IsTerminal;
use supervise_core::checkpoint::{Depth, FindingLevel};
use supervise_host::allocation::SlurmAllocation;
use supervise_host::io_worker::{RunCheckpoints, look_at_run};

pub(super) const EXAMPLES: &str = "  supervise run ppo.yaml
  supervise run ppo.yaml --set trainer.save_freq=20 --set supervisor.retries=3
  supervise run -- python3 -m verl.trainer.main_ppo trainer.save_freq=20 …
  supervise run --detach ppo.yaml
  supervise run ppo.yaml --from 120        roll back to step 120
  supervise run -- bash run_grpo.sh        a script: run once to find out which trainer it starts
  supervise run grpo.yaml -- python3 gsm8k_rl.py scheduler.type=local     AReaL: your script and its YAML
  supervise run -- trl sft --config sft.yaml                              Hugging Face's Trainer: TRL, LLaMA-Factory, scripts
  supervise run -- ray job submit -- python3 -m verl.trainer.main_ppo …
  supervise run --set supervisor.trainer=plain -- ./any_program
";

pub(super) const EXITS: [SuperviseExitCode; 15] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Deterministic,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::GaveUp,
    SuperviseExitCode::Stopped,
    SuperviseExitCode::ScriptUnfinished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
    SuperviseExitCode::Journal,
    SuperviseExitCode::OutOfTime,
    SuperviseExitCode::Config,
    SuperviseExitCode::Interrupted,
    SuperviseExitCode::Terminated,
];

/// Options that `run` and `plan` share.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LaunchArgs {
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    pub(super) config: Option<Utf8PathBuf>,
    /// Override a setting: the trainer's, or supervisor.KEY=VALUE
    ///
    /// May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    #[command(flatten)]
    pub(super) settings: SettingsFiles,
    /// Launch once, and only report what would have been done
    #[arg(long)]
    pub(super) observe: bool,
    /// Start at step 0 if no step is proven and none ever was
    #[arg(long, conflicts_with = "fresh")]
    pub(super) allow_fresh: bool,
    /// Start at step 0 and move existing steps aside
    #[arg(long, conflicts_with_all = ["from", "no_recovery"])]
    pub(super) fresh: bool,
    /// Resume from exactly step N and move newer steps aside
    #[arg(long, value_name = "N", conflicts_with = "no_recovery")]
    pub(super) from: Option<u64>,
    /// Leave resuming to the trainer
    #[arg(long)]
    pub(super) no_recovery: bool,
    /// Use a changed declaration of the trainer, even if it judges steps otherwise
    #[arg(long)]
    pub(super) accept: bool,
    /// The command that starts the trainer, instead of the default
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

impl LaunchArgs {
    pub(super) fn request(self) -> PrepareRequest {
        PrepareRequest {
            config: self.config,
            set: self.set,
            command: self.command,
            observe: self.observe,
            allow_fresh: self.allow_fresh,
            fresh: self.fresh,
            from: self.from,
            no_recovery: self.no_recovery,
            accept: self.accept,
            learning: Learning::Known,
            asks_first: false,
            asking: false,
            planned: false,
            quiet: false,
            settings: self.settings.named(),
            acts: false,
            shows_notes: true,
            ends: None,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: LaunchArgs,
    /// Run in the background
    #[arg(long)]
    detach: bool,
    /// Restart a run that stopped for manual attention
    #[arg(long)]
    again: bool,
    /// Move steps aside without asking (--fresh); needed without a terminal
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON object per line
    ///
    /// With --detach: one object that says where the run continues.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Also print the trainer's output
    #[arg(long, conflicts_with_all = ["json", "quiet", "detach"])]
    tee: bool,
    /// Print only the final summary
    #[arg(long, short)]
    quiet: bool,
    /// Leave the terminal's session (set by --detach)
    #[arg(long, hide = true)]
    own_session: bool,
    /// Read from standard input what a script starts (set by --detach)
    #[arg(long, hide = true)]
    given: bool,
}

impl Args {
    /// The same command with --fresh and --yes.
    fn again_with_yes(&self) -> Vec<String> {
        let flags = [
            (self.detach, "--detach"),
            (self.again, "--again"),
            (self.json, "--json"),
            (self.tee, "--tee"),
            (self.quiet, "--quiet"),
            (self.source.observe, "--observe"),
        ];
        let mut command = vec!["run", "--fresh", "--yes"];
        command.extend(flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)));
        self.source.clone().request().again(&command, &[])
    }
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let output = match (args.json, args.quiet) {
        (true, _) => OutputMode::Json,
        (_, true) => OutputMode::Quiet,
        _ => OutputMode::Text,
    };
    if args.own_session {
        supervise_host::system::leave_session();
    }
    let allocation = match args.detach {
        true => None,
        false => SlurmAllocation::of_this_process(environment::own()),
    };
    let learning = if args.given { Learning::Given } else { Learning::Start };
    let again = args.again_with_yes();
    let prepared = prepare(PrepareRequest {
        learning,
        // With --detach, the parent has asked already.
        asking: !args.own_session,
        acts: true,
        quiet: args.quiet || args.json,
        ends: allocation.as_ref().and_then(|job| job.ends),
        ..args.source.request()
    })?;
    if let Some(root) = &prepared.order.spec.root {
        prepare::probe(root)?;
    }
    prompt::check_from(&prepared)?;
    prompt::check_taken(&prepared.order.spec, target::of_prepared)?;
    prompt::check_fresh(&prepared, target::of_prepared)?;
    prepare::check_importable(&prepared)?;
    // With --detach, the parent has asked already.
    if prepared.order.spec.policy.start.fresh && !args.yes && !args.own_session {
        confirm_fresh(&prepared, again)?;
    }
    path_access::rest();
    if args.detach {
        return detach::detach(&prepared, args.json);
    }
    let mut printer = Printer::new(output, args.tee);
    announce(&mut printer, &prepared);
    let tee = args.tee.then(|| tee(&prepared)).transpose()?;
    let flags = RunFlags { again: args.again };
    let code = driver::run(prepared.order, printer, flags, allocation.clone());
    if let Some(tee) = tee {
        tee.end();
    }
    if let (Ok(code), Some(job)) = (&code, &allocation)
        && *code == SuperviseExitCode::OutOfTime.code()
    {
        give_back(job);
    }
    code
}

/// Requeues the job as the last act, after the lease was released: Slurm then sends SIGTERM.
fn give_back(job: &SlurmAllocation) {
    let said = match job.requeue() {
        Ok(lost) if lost.is_empty() => format!("job {} is requeued", job.job),
        Ok(lost) => format!("job {} is requeued and will start without {}", job.job, lost.join(", ")),
        Err(why) => format!(
            "job {} is not requeued: {why}; if the site sets RequeueExit={}, Slurm requeues it, else submit it again",
            job.job,
            SuperviseExitCode::OutOfTime.code()
        ),
    };
    printer::last_err(&format!("{said}\n"));
}

/// Shows the trainer's output between our own lines.
fn tee(p: &PreparedRun) -> Result<Tee, CliError> {
    let spec = &p.order.spec;
    let seen = target::of_prepared(spec)?;
    let last = seen.state.as_ref().and_then(|s| s.attempt.as_ref());
    // Workers without a supervisor are taken over and continue to print.
    let after = last.map_or(0, |a| a.no.0.saturating_sub(u32::from(seen.alive.guard.alive)));
    Tee::start(&spec.run, spec.run_dir.join("attempts"), after)
        .map_err(|e| CliError::environment(format!("showing the trainer's output (--tee): {e}")))
}

/// A fresh start moves aside everything from which the run could resume, so it is confirmed first.
fn confirm_fresh(p: &PreparedRun, again: Vec<String>) -> Result<(), CliError> {
    let seen = target::of_prepared(&p.order.spec)?;
    let place = RunCheckpoints::of(&seen.spec_as_seen_for(&p.order.spec));
    // A second supervisor is refused anyway.
    let Some(place) = place.filter(|_| !seen.alive.supervisor.alive) else {
        return Ok(());
    };
    let scan = look_at_run(&place, Depth::Structure, &mut |_| true);
    let Some(newest) = scan.steps.first() else {
        return Ok(());
    };
    let what = format!(
        "--fresh moves {} in {} aside (newest: {}, {}) and starts at step 0; nothing is deleted",
        render::count(scan.steps.len() as u64, "step"),
        place.root,
        newest.id,
        newest.verdict
    );
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(CliError::usage(format!(
            "nothing was started: {what}; cannot ask for confirmation: not a terminal"
        ))
        .hint(format!("to start over: {}", render::proposed(&again)))
        .hint("without --fresh, the run resumes from its newest proven step"));
    }
    match prompt::confirm(&format!("{what}. Continue? [y/N] "))? {
        true => Ok(()),
        false => Err(CliError::usage(
            "nothing was started: --fresh was not confirmed (use --yes to skip the question)",
        )),
    }
}

/// Prints the name of this run, and what the user should know before it runs for days.
fn announce(printer: &mut Printer, p: &PreparedRun) {
    let place = p.order.spec.root.as_ref().unwrap_or(&p.order.spec.run_dir);
    printer.note(&format!(
        "run {} ({}) in {place}; the trainer's output: {}/attempts (`--tee` shows it here)",
        p.order.spec.run, p.order.spec.trainer, p.order.spec.run_dir
    ));
    for note in &p.notes {
        printer.note(note);
    }
    for f in p.findings.iter().filter(|f| f.level > FindingLevel::Note) {
        printer.note(&f.detail);
    }
}
