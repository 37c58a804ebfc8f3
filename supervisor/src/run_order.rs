//! Result of preparation: for a person, and to the driver, which knows nothing of it.

use camino::Utf8PathBuf;
use supervise_config::ConfigTree;
use supervise_config::settings::Settings;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::RunSpec;
use supervise_host::interpreter::Interpreter;
use supervise_host::io_worker::Room;
use supervise_host::script::{Shims, Submitter};
use supervise_trainers::TrainerFacts;

/// The program to run, and what a person should know of it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Everything that a term needs.
    pub order: RunOrder,
    /// Space for checkpoints, where the file system tells.
    pub room: Option<Room>,
    /// Notes for a person before the launch.
    pub findings: Vec<Finding>,
    /// Smaller things worth saying.
    pub notes: Vec<String>,
    /// The configuration as it counts for the trainer.
    pub tree: ConfigTree,
    /// Release of the trainer that would run.
    pub release: Release,
    /// Why no program was started to learn more.
    pub left_out: Option<String>,
    /// Settings files that were read, lowest first.
    pub settings_files: Vec<Utf8PathBuf>,
}

/// Facts about the release that would run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// The trainer's version.
    pub version: Option<String>,
    /// Answer of the interpreter, where it was asked and answered.
    pub interpreter: Option<Interpreter>,
    /// Why the version is not known.
    pub why: Option<String>,
}

/// Everything that a term needs.
#[derive(Debug, Clone)]
pub struct RunOrder {
    /// The specification.
    pub spec: RunSpec,
    /// Settings that every launch needs beside it.
    pub facts: TrainerFacts,
    /// The supervisor's settings.
    pub settings: Settings,
    /// Place where this run is listed for `status`.
    pub registry: Option<Utf8PathBuf>,
    /// Obstacles for a script.
    pub shims: Option<Shims>,
    /// Obstacles for jobs that are handed to Slurm.
    pub submitter: Option<Submitter>,
    /// Its configuration as people may read it later: JSON, secrets hidden.
    pub told: String,
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
