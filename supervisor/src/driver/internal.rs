//! Messages of the driver's own tasks.

use super::jobs::ExitWitness;
use crate::control::{ControlReply, ControlRequest};
use crate::notify::NotifyResult;
use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::id::{ActId, AttemptNo, ProcRef};
use supervise_core::journal::record::LaunchOrder;
use supervise_core::observe::activity::DevicePulse;
use supervise_core::observe::machine::MachineFacts;
use supervise_core::rulebook::log_cause::LogCause;
use supervise_host::allocation::SlurmAllocation;
use supervise_host::cluster::RayStatus;
use supervise_host::gpus::GpuReport;
use supervise_host::guard::nodes::allocation::AllocatedNodes;
use supervise_trainers::slurm::SlurmJob;
use tokio::process::ChildStdin;
use tokio::sync::oneshot;

/// A message from one of our own tasks.
#[derive(Debug)]
pub(super) enum DriverMessage {
    /// A fence or a sweep without a guard came to its end.
    Swept {
        attempt: AttemptNo,
        unkillable: Vec<ProcRef>,
    },
    /// Something is to be told.
    Note(String),
    /// Somebody was told of an event, or could not be.
    Told(String, Vec<NotifyResult>),
    /// Ray or Slurm was asked to end the jobs of an attempt, or its nodes were waited for.
    JobEnded {
        attempt: AttemptNo,
        seen: ExitWitness,
        said: Result<(), String>,
    },
    /// The end of an attempt on its nodes is waited for, in words.
    NodesWait(AttemptNo, String),
    /// A Ray cluster was asked before a launch.
    Cluster {
        act: ActId,
        order: LaunchOrder,
        said: Result<RayStatus, String>,
    },
    /// The GPUs were looked at before a launch, so often.
    Gpus {
        act: ActId,
        order: LaunchOrder,
        looks: usize,
        said: Result<GpuReport, String>,
    },
    /// The work of the GPUs over some seconds; `None`: nobody tells it any more.
    Devices(Option<Vec<DevicePulse>>),
    /// Slurm was asked before a launch.
    Slurm {
        act: ActId,
        order: LaunchOrder,
        said: Result<Vec<SlurmJob>, String>,
    },
    /// Slurm was asked about the nodes before a launch.
    Nodes {
        act: ActId,
        order: LaunchOrder,
        said: Result<AllocatedNodes, String>,
    },
    /// The scheduler was asked when its job ends.
    Allocation(Box<SlurmAllocation>),
    /// A relaunch was tried in advance; `None`: it was not tried to its end.
    Rehearsed(Option<RehearsalResult>),
    /// A helper that gathers evidence has its order; this is its input.
    Asking(AttemptNo, ChildStdin),
    /// Evidence of an attempt, or that there will be none.
    Evidence(AttemptNo, Option<Box<MachineFacts>>),
    /// The cause that the logs of an attempt tell, or that nobody read them.
    Logs(AttemptNo, Option<Box<LogCause>>),
    /// Somebody asks over the control socket.
    Asked(ControlRequest, oneshot::Sender<ControlReply>),
}
