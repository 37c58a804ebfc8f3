//! The settings: name, type, default and meaning of each. `config/defaults.yaml`, `config/supervise.schema.json`, `docs/settings.md`, the
//! checks and the structs all come from here (`make bless` writes the files).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::Explained;
use super::schema::{SettingKind, SettingRow, SettingType, choices, settings};

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
        /// Place where the journal and the attempts are kept; `null` for the usual place in the checkpoint root.
        run_dir: Option<String> = "null";
        /// The checkpoint root; `null` to take it from the trainer's configuration.
        root: Option<String> = "null";
        /// Restarts without progress before giving up. A proven step above all earlier ones refills the budget.
        retries: u32 = 5;
        /// How often a failure that repeats at one step may be answered by an earlier checkpoint.
        step_backs: u32 = 2;
        /// Answers to failures that differ from the built-in ones, by class (`mem.cuda_oom`) or family (`mem.*`). `supervise policy show`
        /// prints every rule.
        policy: BTreeMap<String, PolicyChoice> = "{}";
        /// Lines of output that tell a failure, beside those that are built in: a list of `{pattern: REGEX, class: CLASS}`. The class is one
        /// of the table, or one of your own (`user.licence`). A class of your own may have an `action`, a word of `policy` (without one: `relaunch_later`),
        /// an `advice`, `costs_retry: false` and `blames_checkpoint: false`. The pattern is tried on `examples` and `lookalikes` before anything starts.
        rules: Vec<UserRule> = "[]";
        /// The steps between the resume point and the failure are trained twice: the numbers that are printed for them are compared.
        resume_check: ResumeCheck = "report";
        /// Waiting before a new attempt.
        backoff: Backoff;
        /// How long things may take once they have to end.
        grace: Grace;
        /// How the workers are started.
        gang: Gang;
        /// The next attempt's interpreters are started while one trains, import what this one imported, and wait. Only where the
        /// command is `python …` itself, of ranks, one process or a driver; what they hold is memory, as much as each one's imports.
        standby: StandbyChoice = "off";
        /// Memory that the interpreters of one attempt may hold together while they wait; those that would need more end, and none is started
        /// after them. `null`: the larger of 3 GiB and a twentieth of the memory (of the control group, where it has a limit).
        standby_memory: Option<u64> = "null", SettingKind::OptionalSize;
        /// Python interpreters that are started here say more of their end: a hang tells the line at which each rank stands, and an exception
        /// that ends a worker is known also where its output does not tell it.
        /// A trainer whose settings stand in the code of a script alone is seen, and handed the proven step at a restart, where that is known.
        interpreter: InterpreterChoice = "auto";
        /// Proving a checkpoint before a resume.
        proof: Proof;
        /// State that may be lost at a resume where no step of the run has everything. An older step that has everything always comes first.
        degraded_resume: DegradedResume = "data_order";
        /// `true`: go on from a step that another number of ranks saved. It is cut anew for those of this run (verl's FSDP2), number for number,
        /// and as it was it is kept aside. Otherwise such a step ends the run (exit code 3), which names the command that cuts it.
        elastic: bool = false;
        /// AReaL keeps one checkpoint and overwrites it in place: a save that is killed destroys it. Each one that was proven is copied.
        protect: Protect;
        /// When a run that does not get on counts as stalled.
        stall: Stall;
        /// Lines of output that tell a step: a regular expression with one group around its number. `null`: what the trainer prints; for any
        /// other command the common forms (`step 12`, `Step 12/100`, `'step': 12`, `global_step=12`, progress bars).
        progress: Option<String> = "null", SettingKind::Pattern;
        /// The workers' output.
        output: Output;
        /// Killing what does not end.
        kill: Kill;
        /// Old checkpoints.
        retention: Retention;
        /// The lease that keeps two supervisors off one checkpoint root.
        lease: Lease;
        /// Supervisors on other machines may be started on the same checkpoint root. Then a supervisor that could not renew its lease for
        /// `lease.ttl` ends its workers (exit code 5), before another machine may start. Where it is stopped (^Z, a virtual machine that is
        /// paused) its guard ends them; once it goes on, it launches nothing for two minutes, until it is known that nobody else came.
        multi_host: bool = false;
        /// Start from nothing where no checkpoint can be proven and none ever was.
        allow_fresh: bool = false;
        /// Restart after failures. Without it the supervisor watches and explains only.
        recovery: bool = true;
        /// Longest time to learn what a script (`supervise run -- bash run.sh`) starts: it is run once, up to the call of the trainer.
        learn_within: Duration = "10m";
        /// A step of that script that lasts longer may be the training itself, of a trainer that is not known: it is ended then, and said.
        /// A step that downloads, installs or waits (curl, git, pip, hf, ray, sleep, …) may take all of `learn_within`.
        learn_step: Duration = "30s";
        /// How often the checkpoint root is looked at.
        scan_interval: Duration = "10s";
        /// Once workers run, the trainer's release is asked, beside them and at the lowest priority, to compose the configuration of a
        /// relaunch (Hydra's `--cfg job --resolve`: nothing is trained). An override that it does not know is told then, not at the first
        /// failure. Once for each configuration; `supervise plan --rehearse` asks before the start.
        rehearse: bool = true;
        /// How the trainer is helped to help itself. `plan` shows each help with its reason; what you set yourself is left alone.
        assist: Assist;
        /// Memory that runs out step by step. It is told (`on_event`) when it does not last until the save after next.
        memory: Memory;
        /// Who is told when a run needs a person, or ends. Neither the command nor the webhook keeps or fails the run.
        /// `supervise notify --test` tries them.
        on_event: OnEvent;
        /// When the machine is taken away, in seconds since 1970 (`date +%s`); `null` to ask Slurm, in a job of its.
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
        /// Random share of the waiting time, 0 to 1, so that many runs do not come back at once.
        jitter: f64 = 0.2, SettingKind::Number { min: 0.0, max: 1.0 };
    }

    /// How long things may take once they have to end.
    struct Grace {
        /// From asking the workers to stop to killing them.
        stop: Duration = "30s";
        /// For a save that is under way.
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
        /// Nodes that `supervise sbatch` asks for beyond those: one takes the place of a node that is lost, and the job outlives that.
        spares: u32 = "0";
        /// Options of `ray start` (CPUs, ports, resources), for each node where Ray is started: `null` for none, a list of words, or one string.
        ray_start: Option<Vec<String>> = "null";
        /// The workers' devices: `auto` (all that are there), `none`, or a list of device numbers: more than there are workers take the place of broken ones.
        gpus: GpuChoice = "auto";
        /// The devices that the run names are its own: before each launch they must be there and empty, and what they do helps to find hangs. `false` where it shares them.
        check_gpus: bool = true;
    }

    /// Proving a checkpoint.
    struct Proof {
        /// How much of it is read.
        depth: ProofDepth = "full";
        /// Without proof, a checkpoint is only looked at.
        enabled: bool = true;
        /// Names that a checkpoint may import although neither torch nor numpy needs it: a list of `"module.name"`, `"module.*"` (all below a
        /// module) or `"*"`. The trainer loads with `weights_only=False`, so each such name is imported, and perhaps called, by every rank.
        /// A name that an attempt of this run wrote itself needs no entry.
        trust_globals: Vec<String> = "[]";
        /// `true`: what is on the danger list (programs, code, files, network) does not condemn a checkpoint either. Whoever can write
        /// into the checkpoint root then runs code as you.
        trust_unsafe: bool = false;
        /// Users whose files a checkpoint may hold, beside root and the user of the run: their numbers (`id -u NAME`). Needed
        /// where the trainer runs as somebody else, in a container say: a step of another user is not resumed from otherwise.
        trust_owners: Vec<u32> = "[]";
        /// A new checkpoint is read wholly while the workers run, at idle priority and at most this many bytes a second.
        background_rate: u64 = "1GiB";
        /// Memory that looking into checkpoints may take, in each process. A file that needs more is not judged, and how much it needs is
        /// said (`verify`: exit code 24).
        memory: u64 = "256MiB";
    }

    /// How the only checkpoint of a trainer is kept from being lost.
    struct Protect {
        /// Each proven save is copied.
        enabled: bool = true;
        /// Copies that are kept (two at least).
        keep: u32 = 2, SettingKind::Whole { min: 2, max: 1000 };
        /// A copy reads at most this many bytes a second. Where the file system can, it shares the blocks instead (reflink).
        rate: u64 = "512MiB";
        /// So much stays free beside a copy and the next save; else nothing is copied, and that is said.
        reserve: u64 = "1GiB";
        /// Going on where the weights are newer than the counters and the place in the data (a save was cut short between the two).
        accept_ahead: AcceptAhead = "ask";
    }

    /// When a run that does not get on counts as stalled.
    struct Stall {
        /// Until the first sign of life.
        startup: Duration = "30m";
        /// Between steps: this many times what one step in a thousand takes, by what the run has shown,
        factor: f64 = 3.0;
        /// but never less than this. Then the processes decide: they are still, they spin, or one is stopped.
        minimum: Duration = "10m";
        /// A save whose files do not grow.
        save: Duration = "30m";
        /// No progress for so long decides alone, whatever the processes do. Four times that in a phase that this run has never seen end.
        /// - `auto`: the larger of 60 minutes and 20 times the longest time between two steps
        /// - `never`: ranks that spin for ever are left alone, unless they are told by other signs
        hard: HardLimit = "auto";
    }

    /// The workers' output.
    struct Output {
        /// Size at which an attempt's file is rotated.
        max_bytes: u64 = "256MiB";
        /// Rotated files kept per worker.
        keep: u32 = 2;
    }

    /// Killing what does not end.
    struct Kill {
        /// The control group of the workers.
        cgroup: CgroupChoice = "auto";
    }

    /// Old checkpoints.
    struct Retention {
        /// Delete proven steps beyond the number the trainer is told to keep.
        prune: bool = true;
        /// The trainer itself is told to keep this many more, as a backstop.
        raise_by: u32 = 2;
    }

    /// Memory that runs out.
    struct Memory {
        /// A restart right after a proven save, which costs no retry, where the memory would not last until the save after next.
        restart_after_save: RestartChoice = "off";
    }

    /// Who is told of events.
    struct OnEvent {
        /// A command that gets the event as JSON on its standard input, and has 30 s.
        command: Option<Vec<String>> = "null";
        /// An address that the event is posted to, by `curl`: `https://…`. It counts as a secret.
        webhook: Option<String> = "null", SettingKind::OptionalAddress;
        /// The form in which a webhook gets it.
        shape: WebhookShape = "plain";
        /// The events that are told; an empty list: all of them.
        events: Vec<EventChoice> = "[]";
    }

    /// The lease on the checkpoint root.
    struct Lease {
        /// A holder that cannot be seen (another machine, container or boot) loses it after this time of silence; later where its guard may
        /// go on for longer: a quarter of this, `grace.orphan`, `grace.save` and 10 s; with `multi_host` at least 70 s more than this.
        ttl: Duration = "60s";
    }

    /// How the trainer is helped to help itself.
    struct Assist {
        /// verl's older trainer (`trainer.use_v1=false`) is told when its machine is taken away, and saves before.
        expiry: bool = true;
        /// If `trainer.logger` prints no steps, console and a metrics file are added; each attempt has a metrics file of its own.
        logger: bool = true;
        /// `true`: a relaunch leaves out the validation before its first step (`trainer.val_before_train=False`).
        skip_validation: bool = false;
        /// `PYTHONUNBUFFERED`, `HYDRA_FULL_ERROR`, `RAY_DEDUP_LOGS`, `VERL_SFT_LOGGING_LEVEL`: what goes wrong is told in full, and at once.
        environment: bool = true;
        /// All attempts go on in one run of Weights & Biases, or of SwanLab (`WANDB_RUN_ID`, `WANDB_RESUME`, `SWANLAB_RUN_ID`, `SWANLAB_RESUME`); if you
        /// set one variable of a tool, `supervise` sets none for it. Each attempt is a separate MLflow run, because MLflow gives the ids. If you set `MLFLOW_RUN_ID`, it stays; verl's PPO then resumes by its tracker (`auto`), for MLflow
        /// refuses parameters that changed.
        wandb: bool = true;
    }
}

choices! {
    /// How workers are launched.
    enum LauncherChoice {
        /// found out from the command
        Auto = "auto",
        /// one command that starts its own workers
        Driver = "driver",
        /// one command per worker
        Gang = "gang",
        /// Ray on each node of a Slurm allocation, the command on the first
        Ray = "ray",
    }

    /// How deep a proof goes.
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
        /// the same, after a pause where one is due
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

    /// What is done where a relaunch prints other numbers than the attempt before it.
    enum ResumeCheck {
        /// it is said
        Report = "report",
        /// the run ends with exit code 3
        Stop = "stop",
    }

    /// Contents that a resumed checkpoint may lack.
    enum DegradedResume {
        /// nothing
        Never = "never",
        /// the order of the data
        DataOrder = "data_order",
        /// everything but the weights: optimizer, learning-rate schedule, random numbers; parallel sizes that AReaL wants to be the same
        ModelOnly = "model_only",
        /// nothing: the run ends with exit code 4 and says what would be lost and how to agree
        Ask = "ask",
    }

    /// Going on from weights that are newer than what is kept beside them.
    enum AcceptAhead {
        /// such a save counts as unfinished
        Never = "never",
        /// the same; where nothing else is left, the run ends with exit code 4 and a question
        Ask = "ask",
        /// it is resumed from, and what is repeated is said
        Always = "always",
    }

    /// Help for interpreters.
    enum InterpreterChoice {
        /// a handler of Python's own for fatal signals (`PYTHONFAULTHANDLER`, unless you set it), and a start file that leaves no trace
        Auto = "auto",
        /// they start as they would without a supervisor; none imports ahead
        Plain = "plain",
    }

    /// Interpreters that import ahead.
    enum StandbyChoice {
        /// each attempt starts its own
        Off = "off",
        /// they wait from the first step on; where anything has changed, the attempt starts its own
        Auto = "auto",
    }

    /// A planned restart.
    enum RestartChoice {
        /// never
        Off = "off",
        /// where a run would die otherwise
        Auto = "auto",
    }

    /// The form in which a webhook gets an event.
    enum WebhookShape {
        /// the event as it is
        Plain = "plain",
        /// a message for Slack
        Slack = "slack",
        /// a message for Discord
        Discord = "discord",
    }

    /// Events that somebody can be told of.
    enum EventChoice {
        /// retries are used up
        GaveUp = "gave_up",
        /// a failure that a restart does not help
        Deterministic = "deterministic",
        /// no checkpoint can be proven, and starting over is not allowed
        NoProof = "no_proof",
        /// the machine or the file system does not allow it
        Environment = "environment",
        /// the command does not start what it has to start
        Configuration = "configuration",
        /// another supervisor works there
        LeaseHeld = "lease_held",
        /// somebody else wrote, or put something, among the checkpoints
        Stranger = "stranger",
        /// the run has waited for more than ten minutes
        Waiting = "waiting",
        /// an attempt did not go on where it should, or nothing shows that it did
        UnconfirmedResume = "unconfirmed_resume",
        /// an attempt stood still
        Stall = "stall",
        /// memory, disk or open files run out
        Creep = "creep",
        /// a loss or a gradient is no finite number
        NotFinite = "not_finite",
        /// entropy or reward fell to next to nothing
        Collapse = "collapse",
        /// the run came to its end
        Finished = "finished",
        /// somebody stopped it
        Stopped = "stopped",
    }

    /// The control group of the workers.
    enum CgroupChoice {
        /// one of our own, where one may be made
        Auto = "auto",
        /// signals only
        Off = "off",
    }
}

/// A line of output that tells a failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRule {
    /// Regular expression over a line without colours and launcher prefixes.
    pub pattern: String,
    /// Class of the failure.
    pub class: String,
    /// Answer to a class of the user's own.
    #[serde(default)]
    pub action: Option<PolicyChoice>,
    /// The next thing for a person to do about it.
    #[serde(default)]
    pub advice: Option<String>,
    /// A relaunch after it costs a retry.
    #[serde(default)]
    pub costs_retry: Option<bool>,
    /// A checkpoint may be its cause.
    #[serde(default)]
    pub blames_checkpoint: Option<bool>,
    /// Lines that the pattern matches.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Lines that look like it and that the pattern does not match.
    #[serde(default)]
    pub lookalikes: Vec<String>,
}

/// The time without progress that decides alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLimit {
    /// By what the run has shown.
    Auto,
    /// There is none.
    Never,
    /// This.
    After(Duration),
}

impl SettingType for HardLimit {
    const KIND: SettingKind = SettingKind::Limit;
}

impl<'de> Deserialize<'de> for HardLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The schema lets through two words and durations; the layer writes those as milliseconds.
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            text => text
                .parse()
                .map(|ms| Self::After(Duration::from_millis(ms)))
                .map_err(serde::de::Error::custom),
        }
    }
}

/// The workers' devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuChoice {
    /// All that are there.
    Auto,
    /// None.
    None,
    /// These.
    List(Vec<u32>),
}

impl SettingType for GpuChoice {
    const KIND: SettingKind = SettingKind::Gpus;
}

impl<'de> Deserialize<'de> for GpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The schema lets through `auto`, `none` and lists; the layer writes the words as one-element lists of text.
        let items = Vec::<String>::deserialize(deserializer)?;
        match items.first().map(String::as_str) {
            Some("auto") => Ok(Self::Auto),
            Some("none") => Ok(Self::None),
            _ => items
                .iter()
                .map(|item| item.parse().map_err(serde::de::Error::custom))
                .collect::<Result<_, _>>()
                .map(Self::List),
        }
    }
}
