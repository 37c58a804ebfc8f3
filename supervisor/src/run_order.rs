//! What preparation hands over: to a person, and to the driver, which knows nothing of it.

use camino::Utf8PathBuf;
use supervise_config::ConfigTree;
use supervise_config::settings::Settings;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::RunSpec;
use supervise_host::interpreter::Interpreter;
use supervise_host::io_worker::Room;
use supervise_host::script::{Shims, Submitter};
use supervise_trainers::TrainerFacts;

/// What is to be run, and what a person should know of it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Everything that a term needs.
    pub order: RunOrder,
    /// Space for checkpoints, where the file system tells.
    pub room: Option<Room>,
    /// What a person should know before the launch.
    pub findings: Vec<Finding>,
    /// Smaller things worth saying.
    pub notes: Vec<String>,
    /// The configuration as it counts for the trainer.
    pub tree: ConfigTree,
    /// Which release of the trainer would run.
    pub release: Release,
}

/// What is known of the release that would run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// The trainer's version.
    pub version: Option<String>,
    /// What the interpreter said, where it was asked and answered.
    pub interpreter: Option<Interpreter>,
    /// Why the version is not known.
    pub why: Option<String>,
}

/// Everything that a term needs.
#[derive(Debug, Clone)]
pub struct RunOrder {
    /// The specification.
    pub spec: RunSpec,
    /// What every launch needs beside it.
    pub facts: TrainerFacts,
    /// The supervisor's settings.
    pub settings: Settings,
    /// Where this run is listed for `status`.
    pub registry: Option<Utf8PathBuf>,
    /// What stands in the way of a script.
    pub shims: Option<Shims>,
    /// What stands in the way of jobs that are handed to Slurm.
    pub submitter: Option<Submitter>,
    /// The trainer's YAML as it is given to the trainer, where it is not the user's own file.
    pub copy: Option<Copy>,
}

/// The trainer's YAML without our block, for a trainer that refuses a key that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The directory, in the run directory.
    pub dir: Utf8PathBuf,
    /// Its name there, which tells what it says.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Copy {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> Utf8PathBuf {
        self.dir.join(&self.name)
    }
}
