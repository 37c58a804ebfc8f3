//! Messages between driver and guard: one JSON object per line.
//!
//! The order comes first and on its own way (see [`crate::guard::spawn`]); everything later goes over the leash,
//! a stream socket. Lines are bounded. Unknown messages are errors: both ends are the same program, or a newer
//! driver that asks an older guard only for what version 1 knows.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::event::{Activity, ExitStatus, Sighting, StandbyResult, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, ProcRef, RunId, Step, Term, WorkerId};
use supervise_core::lease::FenceDeadline;
use supervise_core::observe::activity::{ActivitySample, DevicePulse};
use supervise_core::observe::creep::ResourceUsage;
use supervise_core::observe::numbers::StepNumbers;
use supervise_core::spec::script::{CallPlace, ScriptNews, StartedCall};

/// Longest message in either direction, in bytes, newline included.
pub const MESSAGE_LIMIT: usize = 1 << 20;

/// Longest order: it carries a whole environment per worker.
pub const ORDER_LIMIT: usize = 16 << 20;

/// Order of a guard, given to it once at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardOrder {
    /// The run.
    pub run: RunId,
    /// The term that starts the attempt.
    pub term: Term,
    /// The attempt.
    pub attempt: AttemptNo,
    /// Our own program, for the log writer; the guard prefers its own running image.
    pub exe: Utf8PathBuf,
    /// Abstract name of the socket where a later term finds the guard: a new one each time.
    pub socket: String,
    /// The attempt's directory for output and records; none: nothing is written.
    pub dir: Option<Utf8PathBuf>,
    /// The workers, by id.
    pub workers: Vec<WorkerOrder>,
    /// Meaning of their lines; none: a guard that waited has them already.
    pub rules: Vec<ScanRule>,
    /// How long a broken leash may stay broken before the tree is killed.
    pub orphan_grace: Ms,
    /// How much longer where a save is going on then.
    pub save_grace: Ms,
    /// How long the tree has between SIGTERM and SIGKILL where the guard itself stops it.
    pub stop_grace: Ms,
    /// Size at which an output file is rotated, in bytes.
    pub output_max: u64,
    /// Rotated output files that are kept beside the current one.
    pub output_keep: u32,
    /// Use a cgroup of our own where the system allows it.
    pub cgroup: bool,
    /// A directory for what the attempt needs only while it lives; its name ends with the attempt's number, and
    /// directories beside it that differ only there are deleted.
    #[serde(default)]
    pub scratch: Option<Utf8PathBuf>,
    /// Records by which processes of earlier attempts were found: deleted before the workers start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_names: Option<Utf8PathBuf>,
    /// The workers run on several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesOrder>,
    /// The workers run a script that starts the trainer: what is looked for in it.
    #[serde(default)]
    pub script: Option<ScriptWatch>,
    /// A script goes on to its own end although the call in it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patient: bool,
    /// The workers are interpreters that run our file first, so that the next ones can import ahead (see [`crate::guard::ahead`]).
    #[serde(default)]
    pub interpreters: bool,
    /// The only one is a driver that starts a Ray of its own, whose workers are interpreters as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ray: bool,
    /// They are interpreters that leave the exception which ends them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endings: bool,
    /// Python that runs first in them, and tells of the trainer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Values that are hidden in what the guard says and writes down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// Several nodes for one gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesOrder {
    /// Nodes; the workers are dealt out to them in order, equally many to each.
    pub nodes: u32,
    /// Name of the step.
    pub step: String,
    /// Their names.
    pub on: Vec<String>,
}

/// Process that is looked for among the processes of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptWatch {
    /// The first trainer, which is told to the driver.
    Record,
    /// A trainer without these words.
    Marks {
        /// Our overrides.
        ours: Vec<String>,
    },
}

/// A call of a trainer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimCall {
    /// Word by word.
    pub words: Vec<String>,
    /// Place where it was made.
    pub cwd: Utf8PathBuf,
    /// Its environment, as far as it is text of moderate length.
    pub env: Vec<(String, String)>,
    /// It was seen to run, and none of our programs was asked.
    pub past: bool,
}

/// Name of the environment variable by which a shim knows what to do.
pub const WAY_VARIABLE: &str = "SUPERVISE_WAY";

/// Longest value of a variable that is recorded.
const VALUE: usize = 4 << 10;
/// All recorded variables together.
const VALUES: usize = 256 << 10;

/// Variables as they are recorded: text of moderate length.
pub(crate) fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let mut left = VALUES;
    all.filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, v)| !k.starts_with("BASH_FUNC_") && k != WAY_VARIABLE && v.len() <= VALUE)
        .take_while(|(k, v)| {
            let fits = k.len() + v.len() <= left;
            left = left.saturating_sub(k.len() + v.len());
            fits
        })
        .collect()
}

/// Message of one of our programs in a script, or a sighting in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromShim {
    /// A call that starts no trainer is being made.
    Passes {
        /// Its first words.
        words: Vec<String>,
    },
    /// A Python script is called that trains by what its code says; it is not started.
    Trains {
        /// Its words, without secrets.
        words: Vec<String>,
    },
    /// A trainer is called, to be recorded.
    Called(Box<ShimCall>),
    /// A trainer is about to be started with our words; it asks whether it may.
    Starts {
        /// The rank of the script, where there are several.
        rank: Option<u32>,
        /// Which call it is.
        #[serde(default)]
        claim: CallClaim,
    },
    /// A trainer is not started.
    Refuses {
        /// Why, in words.
        why: String,
        /// Which call it is.
        #[serde(default)]
        claim: CallClaim,
    },
    /// A trainer that was started has ended.
    Returned {
        /// Its number in [`FromGuard::Goes`].
        call: usize,
        /// How.
        status: ExitStatus,
    },
    /// The step to resume from is not there any more: the trainer is not started.
    Spoilt {
        /// In words.
        what: String,
    },
    /// A trainer would be started again.
    Again,
    /// A trainer runs without our words.
    Unmarked {
        /// Its command line.
        words: Vec<String>,
    },
}

/// Which training, and which part of it, a call would start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallClaim {
    /// The part.
    #[serde(default)]
    pub place: CallPlace,
    /// Settings that tell one training from another.
    #[serde(default)]
    pub root: String,
    /// They are those that were learnt.
    #[serde(default)]
    pub is_learnt: bool,
    /// What makes it another training than the one that was learnt; `None`: nothing, or a date in its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Hash of its words, its directory and the files of settings that it names: the same call again has the same.
    #[serde(default)]
    pub identity: String,
    /// The call, shortened, secrets redacted.
    #[serde(default)]
    pub what: String,
}

impl CallClaim {
    /// The call that it claims.
    pub(crate) fn as_call(&self) -> StartedCall {
        StartedCall {
            place: self.place,
            root: self.root.clone(),
            what: self.what.clone(),
            identity: self.identity.clone(),
            end: None,
        }
    }
}

/// One worker to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOrder {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment; the guard adds the attempt's mark and nothing else.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: Utf8PathBuf,
}

/// From the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuard {
    /// A new leash's first word: this term takes the guard over. A term that is not newer is refused.
    Take {
        /// The new term.
        term: Term,
    },
    /// Send this signal to every worker's process group.
    Signal {
        /// Signal number.
        signal: i32,
    },
    /// End everything, now.
    KillTree,
    /// Stop everything where it is.
    Freeze,
    /// Let everything go on.
    Thaw,
    /// The work of the machine's GPUs since the last word of this kind. To guards that take it alone.
    Devices(Vec<DevicePulse>),
    /// The lease was renewed: without another word of this kind the tree is killed then, by the clock of the boot. `None`: nobody else may
    /// take it. To guards that take it alone.
    Lease(Option<FenceDeadline>),
    /// Nobody will ask again: the guard ends as soon as its tree is gone.
    Bye,
    /// One of our programs in a script: its only message, and its first.
    Shim(FromShim),
}

/// From the guard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuard {
    /// The answer to `Take`: all there is to know.
    Hello(Box<GuardHello>),
    /// All workers execute their programs.
    Launched {
        /// By worker id.
        workers: Vec<ProcRef>,
        /// The guard itself: the process that was started for it is its keeper.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guard: Option<ProcRef>,
        /// Some of them had been started ahead: whether they went on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<StandbyResult>,
        /// The guard's descriptor of the file in which the imports of worker 0 are noted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notes: Option<i32>,
    },
    /// The attempt could not be started; what was started is being killed, the guard ends after that.
    LaunchFailed {
        /// In words: what, where, why.
        what: String,
        /// The command itself cannot be executed.
        command: bool,
    },
    /// A worker ended.
    Exited {
        /// Which.
        worker: WorkerId,
        /// How.
        status: ExitStatus,
        /// It was the first of the attempt.
        first: bool,
        /// The newest step seen.
        step: Option<Step>,
        /// The last lines of its output, where it was the first to fail.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
    },
    /// The trainer got on, or five seconds are over.
    Progress {
        /// Its present activity.
        phase: TrainerPhase,
        /// The newest step it printed.
        step: Option<Step>,
        /// Signs of progress within its phases so far.
        #[serde(default)]
        beats: u64,
        /// How often its step has risen so far.
        #[serde(default)]
        risen: u64,
        /// Activity since the last message of this kind.
        activity: Activity,
        /// Open files of the process that is nearest to its limit, where they were counted since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<ResourceUsage>,
    },
    /// The ranks, every ten seconds where there was no progress for a while.
    Looked(ActivitySample),
    /// A rule other than step and phase matched, for the first, second, fourth, … time; or the first training record was printed.
    Sighted {
        /// Its meaning.
        kind: RuleKind,
        /// Sighting, with the count so far.
        sighting: Sighting,
    },
    /// Numbers that were printed about steps, since the last message of this kind.
    Numbers {
        /// By step.
        steps: Vec<StepNumbers>,
    },
    /// Nothing of the attempt is left; or nothing that can be killed. It comes again when the rest is gone.
    TreeGone {
        /// Processes that SIGKILL did not end for five seconds.
        unkillable: Vec<ProcRef>,
    },
    /// Nothing of the attempt is left here, and its end on other nodes is waited for, in words; again and again.
    Waits {
        /// For what.
        what: String,
    },
    /// Answer of one of our programs in a script.
    Shim(FromShim),
    /// What a script does.
    Script(ScriptNews),
    /// To such a program: the trainer may be started.
    MayStart,
    /// To such a program, after [`FromGuard::MayStart`].
    Goes {
        /// The number of the call.
        call: usize,
        /// Path under which the pipe of the worker's output can be opened.
        output: Option<Utf8PathBuf>,
    },
    /// To such a program: the trainer is not started, and the script goes on.
    HeldBack {
        /// Why, in words.
        why: String,
    },
    /// Output was lost because the disk did not take it.
    Dropped {
        /// Whose.
        worker: WorkerId,
        /// Bytes lost since the start.
        bytes: u64,
    },
}

/// State of a guard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardHello {
    /// The guard itself.
    pub guard: ProcRef,
    /// The run.
    pub run: RunId,
    /// The term that started the attempt.
    pub term: Term,
    /// The attempt.
    pub attempt: AttemptNo,
    /// The workers, by id.
    pub workers: Vec<WorkerState>,
    /// Activity of the trainer.
    pub phase: TrainerPhase,
    /// The newest step it printed.
    pub step: Option<Step>,
    /// The last planned step.
    pub total: Option<u64>,
    /// Sightings so far, long lines cut further.
    pub sightings: Vec<(RuleKind, Sighting)>,
    /// Nothing of the attempt is left.
    pub gone: bool,
    /// Processes that could not be killed so far.
    pub unkillable: Vec<ProcRef>,
    /// It takes [`ToGuard::Devices`]: one of an older release would take the driver that says so for none.
    #[serde(default)]
    pub takes_devices: bool,
    /// It takes [`ToGuard::Lease`].
    #[serde(default)]
    pub takes_lease: bool,
}

/// One worker's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerState {
    /// The process.
    pub proc: ProcRef,
    /// How it ended, if it did.
    pub exit: Option<ExitStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_come_back() {
        let said = FromGuard::LaunchFailed {
            what: "two\nlines".to_owned(),
            command: true,
        };
        let line = serde_json::to_string(&said).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<FromGuard>(&line).unwrap(), said);
        let take: ToGuard = serde_json::from_str(r#"{"take":{"term":4}}"#).unwrap();
        assert_eq!(take, ToGuard::Take { term: Term(4) });
        let bye: ToGuard = serde_json::from_str(r#""bye""#).unwrap();
        assert_eq!(bye, ToGuard::Bye);
    }

    #[test]
    fn what_is_recorded_is_bounded() {
        let os = |k: String, v: String| (OsString::from(k), OsString::from(v));
        let one = [
            os("A".into(), "1".into()),
            os("LONG".into(), "x".repeat(VALUE + 1)),
            os("BASH_FUNC_x%%".into(), "() { :; }".into()),
        ];
        assert_eq!(variables(one.into_iter()), [("A".to_owned(), "1".to_owned())]);
        let many = (0..1000).map(|n| os(format!("V{n}"), "y".repeat(VALUE)));
        let kept = variables(many);
        let bytes: usize = kept.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert!(bytes <= VALUES && kept.len() > 10, "{bytes}");
    }
}
