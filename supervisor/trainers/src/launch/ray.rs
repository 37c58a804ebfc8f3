//! The Ray cluster of a launch, whichever trainer's.
//!
//! Ray takes an explicit address, else `RAY_ADDRESS`, else the cluster that `ray start` last began on this machine, else it starts its
//! own. The third is the trap: a run would join a stranger's cluster without a word, or fail because that one is dead.

use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::Finding;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::{GangSpec, LauncherKind, RunSpec};

/// The variable in which every `ray.init` looks for a cluster.
pub(crate) const ADDRESS: &str = "RAY_ADDRESS";
/// The one in which it looks for a place for its files.
pub(crate) const TEMP: &str = "RAY_TMPDIR";
/// Ray refuses sockets with longer names (107 bytes); its own part below the directory takes up to 68 of them.
const TEMP_LIMIT: usize = 107 - 68;

/// The Ray cluster of a trainer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RayMode {
    /// None: the trainer uses no Ray.
    #[default]
    Unused,
    /// Its own, which the driver starts and which ends with it.
    Own {
        /// The place of its files is left to us.
        apart: bool,
    },
    /// One that the user's script starts before it calls the trainer, and that ends with each attempt.
    Scripted,
    /// One that somebody else started.
    Cluster {
        /// As `ray.init` takes it; `None`: the one that `ray start` began on this machine.
        address: Option<String>,
        /// Source of the statement: a key, a variable.
        by: String,
        /// Machines that it must have.
        nodes: u32,
        /// GPUs that it must have, where the trainer counts GPUs and the configuration says how many.
        gpus: Option<u32>,
    },
    /// One over the nodes of an allocation, which is started for each attempt and ends with it.
    Started {
        /// Machines that it must have.
        nodes: u32,
        /// GPUs of each, where the trainer counts GPUs and the configuration says how many.
        gpus: Option<u32>,
        /// Further options of `ray start` on each machine.
        options: Vec<String>,
        /// The place of its files is left to us.
        apart: bool,
    },
    /// The command hands the trainer to a cluster and only waits for it (`ray job submit`).
    Submitted,
}

/// The workers of a launch: the driver alone, or a cluster with it.
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

/// The place where Ray would put its files anyway, but in a directory that no other run and no other attempt has.
pub(crate) fn scratch(tmp: Option<&str>, spec: &RunSpec, order: &LaunchOrder) -> Utf8PathBuf {
    let name = format!("ray-{}-{}", spec.run, order.attempt.0);
    let usual = Utf8Path::new("/tmp").join(&name);
    tmp.map(Utf8Path::new)
        .filter(|t| t.is_absolute())
        .map(|t| t.join(&name))
        .filter(|dir| dir.as_str().len() <= TEMP_LIMIT)
        .unwrap_or(usual)
}

/// Notes for a person about it before the launch.
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
