//! Messages of the driver's own tasks.

use super::jobs::Seen;
use crate::control::{ControlReply, ControlRequest};
use crate::notify::Came;
use supervise_core::activity::DevicePulse;
use supervise_core::id::{ActId, AttemptNo, ProcRef};
use supervise_core::log_cause::LogCause;
use supervise_core::machine::Facts;
use supervise_core::record::LaunchOrder;
use supervise_core::rehearsal::Rehearsed;
use supervise_host::allocation::Allocation;
use supervise_host::cluster::Cluster;
use supervise_host::gpus::Gpus;
use supervise_host::guard::nodes::places::Places;
use supervise_trainers::slurm::Job;
use tokio::process::ChildStdin;
use tokio::sync::oneshot;

/// A message from one of our own tasks.
#[derive(Debug)]
pub(super) enum Internal {
    /// A fence or a sweep without a guard came to its end.
    Swept {
        attempt: AttemptNo,
        unkillable: Vec<ProcRef>,
    },
    /// Something is to be told.
    Note(String),
    /// Somebody was told of an event, or could not be.
    Told(String, Vec<Came>),
    /// Ray or Slurm was asked to end the jobs of an attempt, or its nodes were waited for.
    JobEnded {
        attempt: AttemptNo,
        seen: Seen,
        said: Result<(), String>,
    },
    /// The end of an attempt on its nodes is waited for, in words.
    NodesWait(AttemptNo, String),
    /// A Ray cluster was asked before a launch.
    Cluster {
        act: ActId,
        order: LaunchOrder,
        said: Result<Cluster, String>,
    },
    /// The GPUs were looked at before a launch, so often.
    Gpus {
        act: ActId,
        order: LaunchOrder,
        looks: usize,
        said: Result<Gpus, String>,
    },
    /// The work of the GPUs over some seconds; `None`: nobody tells it any more.
    Devices(Option<Vec<DevicePulse>>),
    /// Slurm was asked before a launch.
    Slurm {
        act: ActId,
        order: LaunchOrder,
        said: Result<Vec<Job>, String>,
    },
    /// Slurm was asked about the nodes before a launch.
    Nodes {
        act: ActId,
        order: LaunchOrder,
        said: Result<Places, String>,
    },
    /// The scheduler was asked when its job ends.
    Allocation(Box<Allocation>),
    /// A relaunch was tried in advance; `None`: it was not tried to its end.
    Rehearsed(Option<Rehearsed>),
    /// A helper that gathers evidence has its order; this is its input.
    Asking(AttemptNo, ChildStdin),
    /// Evidence of an attempt, or that there will be none.
    Evidence(AttemptNo, Option<Box<Facts>>),
    /// The cause that the logs of an attempt tell, or that nobody read them.
    Logs(AttemptNo, Option<Box<LogCause>>),
    /// Somebody asks over the control socket.
    Asked(ControlRequest, oneshot::Sender<ControlReply>),
}
