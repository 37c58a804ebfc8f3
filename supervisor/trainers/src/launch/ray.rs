//! The Ray cluster of a launch, for any trainer.
//!
//! Ray takes an explicit address, else `RAY_ADDRESS`, else the cluster that `ray start` last started on this machine,
//! else it starts its own. The third is a trap: a run would silently join someone else's cluster, or fail because
//! that one is dead.

use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::Finding;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::{GangSpec, LauncherKind, RunSpec};

/// The variable in which every `ray.init` looks for a cluster.
pub(crate) const ADDRESS: &str = "RAY_ADDRESS";
/// The variable in which it looks for its temporary directory.
pub(crate) const TEMP: &str = "RAY_TMPDIR";
/// Ray refuses longer socket paths (107 bytes); its own part below the directory takes up to 68 of them.
const TEMP_LIMIT: usize = 107 - 68;

/// The Ray cluster of a trainer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RayMode {
    #[default]
    Unused,
    /// Its own: the driver process starts it and it stops with the driver.
    Own {
        /// We choose its temporary directory.
        apart: bool,
    },
    /// Started by the user's script before it calls the trainer; it stops with each attempt.
    Scripted,
    /// Started by someone else.
    Cluster {
        /// As `ray.init` takes it; `None`: the one that `ray start` started on this machine.
        address: Option<String>,
        /// Where the address comes from: a key, a variable.
        by: String,
        nodes: u32,
        /// GPUs that it must have, if the trainer counts GPUs and the configuration says how many.
        gpus: Option<u32>,
    },
    /// Spans the nodes of an allocation; we start it for each attempt and it stops with it.
    Started {
        nodes: u32,
        /// GPUs per machine, if the trainer counts GPUs and the configuration says how many.
        gpus: Option<u32>,
        /// Further options of `ray start` on each machine.
        options: Vec<String>,
        /// We choose its temporary directory.
        apart: bool,
    },
    /// The command hands the trainer to a cluster and only waits for it (`ray job submit`).
    Submitted,
}

/// The workers of a launch: the driver process alone, or with a cluster.
pub(crate) fn gang(ray: &RayMode) -> GangSpec {
    match ray {
        RayMode::Started { nodes, .. } => GangSpec {
            launcher: LauncherKind::Ray,
            workers: *nodes,
            nodes: *nodes,
            gpus: Vec::new(),
        },
        _ => GangSpec::driver(),
    }
}

/// Where Ray would put its files anyway, but in a directory of this attempt alone.
pub(crate) fn scratch(tmp: Option<&str>, spec: &RunSpec, order: &LaunchOrder) -> Utf8PathBuf {
    let name = format!("ray-{}-{}", spec.run, order.attempt.0);
    let usual = Utf8Path::new("/tmp").join(&name);
    tmp.map(Utf8Path::new)
        .filter(|t| t.is_absolute())
        .map(|t| t.join(&name))
        .filter(|dir| dir.as_str().len() <= TEMP_LIMIT)
        .unwrap_or(usual)
}

pub(crate) fn findings(ray: &RayMode) -> Option<Finding> {
    match ray {
        RayMode::Unused | RayMode::Submitted => None,
        RayMode::Scripted => Some(Finding::note(
            "ray_script",
            "Ray: the script starts a cluster (`ray start`), and the trainer finds it by itself; it ends with each attempt, and the script starts it again",
        )),
        RayMode::Own { .. } => Some(Finding::note(
            "ray_own",
            "Ray: the driver starts a cluster of its own on this machine, which ends with it; one that runs here already is not joined \
             (RAY_ADDRESS=auto would join it)",
        )),
        RayMode::Started { nodes, .. } => Some(Finding::note(
            "ray_started",
            format!(
                "Ray: a cluster over {nodes} nodes of the allocation is started for each attempt, and ends with it; the driver runs on the \
                 first node"
            ),
        )),
        RayMode::Cluster { address, by, .. } if address.as_deref() == Some("auto") => Some(Finding::warning(
            "ray_cluster",
            format!(
                "Ray: {by} says `auto`: the cluster that `ray start` began here, and where there is none, any whose head runs on this \
                 machine, another run's own as well; say its address"
            ),
        )),
        RayMode::Cluster { address, by, .. } => {
            let which = address
                .as_deref()
                .unwrap_or("the cluster that `ray start` began on this machine");
            Some(Finding::note(
                "ray_cluster",
                format!("Ray: {which} is used, as {by} says; it was started by somebody else and is never ended here"),
            ))
        }
    }
}
