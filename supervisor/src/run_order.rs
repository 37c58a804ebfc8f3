//! What a term is given: made by preparation, carried out by the driver, which know nothing of each other.

use camino::Utf8PathBuf;
use supervise_config::settings::Settings;
use supervise_core::spec::RunSpec;
use supervise_host::script::{Shims, Submitter};
use supervise_trainers::TrainerFacts;

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
