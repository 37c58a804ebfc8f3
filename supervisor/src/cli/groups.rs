//! The commands. Each is declared once: with its group, help, examples, exit codes and function.

use super::{
    advise, checkpoints, compare, completions, config, convert, demo, diagnose, doctor, explain, forget, gc, history,
    hold, install, journal, logs, man, merge, metrics, migrate, notify, plan, policy, reshard, resume, rollback, run,
    save, sbatch, serve, simulate, status, stop, top, trace, trainer, verify,
};
use crate::error::CliError;
use crate::exit::{self, SuperviseExitCode};
use clap::{ArgMatches, Subcommand};

/// The groups in the order of `supervise --help`.
pub(super) const GROUPS: [CommandGroup; 5] = [
    CommandGroup::of::<RunCommand>(),
    CommandGroup::of::<DiagnosisCommand>(),
    CommandGroup::of::<ModelCommand>(),
    CommandGroup::of::<MonitoringCommand>(),
    CommandGroup::of::<SetupCommand>(),
];

/// The commands under one heading, without their type.
pub(super) struct CommandGroup {
    pub(super) heading: &'static str,
    /// Adds the commands to a parser.
    pub(super) add: fn(clap::Command) -> clap::Command,
    pub(super) has: fn(&str) -> bool,
    /// Runs the command that was parsed.
    pub(super) run: fn(&ArgMatches) -> Result<Result<u8, CliError>, clap::Error>,
}

impl CommandGroup {
    const fn of<C: GroupedCommand>() -> Self {
        Self {
            heading: C::HEADING,
            add: C::augment_subcommands,
            has: C::has_subcommand,
            run: |matches| C::from_arg_matches(matches).map(C::run),
        }
    }
}

trait GroupedCommand: Subcommand {
    const HEADING: &'static str;

    /// Returns the exit code.
    fn run(self) -> Result<u8, CliError>;
}

const READS: [SuperviseExitCode; 3] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
];
const READS_SETTINGS: [SuperviseExitCode; 4] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Config,
];

/// The end of a command's help.
fn more(command: &str, examples: &str, exits: &[SuperviseExitCode]) -> String {
    format!("Examples:\n{examples}\n{}", exit::table(command, exits))
}

// A doc comment of an enum would become the description of the program.
#[derive(Debug, Subcommand)]
enum RunCommand {
    /// Start or resume a run and keep it running until it finishes
    #[command(after_long_help = more("run", run::EXAMPLES, &run::EXITS))]
    Run(run::Args),
    /// Show what `run` would launch, from which step, and why
    ///
    /// Changes nothing.
    #[command(after_long_help = more("plan", plan::EXAMPLES, &plan::EXITS))]
    Plan(plan::Args),
    /// Show the state of runs
    #[command(after_long_help = more("status", status::EXAMPLES, &READS))]
    Status(status::Args),
    /// Watch runs live: state, timeline, output
    #[command(after_long_help = more("top", top::EXAMPLES, &top::EXITS))]
    Top(top::Args),
    /// Stop a run and wait until it has ended
    #[command(after_long_help = more("stop", stop::EXAMPLES, &READS))]
    Stop(stop::Args),
    /// Ask the trainer to save at the end of this step
    ///
    /// Training continues, and its own interval does not change. Only for trainers that take requests: `plan` says whether this one
    /// does. If a request is under way, another one adds nothing to it.
    #[command(after_long_help = more("save", save::EXAMPLES, &save::EXITS))]
    Save(save::Args),
    /// Pause recovery while you debug a run
    ///
    /// While a run is held, nothing is launched and no hang or failed worker ends it, so that an attached debugger is not
    /// disturbed. A trainer that starts at step 0, goes back or has non-finite weights is still ended, so that no good step is lost.
    /// `stop` and the scheduler's deadline also still end the run. The hold lasts until `unhold`, even if the supervisor restarts.
    #[command(after_long_help = more("hold", hold::HOLD_EXAMPLES, &READS))]
    Hold(hold::HoldArgs),
    /// Release a held run
    #[command(after_long_help = more("unhold", hold::UNHOLD_EXAMPLES, &READS))]
    Unhold(hold::UnholdArgs),
    /// Clear a final failure so that the next start resumes the run
    ///
    /// For a run that ended with 3, 4 or 6, once the cause is fixed: its next start, by systemd, by Slurm or with `supervise run`,
    /// resumes it. The same as `run --again` without the start: all retries are available again, and steps that failed to load are
    /// tried again. A hold that was not released ends too.
    #[command(after_long_help = more("resume", resume::EXAMPLES, &resume::EXITS))]
    Resume(resume::Args),
    /// Make a stopped run resume from an earlier proven step
    ///
    /// The request is written into the run's journal, and the next start obeys it once: it resumes from exactly that step, and
    /// newer steps are moved to `aside/` first. Until then nothing is moved, and nothing is deleted. Another `rollback` replaces the
    /// request; `run --from` and `run --fresh` take precedence.
    #[command(after_long_help = more("rollback", rollback::EXAMPLES, &rollback::EXITS))]
    Rollback(rollback::Args),
    /// List and delete leftovers of a run: torn steps, old attempts
    ///
    /// Asks for confirmation before anything is deleted.
    #[command(after_long_help = more("gc", gc::EXAMPLES, &gc::EXITS))]
    Gc(gc::Args),
    /// Take runs off the list of `status`
    ///
    /// Only the list changes: journal, checkpoints and logs stay, and a run that is started again is listed again.
    #[command(after_long_help = more("forget", forget::EXAMPLES, &forget::EXITS))]
    Forget(forget::Args),
}

impl GroupedCommand for RunCommand {
    const HEADING: &'static str = "Runs";

    fn run(self) -> Result<u8, CliError> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Plan(args) => plan::run(args),
            Self::Status(args) => status::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Stop(args) => stop::run(&args),
            Self::Save(args) => save::run(&args),
            Self::Hold(args) => hold::hold(&args),
            Self::Unhold(args) => hold::unhold(&args),
            Self::Resume(args) => resume::run(&args),
            Self::Rollback(args) => rollback::run(&args),
            Self::Gc(args) => gc::run(&args),
            Self::Forget(args) => forget::run(&args),
        }
    }
}

#[derive(Debug, Subcommand)]
enum DiagnosisCommand {
    /// Explain what happened in a run and why attempts ended
    #[command(after_long_help = more("explain", explain::EXAMPLES, &READS))]
    Explain(explain::Args),
    /// Find out why a run failed from its logs
    ///
    /// Works for unsupervised runs too.
    #[command(after_long_help = more("diagnose", diagnose::EXAMPLES, &diagnose::EXITS))]
    Diagnose(diagnose::Args),
    /// List a run's attempts: steps, duration, cause, time lost
    #[command(after_long_help = more("history", history::EXAMPLES, &READS))]
    History(history::Args),
    /// Say how often the run should save
    ///
    /// From the run's own steps, saves and failures: the interval at which saves and repeated training cost least. Changes nothing.
    #[command(after_long_help = more("advise", advise::EXAMPLES, &READS))]
    Advise(advise::Args),
    /// Simulate a run's recovery: goodput, best save interval
    ///
    /// Plays the decisions that `run` makes in virtual time: training, saves, failures and what they cost. The numbers come from flags,
    /// recorded failures or one of your runs; what is missing is assumed and listed. Starts and changes nothing.
    #[command(after_long_help = more("simulate", simulate::EXAMPLES, &READS))]
    Simulate(Box<simulate::Args>),
    /// Show the workers' output
    #[command(after_long_help = more("logs", logs::EXAMPLES, &READS))]
    Logs(logs::Args),
    /// Print a run's journal: facts, decisions and their reasons
    #[command(after_long_help = more("journal", journal::EXAMPLES, &READS))]
    Journal(journal::Args),
    /// Print a run as trace events for Perfetto and Chrome
    ///
    /// The trace shows attempts, phases, waits, faults and proven steps.
    #[command(after_long_help = more("trace", trace::EXAMPLES, &READS))]
    Trace(trace::Args),
}

impl GroupedCommand for DiagnosisCommand {
    const HEADING: &'static str = "Diagnosis";

    fn run(self) -> Result<u8, CliError> {
        match self {
            Self::Explain(args) => explain::run(&args),
            Self::Diagnose(args) => diagnose::run(&args),
            Self::History(args) => history::run(&args),
            Self::Advise(args) => advise::run(&args),
            Self::Simulate(args) => simulate::run(&args),
            Self::Logs(args) => logs::run(&args),
            Self::Journal(args) => journal::run(&args),
            Self::Trace(args) => trace::run(&args),
        }
    }
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// List every step of a checkpoint root with its verdict
    #[command(after_long_help = more("checkpoints", checkpoints::EXAMPLES, &READS))]
    Checkpoints(checkpoints::Args),
    /// Check checkpoints or single files
    ///
    /// The exit code is the worst verdict.
    #[command(after_long_help = more("verify", verify::EXAMPLES, &verify::EXITS))]
    Verify(verify::Args),
    /// Reshard a verl FSDP step for a different number of ranks
    #[command(after_long_help = more("reshard", reshard::EXAMPLES, &reshard::EXITS))]
    Reshard(reshard::Args),
    /// Convert verl Megatron checkpoints to the layout of verl 0.9
    ///
    /// Converts checkpoints of verl 0.4.1 to 0.8, which keep a role in one archive, in place.
    #[command(after_long_help = more("migrate", migrate::EXAMPLES, &migrate::EXITS))]
    Migrate(migrate::Args),
    /// Merge a proven step into a Hugging Face model
    #[command(after_long_help = more("merge", merge::EXAMPLES, &merge::EXITS))]
    Merge(merge::Args),
    /// Convert a Hugging Face model to a Megatron checkpoint
    ///
    /// Megatron can load the checkpoint with any parallel sizes.
    #[command(after_long_help = more("convert", convert::EXAMPLES, &convert::EXITS))]
    Convert(convert::Args),
    /// Compare two models number by number
    ///
    /// Each model can be a step, a merged model or a file of weights.
    #[command(after_long_help = more("compare", compare::EXAMPLES, &compare::EXITS))]
    Compare(compare::Args),
}

impl GroupedCommand for ModelCommand {
    const HEADING: &'static str = "Checkpoints and models";

    fn run(self) -> Result<u8, CliError> {
        match self {
            Self::Checkpoints(args) => checkpoints::run(&args),
            Self::Verify(args) => verify::run(&args),
            Self::Reshard(args) => reshard::run(&args),
            Self::Migrate(args) => migrate::run(&args),
            Self::Merge(args) => merge::run(&args),
            Self::Convert(args) => convert::run(&args),
            Self::Compare(args) => compare::run(&args),
        }
    }
}

#[derive(Debug, Subcommand)]
enum MonitoringCommand {
    /// Serve a dashboard of runs, and metrics for Prometheus
    ///
    /// The pages show the state, history and cost of each run. They are read-only unless --allow-actions is given.
    #[command(after_long_help = more("serve", serve::EXAMPLES, &READS))]
    Serve(serve::Args),
    /// Print metrics of runs for Prometheus
    ///
    /// Can also write them into a file for the node exporter.
    #[command(after_long_help = more("metrics", metrics::EXAMPLES, &READS))]
    Metrics(metrics::Args),
    /// Send a test notification (`on_event`)
    #[command(after_long_help = more("notify", notify::EXAMPLES, &READS_SETTINGS))]
    Notify(notify::Args),
}

impl GroupedCommand for MonitoringCommand {
    const HEADING: &'static str = "Monitoring";

    fn run(self) -> Result<u8, CliError> {
        match self {
            Self::Serve(args) => serve::run(&args),
            Self::Metrics(args) => metrics::run(&args),
            Self::Notify(args) => notify::run(args),
        }
    }
}

#[derive(Debug, Subcommand)]
enum SetupCommand {
    /// Break a small training run four times and watch it recover
    ///
    /// Trains a small network twice in four processes, without a GPU or Python: once undisturbed, and once while ranks are killed, a
    /// save is torn, an exception is raised and a saved bit flips. Fails unless both end with the same weights. Takes about ten
    /// seconds, and deletes what it wrote.
    #[command(after_long_help = more("demo", demo::EXAMPLES, &demo::EXITS))]
    Demo(demo::Args),
    /// List, show and check trainers that a TOML file declares
    #[command(after_long_help = more("trainer", trainer::EXAMPLES, &trainer::EXITS))]
    Trainer(trainer::Args),
    /// Check this machine for everything a run needs
    #[command(after_long_help = more("doctor", doctor::EXAMPLES, &READS_SETTINGS))]
    Doctor(doctor::Args),
    /// Show settings and where each comes from
    #[command(after_long_help = more("config", config::EXAMPLES, &READS_SETTINGS))]
    Config(config::Args),
    /// Show the recovery policy for each failure class
    #[command(after_long_help = more("policy", policy::EXAMPLES, &READS_SETTINGS))]
    Policy(policy::Args),
    /// Write a systemd unit for a run
    ///
    /// The service starts the run at boot, restarts it, and takes over its workers if the supervisor died.
    #[command(after_long_help = more("install", install::EXAMPLES, &READS_SETTINGS))]
    Install(install::Args),
    /// Print, write or submit a Slurm batch script for a run
    #[command(after_long_help = more("sbatch", sbatch::EXAMPLES, &READS_SETTINGS))]
    Sbatch(sbatch::Args),
    /// Print shell completions
    ///
    /// The script asks `supervise` itself, so that runs, steps and settings are completed too.
    #[command(after_long_help = more("completions", completions::EXAMPLES, &READS))]
    Completions(completions::Args),
    /// Print the man page, or write all man pages into a directory
    #[command(after_long_help = more("man", man::EXAMPLES, &READS))]
    Man(man::Args),
}

impl GroupedCommand for SetupCommand {
    const HEADING: &'static str = "Setup";

    fn run(self) -> Result<u8, CliError> {
        match self {
            Self::Demo(args) => demo::run(&args),
            Self::Trainer(args) => trainer::run(&args),
            Self::Doctor(args) => doctor::run(args),
            Self::Config(args) => config::run(args),
            Self::Policy(args) => policy::run(args),
            Self::Install(args) => install::run(args),
            Self::Sbatch(args) => sbatch::run(args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}
