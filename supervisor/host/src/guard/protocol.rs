//! Messages between supervisor and guard: one JSON object per line.
//!
//! The order comes first, over a separate channel (see [`crate::guard::spawn`]). Everything else goes over the guard
//! connection, a stream socket. Lines are bounded. Unknown messages are errors: both ends are the same program, or
//! the supervisor is newer and sends an older guard only what it announced in [`GuardHello`] (`takes_*`).

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

/// Longest order, in bytes: it carries a whole environment per worker.
pub const ORDER_LIMIT: usize = 16 << 20;

/// Order of a guard, sent once at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardOrder {
    pub run: RunId,
    pub term: Term,
    pub attempt: AttemptNo,
    /// Our own program, for the log writer; the guard prefers its own running image.
    pub exe: Utf8PathBuf,
    /// Abstract name of the socket where a later term finds the guard; different for each guard.
    pub socket: String,
    /// The attempt's directory for output and records; `None`: nothing is written.
    pub dir: Option<Utf8PathBuf>,
    pub workers: Vec<WorkerOrder>,
    /// Rules for output lines; empty if a standby guard has them already.
    pub rules: Vec<ScanRule>,
    /// How long the guard connection may stay broken before the tree is killed.
    pub orphan_grace: Ms,
    /// Added to `orphan_grace` while a save is running.
    pub save_grace: Ms,
    /// Time between SIGTERM and SIGKILL if the guard itself stops the tree.
    pub stop_grace: Ms,
    /// Size at which an output file is rotated, in bytes.
    pub output_max: u64,
    pub output_keep: u32,
    /// Use a separate cgroup if the system allows it.
    pub cgroup: bool,
    /// Scratch directory, deleted when the attempt ends. Its name ends with the attempt's number; sibling directories
    /// whose names differ only in that number are deleted.
    #[serde(default)]
    pub scratch: Option<Utf8PathBuf>,
    /// AReaL name records of earlier attempts, deleted before the workers start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_names: Option<Utf8PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesOrder>,
    /// Set if the workers run a script that starts the trainer: what to look for in it.
    #[serde(default)]
    pub script: Option<ScriptWatch>,
    /// Let a script run to its own end even if a trainer call in it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patient: bool,
    /// The workers are Python interpreters that run our file first, so that the next attempt's can pre-import (see
    /// [`crate::guard::standby`]).
    #[serde(default)]
    pub interpreters: bool,
    /// The only worker is a driver that starts its own Ray, whose workers are Python interpreters too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ray: bool,
    /// The workers are Python interpreters that save the exception they exit with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endings: bool,
    /// Python code that runs first in the interpreters and reports the trainer's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Python code that runs first in the interpreters and answers requests for a save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// Values redacted in the guard's messages and records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A gang across several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesOrder {
    /// Number of nodes; the workers are distributed in order, the same number on each.
    pub nodes: u32,
    pub step: String,
    pub on: Vec<String>,
}

/// What to look for among the processes of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptWatch {
    /// The first trainer; it is reported to the supervisor.
    Record,
    /// A trainer that lacks these words.
    Marks {
        /// Our overrides.
        ours: Vec<String>,
    },
}

/// A trainer call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimCall {
    pub words: Vec<String>,
    pub cwd: Utf8PathBuf,
    /// Environment variables that are text of moderate length.
    pub env: Vec<(String, String)>,
    /// The trainer was found running without having gone through a shim.
    pub past: bool,
}

/// Environment variable that holds a shim's configuration.
pub const WAY_VARIABLE: &str = "SUPERVISE_WAY";

/// Longest recorded value, in bytes.
const VALUE: usize = 4 << 10;
/// Total size of all recorded variables, in bytes.
const VALUES: usize = 256 << 10;

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

/// Message of a shim, or a fact the guard found itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromShim {
    /// The script calls a program that is not a trainer.
    Passes {
        /// The first words of the command.
        words: Vec<String>,
    },
    /// The script calls a Python script whose code trains; it is not started.
    Trains {
        /// The command, without secrets.
        words: Vec<String>,
    },
    /// The script calls a trainer, to be recorded.
    Called(Box<ShimCall>),
    /// A shim is about to start a trainer with our overrides and asks for permission.
    Starts {
        rank: Option<u32>,
        #[serde(default)]
        claim: CallClaim,
    },
    /// A trainer is not started.
    Refuses {
        why: String,
        #[serde(default)]
        claim: CallClaim,
    },
    /// A trainer that was started has exited.
    Returned {
        /// Its number in [`FromGuard::Goes`].
        call: usize,
        status: ExitStatus,
    },
    /// The step to resume from no longer exists, so the trainer is not started.
    Spoilt {
        /// Message for the operator.
        what: String,
    },
    /// The script would start a trainer again.
    Again,
    /// A trainer runs without our overrides.
    Unmarked {
        /// Its command line.
        words: Vec<String>,
    },
}

/// Which training, and which part of it, a call would start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallClaim {
    #[serde(default)]
    pub place: CallPlace,
    /// Settings that tell one training from another.
    #[serde(default)]
    pub root: String,
    /// These settings match the learned call.
    #[serde(default)]
    pub is_learnt: bool,
    /// What makes it a different training from the learned one; `None`: nothing, or only a date in its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Hash of the words, the directory and the config files named; the same for a repeated call.
    #[serde(default)]
    pub identity: String,
    /// The call, shortened and with secrets redacted.
    #[serde(default)]
    pub what: String,
}

impl CallClaim {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOrder {
    pub argv: Vec<String>,
    /// The complete environment; the guard only adds the attempt's mark.
    pub env: Vec<(String, String)>,
    pub cwd: Utf8PathBuf,
}

/// Messages to the guard, from the supervisor or (`Shim` only) from a shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuard {
    /// First message on a new guard connection: this term takes the guard over. Refused unless the term is newer.
    Take {
        /// The new term.
        term: Term,
    },
    /// Send this signal to every worker's process group.
    Signal {
        /// Signal number.
        signal: i32,
    },
    /// Kill all processes now.
    KillTree,
    /// Stop all processes where they are (SIGSTOP).
    Freeze,
    /// Let all processes continue.
    Thaw,
    /// GPU activity since the last such message. Only sent to guards that accept it.
    Devices(Vec<DevicePulse>),
    /// The lease was renewed: unless renewed again, the tree is killed at this time (boot clock). `None`: no other
    /// supervisor may take the lease. Only sent to guards that accept it.
    Lease(Option<FenceDeadline>),
    /// No supervisor will connect again: the guard exits as soon as its tree is gone.
    Bye,
    Shim(FromShim),
}

/// Messages from the guard, to the supervisor or to a shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuard {
    /// The answer to `Take`: the complete state.
    Hello(Box<GuardHello>),
    /// All workers have executed their programs.
    Launched {
        workers: Vec<ProcRef>,
        /// The guard itself; the process that was started for it is its keeper.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guard: Option<ProcRef>,
        /// If some workers were pre-started: whether they became the workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<StandbyResult>,
        /// The guard's file descriptor of the file where the imports of worker 0 are recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notes: Option<i32>,
    },
    /// The attempt could not be started. What was started is killed, then the guard exits.
    LaunchFailed {
        what: String,
        /// The command itself cannot be executed.
        command: bool,
    },
    /// A worker exited.
    Exited {
        worker: WorkerId,
        status: ExitStatus,
        /// It was the first of the attempt.
        first: bool,
        step: Option<Step>,
        /// The last lines of its output, if it was the first to fail.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
    },
    /// The trainer made progress, or five seconds have passed.
    Progress {
        phase: TrainerPhase,
        step: Option<Step>,
        /// Signs of progress within phases so far.
        #[serde(default)]
        beats: u64,
        #[serde(default)]
        risen: u64,
        activity: Activity,
        /// Open files of the process nearest to its limit, if counted since the last message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<ResourceUsage>,
    },
    /// State of the ranks, sent every ten seconds after a while without progress.
    Looked(ActivitySample),
    /// A rule other than step and phase matched for the first, second, fourth, … time, or the first training record
    /// was printed.
    Sighted {
        kind: RuleKind,
        sighting: Sighting,
    },
    /// Metrics printed for steps since the last message of this kind.
    Numbers {
        steps: Vec<StepNumbers>,
    },
    /// All processes of the attempt have exited, or only unkillable ones are left. Sent again when those are gone
    /// too.
    TreeGone {
        /// Processes still running five seconds after SIGKILL.
        unkillable: Vec<ProcRef>,
    },
    /// All processes here have exited and the guard waits for the end on other nodes. Sent repeatedly.
    Waits {
        what: String,
    },
    Shim(FromShim),
    Script(ScriptNews),
    /// To a shim: the trainer may be started.
    MayStart,
    /// To a shim, after [`FromGuard::MayStart`].
    Goes {
        call: usize,
        /// Path at which the worker's output pipe can be opened.
        output: Option<Utf8PathBuf>,
    },
    /// To a shim: do not start the trainer; the script continues.
    HeldBack {
        why: String,
    },
    /// Output was lost because the disk did not accept it.
    Dropped {
        worker: WorkerId,
        bytes: u64,
    },
}

/// Complete state of a guard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardHello {
    pub guard: ProcRef,
    pub run: RunId,
    pub term: Term,
    pub attempt: AttemptNo,
    pub workers: Vec<WorkerState>,
    pub phase: TrainerPhase,
    /// The newest step the trainer printed.
    pub step: Option<Step>,
    pub total: Option<u64>,
    /// Sightings so far, with long lines shortened further.
    pub sightings: Vec<(RuleKind, Sighting)>,
    /// All processes of the attempt have exited.
    pub gone: bool,
    pub unkillable: Vec<ProcRef>,
    /// Accepts [`ToGuard::Devices`]. An older guard would drop the connection as invalid.
    #[serde(default)]
    pub takes_devices: bool,
    /// Accepts [`ToGuard::Lease`].
    #[serde(default)]
    pub takes_lease: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerState {
    pub proc: ProcRef,
    /// Set once it has exited.
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
