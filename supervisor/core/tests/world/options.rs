//! Options of a script: the specification, the policy, the trainer's habits.

use super::script::span;
use serde_json::Map;
use std::collections::BTreeMap;
use supervise_core::checkpoint::Depth;
use supervise_core::id::{Ms, RunId, Step};
use supervise_core::spec::policy::{BackoffPolicy, DegradedPolicy, HardLimit, Policy, ProofPolicy, ResumeCheck};
use supervise_core::spec::{
    GangSpec, InPlaceSpec, LauncherKind, Numbering, ResumeIntent, RoleSpec, RunSpec, SaveCadence, SavePolicy,
    TrainerKind,
};

/// How the simulated trainer lives.
#[derive(Debug, Clone)]
pub(crate) struct Habits {
    pub(crate) startup: u64,
    pub(crate) step: u64,
    pub(crate) save: u64,
    pub(crate) last: u64,
    /// It prints how many steps it plans.
    pub(crate) says_total: bool,
    /// It does not hear SIGTERM.
    pub(crate) deaf: bool,
    /// A copy of its only checkpoint takes so long.
    pub(crate) copy: u64,
    /// Its saves lose the order of the data.
    pub(crate) later_epoch: bool,
    /// A plain command goes on from the step it came to.
    pub(crate) resumes_itself: bool,
    /// It prints its configuration.
    pub(crate) shows_path: bool,
    /// It says that it failed before it hangs.
    pub(crate) says_failed: bool,
    /// Its exit code at its end.
    pub(crate) exit: i32,
    /// Each save of its only checkpoint stands in a directory of its own, and a pointer names it.
    pub(crate) own: bool,
    /// Its processes stay after the last step; `says-end`: it says that it is over.
    pub(crate) stays: bool,
    pub(crate) says_end: bool,
    /// It prints losses; from this step on they are no numbers, and so are saved weights from that one; after a resume they are higher
    /// by this.
    pub(crate) losses: bool,
    pub(crate) lost_from: Option<u64>,
    pub(crate) spoilt_from: Option<u64>,
    /// That, and a loss that is no number, comes in the first attempt only.
    pub(crate) mends: bool,
    /// A look at weights is never answered.
    pub(crate) blind: bool,
    pub(crate) jumps: u64,
    /// From this step on the entropy and the reward that it prints are next to nothing.
    pub(crate) falls_from: Option<u64>,
    /// Its first training record is told.
    pub(crate) records: bool,
    /// Each step takes so many MiB more of so many MiB of memory; each save of the disk.
    pub(crate) leaks: Option<(u64, u64)>,
    pub(crate) fills: Option<(u64, u64)>,
    /// It goes on from this step, whatever it was told to load.
    pub(crate) goes_on_from: Option<u64>,
    /// It does not answer requests for a save.
    pub(crate) unasked: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            startup: 2_000,
            step: 1_000,
            save: 500,
            last: 8,
            says_total: false,
            deaf: false,
            shows_path: false,
            later_epoch: false,
            resumes_itself: false,
            copy: 100,
            exit: 0,
            says_failed: false,
            own: false,
            stays: false,
            says_end: false,
            losses: false,
            falls_from: None,
            lost_from: None,
            spoilt_from: None,
            mends: false,
            blind: false,
            jumps: 0,
            leaks: None,
            fills: None,
            records: false,
            goes_on_from: None,
            unasked: false,
        }
    }
}

/// Eight steps, a save every second one, proof on, no jitter.
pub(crate) fn spec() -> RunSpec {
    RunSpec {
        run: RunId("feedfacefeedface".to_owned()),
        name: None,
        trainer: TrainerKind::new("verl_ppo"),
        trainer_version: None,
        declared: None,
        learnt: None,
        config_hash: 1,
        root: Some("/root-of-the-run".into()),
        run_dir: "/root-of-the-run/.supervise".into(),
        config_file: None,
        command: vec!["train".to_owned()],
        cwd: "/".into(),
        env: BTreeMap::new(),
        gang: GangSpec {
            launcher: LauncherKind::Gang,
            workers: 2,
            nodes: 1,
            gpus: Vec::new(),
        },
        cadence: SaveCadence {
            every: Some(2),
            at_end: true,
        },
        last_step: Some(Step(8)),
        world: Some(2),
        indivisible: Vec::new(),
        roles: vec![RoleSpec {
            name: "actor".to_owned(),
            save_contents: Vec::new(),
            load_contents: Vec::new(),
            load_wish: false,
            megatron: None,
            fsdp_size: None,
            sequence: None,
            keep: None,
        }],
        resume: ResumeIntent::Auto,
        keep: None,
        policy: Policy {
            backoff: BackoffPolicy {
                jitter: 0.0,
                ..BackoffPolicy::default()
            },
            // Fewer scans to read in the golden files; `depth=full` where the proof is what a script is about.
            proof: ProofPolicy {
                depth: Depth::Structure,
                ..ProofPolicy::default()
            },
            ..Policy::default()
        },
        not_restored: Vec::new(),
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        saves_at_stop: false,
        has_tail: false,
        save_door: false,
    }
}

/// Applies options in order.
///
/// # Errors
/// The first one that is not known.
pub(crate) fn apply(spec: &mut RunSpec, habits: &mut Habits, options: &[String]) -> Result<(), String> {
    for o in options {
        let (key, value) = o.split_once('=').unwrap_or((o, ""));
        if one(spec, habits, key, value).is_none() {
            return Err(format!("option {o:?} is not understood"));
        }
    }
    Ok(())
}

fn one(spec: &mut RunSpec, habits: &mut Habits, key: &str, value: &str) -> Option<()> {
    let number = value.parse::<u64>().ok();
    match key {
        "verl-ppo" => spec.trainer = TrainerKind::new("verl_ppo"),
        "areal" => {
            spec.trainer = TrainerKind::new("areal");
            spec.saves = SavePolicy::InPlace(InPlaceSpec {
                store: "/store-of-the-run".into(),
                exit_says_nothing: false,
                spread: Default::default(),
                own: Map::default(),
            });
        }
        "indivisible" => spec.indivisible = vec!["train_batch_size=5 is no multiple of 2".to_owned()],
        "launcher" => {
            if let SavePolicy::InPlace(place) = &mut spec.saves {
                place.exit_says_nothing = true;
            }
            habits.exit = 1;
        }
        "own" => habits.own = true,
        "door" => spec.save_door = true,
        "never" => spec.cadence.every = None,
        "does-not-answer" => habits.unasked = true,
        "records" => habits.records = true,
        "losses" => habits.losses = true,
        "falls-from" => habits.falls_from = Some(number?),
        "lost-from" => habits.lost_from = Some(number?),
        "spoilt-from" => habits.spoilt_from = Some(number?),
        "mends" => habits.mends = true,
        "blind" => habits.blind = true,
        "jumps" => habits.jumps = number?,
        "leaks" => habits.leaks = Some(pair(value)?),
        "fills" => habits.fills = Some(pair(value)?),
        "stays" => habits.stays = true,
        "says-end" => habits.says_end = true,
        "goes-on-from" => habits.goes_on_from = Some(number?),
        "has-tail" => spec.has_tail = true,
        "saves-at-stop" => spec.saves_at_stop = true,
        "by-tracker" => spec.resume = ResumeIntent::Tracker,
        "may-end-early" => spec.may_end_early = true,
        "numbered-else" => spec.numbering = Numbering::Else,
        "says-failed" => habits.says_failed = true,
        "planned" => spec.last_step = Some(Step(number?)),
        "not-at-end" => spec.cadence.at_end = false,
        "unprotected" => spec.policy.protect.enabled = false,
        "verl-sft" => spec.trainer = TrainerKind::new("verl_sft"),
        "plain" => {
            spec.trainer = TrainerKind::new("plain");
            spec.root = None;
            spec.last_step = None;
        }
        "resumes-itself" => habits.resumes_itself = true,
        "last" => {
            habits.last = number?;
            spec.last_step = spec.last_step.map(|_| Step(habits.last));
        }
        "last-unknown" => spec.last_step = None,
        "says-total" => habits.says_total = true,
        "every" => spec.cadence.every = Some(number?),
        "keep" => spec.keep = Some(u32::try_from(number?).ok()?),
        "workers" => spec.gang.workers = u32::try_from(number?).ok()?,
        "config" => spec.config_hash = number?,
        "resume" => spec.resume = intent(value)?,
        "startup" => habits.startup = span(value)?,
        "step" => habits.step = span(value)?,
        "save" => habits.save = span(value)?,
        "deaf" => habits.deaf = true,
        "copy" => habits.copy = span(value)?,
        "later-epoch" => habits.later_epoch = true,
        "shows-path" => habits.shows_path = true,
        _ => return policy(&mut spec.policy, key, value),
    }
    Some(())
}

/// `20:1000`
fn pair(value: &str) -> Option<(u64, u64)> {
    let (one, other) = value.split_once(':')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

fn policy(p: &mut Policy, key: &str, value: &str) -> Option<()> {
    let number = value.parse::<u64>().ok();
    let count = number.and_then(|n| u32::try_from(n).ok());
    let time = span(value).map(Ms);
    match key {
        "retries" => p.failure.retries = count?,
        "step-backs" => p.failure.step_backs = count?,
        "policy" => {
            let (class, word) = value.split_once(':')?;
            let action = supervise_core::rulebook::action::FailureAction::of_word(word)?;
            p.failure.rules.insert(class.to_owned(), action);
        }
        "resume-check" => p.resume_check = ResumeCheck::Stop,
        "keep-raise" => p.retention.keep_raise = count?,
        "jitter" => p.backoff.jitter = value.parse().ok()?,
        "depth" => p.proof.depth = if value == "full" { Depth::Full } else { Depth::Structure },
        "no-prove" => p.proof.is_on = false,
        "no-recovery" => p.start.recovery = false,
        "observe" => p.start.observe = true,
        "elastic" => p.elastic = true,
        "restart-for-memory" => p.restart_for_memory = true,
        "rehearse" => p.rehearse = true,
        "allow-fresh" => p.start.allow_fresh = true,
        "fresh" => p.start.fresh = true,
        "from" => p.start.from = Some(Step(number?)),
        "degraded" => {
            p.degraded = match value {
                "never" => DegradedPolicy::Never,
                "model" => DegradedPolicy::ModelOnly,
                "ask" => DegradedPolicy::Ask,
                _ => DegradedPolicy::DataOrder,
            }
        }
        "stop-grace" => p.grace.stop = time?,
        "save-grace" => p.grace.save = time?,
        "orphan-grace" => p.grace.orphan = time?,
        "stall-startup" => p.stall.startup = time?,
        "stall-minimum" => p.stall.minimum = time?,
        "stall-save" => p.stall.save = time?,
        "stall-hard" => {
            p.stall.hard = match value {
                "never" => HardLimit::Never,
                _ => HardLimit::After(time?),
            }
        }
        "progress" => p.stall.progress = Some(value.to_owned()),
        "scan-interval" => p.scan_interval = time?,
        "max-loss" => p.max_loss = Some(time?),
        "no-save-requests" => p.assist.save_requests = false,
        _ => return None,
    }
    Some(())
}

/// `auto`, `disable`, `path:elsewhere:10`, `path:4`.
fn intent(value: &str) -> Option<ResumeIntent> {
    Some(match value {
        "auto" => ResumeIntent::Auto,
        "disable" => ResumeIntent::Disabled,
        other => {
            let rest = other.strip_prefix("path:")?;
            let (root, n) = match rest.strip_prefix("elsewhere:") {
                Some(n) => ("/elsewhere", n),
                None => ("/root-of-the-run", rest),
            };
            ResumeIntent::Path {
                path: format!("{root}/global_step_{n}").into(),
                step: Step(n.parse().ok()?),
            }
        }
    })
}
