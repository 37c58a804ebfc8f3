//! The settings. `config/defaults.yaml`, the schema, `docs/settings.md`, the checks and the structs come from here (`make bless`).

use super::Explained;
use super::schema::{SettingKind, SettingRow, SettingType, choices, settings};
use super::worded::{GpuChoice, HardLimitChoice};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

settings! {
    /// The settings of one run.
    struct Settings {
        /// The trainer framework.
        trainer: String = "auto";
        /// The trainer's version, in quotes (`"0.9.1"`): its defaults, keys and layouts differ between releases. `null` to ask the
        /// interpreter that the command starts; needed where that is not on this machine (a container, a cluster) or hidden in a script.
        trainer_version: Option<String> = "null", SettingKind::OptionalVersion;
        /// The command that starts the trainer: `null` for the trainer's own, a list of words, or one string split like a shell would.
        command: Option<Vec<String>> = "null";
        /// Directory of the journal and the attempts; `null` for the default directory in the checkpoint root.
        run_dir: Option<String> = "null";
        /// A TOML file that declares the trainer, if it is none of those that are built in (`docs/trainers/declared.md`).
        trainer_file: Option<String> = "null", SettingKind::OptionalText;
        /// The checkpoint root; `null` to take it from the trainer's configuration.
        root: Option<String> = "null";
        /// Restarts without progress before giving up. A new highest proven step refills the budget.
        retries: u32 = 5;
        /// How often a failure that repeats at the same step may be answered with an earlier checkpoint.
        step_backs: u32 = 2;
        /// Answers to failures that differ from the built-in ones, by class (`mem.cuda_oom`) or family (`mem.*`). `supervise policy show`
        /// prints every rule.
        policy: BTreeMap<String, PolicyChoice> = "{}";
        /// Output lines that identify a failure, in addition to the built-in ones: a list of `{pattern: REGEX, class: CLASS}`. The class
        /// is a built-in one, or one of your own (`user.licence`). A class of your own may have an `action`, a word of `policy` (without
        /// one: `relaunch_later`), an `advice`, `costs_retry: false` and `blames_checkpoint: false`. The pattern is tried on `examples`
        /// and `lookalikes` before anything starts.
        rules: Vec<UserRule> = "[]";
        /// The steps between the resume point and the failure are trained twice: compare the metrics printed for them.
        resume_check: ResumeCheckChoice = "report";
        /// Waiting before a new attempt.
        backoff: Backoff;
        /// How long things may take once they have to stop.
        grace: Grace;
        /// How the workers are started.
        gang: Gang;
        /// While one attempt trains, start the next attempt's interpreters, which import what this one imported, and wait. Only if the
        /// command is `python …` itself (ranks, one process or a driver). Waiting interpreters take as much memory as their imports.
        standby: StandbyChoice = "off";
        /// Memory that the waiting interpreters of one attempt may hold together; those that would need more exit, and none is started
        /// after them. `null`: the larger of 3 GiB and a twentieth of the memory (of the control group, if it has a limit).
        standby_memory: Option<u64> = "null", SettingKind::OptionalSize;
        /// Python interpreters started here report more about how they end: a hang shows the line where each rank is, and an exception
        /// that ends a worker is known even if its output does not show it. The settings of a trainer that are only in a script's code
        /// are found too, and a restart passes it the proven step if that is known.
        interpreter: InterpreterChoice = "auto";
        /// Proving a checkpoint before a resume.
        proof: Proof;
        /// State that may be lost at a resume if no step of the run has everything. An older step that has everything always comes first.
        degraded_resume: DegradedResume = "data_order";
        /// `true`: resume from a step that another number of ranks saved. It is resharded for this run's ranks (verl's FSDP2) without
        /// changing any value, and the original is moved aside. Otherwise such a step ends the run (exit code 3), which names the command
        /// that reshards it.
        elastic: bool = false;
        /// AReaL keeps one checkpoint and overwrites it in place, so a save that is killed destroys it. Each proven one is copied.
        protect: Protect;
        /// When a run without progress counts as stalled.
        stall: Stall;
        /// Output lines that show a step: a regular expression with one group around its number. `null`: what the trainer prints; for any
        /// other command the common forms (`step 12`, `Step 12/100`, `'step': 12`, `global_step=12`, progress bars).
        progress: Option<String> = "null", SettingKind::Pattern;
        /// The workers' output.
        output: Output;
        /// Killing processes that do not exit.
        kill: Kill;
        /// Old checkpoints.
        retention: Retention;
        /// The lease that keeps two supervisors off one checkpoint root.
        lease: Lease;
        /// Supervisors on other machines may be started on the same checkpoint root. Then a supervisor that could not renew its lease for
        /// `lease.ttl` stops its workers (exit code 5) before another machine may start. If it is paused (^Z, a suspended virtual
        /// machine), its guard stops them; once it resumes, it launches nothing for two minutes, in case another supervisor took over.
        multi_host: bool = false;
        /// Start without a checkpoint if none can be proven and none ever was.
        allow_fresh: bool = false;
        /// Restart after failures. Without it, the supervisor only watches and explains.
        recovery: bool = true;
        /// Longest time to learn what a script (`supervise run -- bash run.sh`) starts: it is run once, up to the trainer's command.
        learn_within: Duration = "10m";
        /// A step of that script that takes longer may be the training itself, of an unknown trainer: it is then stopped and reported. A
        /// step that downloads, installs or waits (curl, git, pip, hf, ray, sleep, …) may take all of `learn_within`.
        learn_step: Duration = "30s";
        /// How often the checkpoint root is scanned.
        scan_interval: Duration = "10s";
        /// Once workers run, ask the trainer's release, beside them and at the lowest priority, to compose the configuration of a
        /// relaunch (Hydra's `--cfg job --resolve`: nothing is trained). An unknown override is then reported immediately, not at the
        /// first failure. Once for each configuration; `supervise plan --rehearse` asks before the start.
        rehearse: bool = true;
        /// Settings and variables that are set for the trainer. `plan` shows each with its reason; what you set yourself is left alone.
        assist: Assist;
        /// The most training that a failure may cost. If the newest proven step gets too old for that, the trainer is asked for a save;
        /// its own interval does not change. `plan` and `status` say whether the promise can be kept. `null`: no promise.
        max_loss: Option<Duration> = "null";
        /// Memory that runs out step by step. It is reported (`on_event`) if it will not last until the save after next.
        memory: Memory;
        /// Notifications when a run needs attention, or ends. Neither the command nor the webhook can delay or fail the run. `supervise
        /// notify --test` tries them.
        on_event: OnEvent;
        /// When the machine will be taken away, in seconds since 1970 (`date +%s`); `null` to ask Slurm inside a Slurm job.
        deadline: Option<u64> = "null";
        /// Environment variables for the trainer, on top of the inherited ones.
        env: BTreeMap<String, String> = "{}";
        else explained: Vec<Explained>;
    }

    /// Waiting before a new attempt.
    struct Backoff {
        /// The first wait.
        initial: Duration = "5s";
        /// Each further attempt without progress waits this much longer.
        factor: f64 = 2.0;
        /// The longest wait.
        max: Duration = "5m";
        /// Random share of the waiting time, 0 to 1, so that many runs do not restart at once.
        jitter: f64 = 0.2, SettingKind::Number { min: 0.0, max: 1.0 };
    }

    /// How long things may take once they have to stop.
    struct Grace {
        /// From asking the workers to stop to killing them.
        stop: Duration = "30s";
        /// For a save in progress.
        save: Duration = "5m";
        /// How long the guard waits for a new supervisor after the old one died.
        orphan: Duration = "120s";
    }

    /// How the workers are started.
    struct Gang {
        /// One command, or one for each worker.
        launcher: LauncherChoice = "auto";
        /// How many workers on each node; `null` to take it from the configuration.
        workers: Option<u32> = "null";
        /// Nodes of a Slurm allocation that the workers are started on; `null` to take it from the configuration.
        nodes: Option<u32> = "null";
        /// Nodes that `supervise sbatch` requests in addition: one replaces a lost node, and the job survives the loss.
        spares: u32 = "0";
        /// Options of `ray start` (CPUs, ports, resources), for each node where Ray is started: `null` for none, a list of words, or one
        /// string.
        ray_start: Option<Vec<String>> = "null";
        /// The workers' devices: `auto` (all devices present), `none`, or a list of device numbers: more than there are workers replace
        /// broken ones.
        gpus: GpuChoice = "auto";
        /// The run has its devices to itself: before each launch they must be present and empty, and their activity helps to find hangs.
        /// `false` if it shares them.
        check_gpus: bool = true;
    }

    /// Proving a checkpoint.
    struct Proof {
        /// How much of it is read.
        depth: ProofDepth = "full";
        /// Without proof, a checkpoint gets only a quick look.
        enabled: bool = true;
        /// Names that a checkpoint may import although neither torch nor numpy needs them: a list of `"module.name"`, `"module.*"` (all
        /// below a module) or `"*"`. The trainer loads with `weights_only=False`, so each such name is imported, and perhaps called, by
        /// every rank. A name that an attempt of this run wrote itself needs no entry.
        trust_globals: Vec<String> = "[]";
        /// `true`: do not reject a checkpoint for names on the danger list (programs, code, files, network) either. Then anyone who can
        /// write into the checkpoint root runs code as you.
        trust_unsafe: bool = false;
        /// `true`: resume from a step that `supervise.saved()` reported even if its files have a format that `supervise` does not read. Then
        /// only the number and size of the files show that it is whole.
        trust_reported: bool = false;
        /// Users whose files a checkpoint may contain, besides root and the user of the run: numeric IDs (`id -u NAME`). Needed if the
        /// trainer runs as another user, for example in a container: otherwise a step of another user is not resumed from.
        trust_owners: Vec<u32> = "[]";
        /// A new checkpoint is read completely while the workers run, at idle priority and at most this many bytes a second.
        background_rate: u64 = "1GiB";
        /// Memory for inspecting checkpoints, in each process. A file that needs more is not judged, and the needed amount is reported
        /// (`verify`: exit code 24).
        memory: u64 = "256MiB";
    }

    /// Protection of a trainer's only checkpoint.
    struct Protect {
        /// Each proven save is copied.
        enabled: bool = true;
        /// Copies to retain (two at least).
        keep: u32 = 2, SettingKind::Whole { min: 2, max: 1000 };
        /// A copy reads at most this many bytes a second. If the file system supports it, the copy shares the blocks instead (reflink).
        rate: u64 = "512MiB";
        /// Free space to leave besides a copy and the next save; otherwise nothing is copied, and that is reported.
        reserve: u64 = "1GiB";
        /// Resuming if the weights are newer than the counters and the position in the data (a save was interrupted between the two).
        accept_ahead: AcceptAhead = "ask";
    }

    /// When a run without progress counts as stalled.
    struct Stall {
        /// Until the first output.
        startup: Duration = "30m";
        /// The limit between steps is this many times the 99.9th percentile of the run's own steps.
        factor: f64 = 3.0;
        /// The limit between steps is at least this. After it, the processes decide: they are idle, they spin, or one is stopped.
        minimum: Duration = "10m";
        /// A save whose files do not grow.
        save: Duration = "30m";
        /// No progress for this long decides alone, whatever the processes do. Four times that in a phase that this run has never seen
        /// end.
        /// - `auto`: the larger of 60 minutes and 20 times the longest time between two steps
        /// - `never`: ranks that spin forever are left alone, unless other signs show a stall
        hard: HardLimitChoice = "auto";
    }

    /// The workers' output.
    struct Output {
        /// Size at which an attempt's file is rotated.
        max_bytes: u64 = "256MiB";
        /// Rotated files kept per worker.
        keep: u32 = 2;
    }

    /// Killing processes that do not exit.
    struct Kill {
        /// The control group of the workers.
        cgroup: CgroupChoice = "auto";
    }

    /// Old checkpoints.
    struct Retention {
        /// Delete proven steps beyond the number the trainer is told to keep.
        prune: bool = true;
        /// Tell the trainer itself to keep this many more, as a backstop.
        raise_by: u32 = 2;
    }

    /// Memory that runs out.
    struct Memory {
        /// Restart right after a proven save, without charging a retry, if the memory would not last until the save after next.
        restart_after_save: RestartChoice = "off";
    }

    /// Notifications of events.
    struct OnEvent {
        /// A command that gets the event as JSON on its standard input, and has 30 s.
        command: Option<Vec<String>> = "null";
        /// An address that the event is posted to, by `curl`: `https://…`. It counts as a secret.
        webhook: Option<String> = "null", SettingKind::OptionalAddress;
        /// The format of the webhook's message.
        shape: WebhookShape = "plain";
        /// The events to report; an empty list: all of them.
        events: Vec<EventChoice> = "[]";
    }

    /// The lease on the checkpoint root.
    struct Lease {
        /// A holder that cannot be seen (another machine, container or boot) loses it after this time of silence; later if its guard may
        /// continue for longer: a quarter of this, `grace.orphan`, `grace.save` and 10 s; with `multi_host` at least 70 s more than this.
        ttl: Duration = "60s";
    }

    /// Settings and variables that are set for the trainer.
    struct Assist {
        /// verl's older trainer (`trainer.use_v1=false`) is told when its machine will be taken away, and saves before that.
        expiry: bool = true;
        /// If `trainer.logger` prints no steps, console and a metrics file are added; each attempt has a metrics file of its own.
        logger: bool = true;
        /// `true`: a relaunch skips the validation before its first step (`trainer.val_before_train=False`).
        skip_validation: bool = false;
        /// `PYTHONUNBUFFERED`, `HYDRA_FULL_ERROR`, `RAY_DEDUP_LOGS`, `VERL_SFT_LOGGING_LEVEL`: errors are printed in full, and
        /// immediately.
        environment: bool = true;
        /// All attempts continue one run of Weights & Biases, or of SwanLab (`WANDB_RUN_ID`, `WANDB_RESUME`, `SWANLAB_RUN_ID`,
        /// `SWANLAB_RESUME`); if you set one variable of a tool, `supervise` sets none for it. Each attempt is a separate MLflow run,
        /// because MLflow assigns the IDs. If you set `MLFLOW_RUN_ID`, it stays; verl's PPO then resumes by its tracker (`auto`), because
        /// MLflow rejects changed parameters.
        wandb: bool = true;
        /// The trainer saves at the end of a step if `supervise` asks for it, where its release allows that; `plan` says whether it does.
        save_requests: bool = true;
    }
}

choices! {
    /// How workers are launched.
    enum LauncherChoice {
        /// detected from the command
        Auto = "auto",
        /// one command that starts its own workers
        Driver = "driver",
        /// one command per worker
        Gang = "gang",
        /// Ray on each node of a Slurm allocation, the command on the first
        Ray = "ray",
    }

    /// How thorough a proof is.
    enum ProofDepth {
        /// sizes, indices and headers
        Structure = "structure",
        /// every byte and checksum
        Full = "full",
    }

    /// Answers to a failure.
    enum PolicyChoice {
        /// another attempt; the same failure three times at one step ends the run
        Relaunch = "relaunch",
        /// the same, after a pause if one is due
        RelaunchLater = "relaunch_later",
        /// another attempt; the second time at one step ends the run
        RelaunchOnce = "relaunch_once",
        /// the run ends
        Stop = "stop",
        /// another attempt from an older checkpoint, within `step_backs`
        StepBack = "step_back",
        /// another attempt after a pause; for `disk.full` as soon as there is room for a save
        Wait = "wait",
    }

    /// What to do if a relaunch prints different metrics than the attempt before it.
    enum ResumeCheckChoice {
        /// report it
        Report = "report",
        /// the run ends with exit code 3
        Stop = "stop",
    }

    /// State that a resumed checkpoint may lack.
    enum DegradedResume {
        /// nothing
        Never = "never",
        /// the order of the data
        DataOrder = "data_order",
        /// everything but the weights: optimizer, learning-rate schedule, random numbers; parallel sizes that AReaL requires to be equal
        ModelOnly = "model_only",
        /// nothing: the run ends with exit code 4 and reports what would be lost and how to agree
        Ask = "ask",
    }

    /// Resuming from weights that are newer than the state beside them.
    enum AcceptAhead {
        /// such a save counts as unfinished
        Never = "never",
        /// the same; if nothing else is left, the run ends with exit code 4 and a question
        Ask = "ask",
        /// resume from it, and report which steps are repeated
        Always = "always",
    }

    /// Changes to Python interpreters.
    enum InterpreterChoice {
        /// Python's own handler for fatal signals (`PYTHONFAULTHANDLER`, unless you set it), and a start file that leaves no trace
        Auto = "auto",
        /// they start as they would without a supervisor; none imports in advance
        Plain = "plain",
    }

    /// Interpreters that import in advance.
    enum StandbyChoice {
        /// each attempt starts its own
        Off = "off",
        /// they wait from the first step on; if anything has changed, the attempt starts its own
        Auto = "auto",
    }

    /// A planned restart.
    enum RestartChoice {
        /// never
        Off = "off",
        /// if the run would die otherwise
        Auto = "auto",
    }

    /// The format of a webhook's message.
    enum WebhookShape {
        /// the event itself
        Plain = "plain",
        /// a message for Slack
        Slack = "slack",
        /// a message for Discord
        Discord = "discord",
    }

    /// Events that can be reported.
    enum EventChoice {
        /// retries are used up
        GaveUp = "gave_up",
        /// a failure that a restart does not help
        Deterministic = "deterministic",
        /// no checkpoint can be proven, and starting over is not allowed
        NoProof = "no_proof",
        /// the machine or the file system prevents it
        Environment = "environment",
        /// the command does not start what it should
        Configuration = "configuration",
        /// another supervisor is running there
        LeaseHeld = "lease_held",
        /// another process wrote, or placed something, among the checkpoints
        Stranger = "stranger",
        /// the run has waited for more than ten minutes
        Waiting = "waiting",
        /// an attempt did not resume where it should, or nothing shows that it did
        UnconfirmedResume = "unconfirmed_resume",
        /// an attempt stalled
        Stall = "stall",
        /// memory, disk or open files are running out
        Creep = "creep",
        /// a loss or a gradient is not finite
        NotFinite = "not_finite",
        /// entropy or reward fell to almost zero
        Collapse = "collapse",
        /// the run finished
        Finished = "finished",
        /// an operator stopped it
        Stopped = "stopped",
    }

    /// The control group of the workers.
    enum CgroupChoice {
        /// a dedicated group, if one can be created
        Auto = "auto",
        /// signals only
        Off = "off",
    }
}

/// A line of output that identifies a failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRule {
    /// Regular expression over a line without colors and launcher prefixes.
    pub pattern: String,
    /// Class of the failure.
    pub class: String,
    /// Answer to a class of the user's own.
    #[serde(default)]
    pub action: Option<PolicyChoice>,
    /// What the user should do about it.
    #[serde(default)]
    pub advice: Option<String>,
    /// Whether a relaunch after it costs a retry.
    #[serde(default)]
    pub costs_retry: Option<bool>,
    /// Whether a checkpoint may be its cause.
    #[serde(default)]
    pub blames_checkpoint: Option<bool>,
    /// Lines that the pattern matches.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Similar lines that the pattern must not match.
    #[serde(default)]
    pub lookalikes: Vec<String>,
}
