//! The Ray cluster of a launch.

/// The Ray cluster of a trainer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ray {
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
