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

#[derive(Debug)]
pub(super) enum DriverMessage {
    /// A fence or a sweep without a guard finished.
    Swept {
        attempt: AttemptNo,
        unkillable: Vec<ProcRef>,
    },
    Note(String),
    Told(String, Vec<NotifyResult>),
    /// The scheduler answered about an attempt's jobs, or its nodes were waited for.
    JobEnded {
        attempt: AttemptNo,
        seen: ExitWitness,
        said: Result<(), String>,
    },
    /// What the end of an attempt on its nodes waits for.
    NodesWait(AttemptNo, String),
    /// A Ray cluster answered before a launch.
    Cluster {
        act: ActId,
        order: LaunchOrder,
        said: Result<RayStatus, String>,
    },
    /// The GPUs were checked before a launch; `looks` counts the checks.
    Gpus {
        act: ActId,
        order: LaunchOrder,
        looks: usize,
        said: Result<GpuReport, String>,
    },
    /// GPU activity over some seconds; `None`: no longer reported.
    Devices(Option<Vec<DevicePulse>>),
    /// Slurm answered before a launch.
    Slurm {
        act: ActId,
        order: LaunchOrder,
        said: Result<Vec<SlurmJob>, String>,
    },
    /// Slurm answered about the nodes before a launch.
    Nodes {
        act: ActId,
        order: LaunchOrder,
        said: Result<AllocatedNodes, String>,
    },
    /// The scheduler said when its job ends.
    Allocation(Box<SlurmAllocation>),
    /// The result of a rehearsal; `None`: it was interrupted.
    Rehearsed(Option<RehearsalResult>),
    /// An evidence helper has its order; this is its input.
    Asking(AttemptNo, ChildStdin),
    /// Evidence of an attempt; `None`: there will be none.
    Evidence(AttemptNo, Option<Box<MachineFacts>>),
    /// The cause found in an attempt's logs; `None`: they were not read.
    Logs(AttemptNo, Option<Box<LogCause>>),
    Asked(ControlRequest, oneshot::Sender<ControlReply>),
}
