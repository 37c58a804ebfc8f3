//! The result of preparation, for people and for the driver.

use camino::Utf8PathBuf;
use supervise_config::ConfigTree;
use supervise_config::settings::{InterpreterChoice, Settings};
use supervise_core::checkpoint::Finding;
use supervise_core::spec::RunSpec;
use supervise_host::interpreter::PythonInfo;
use supervise_host::io_worker::SaveSpace;
use supervise_host::script::{Shims, Submitter};
use supervise_trainers::{SaveDoor, TrainerFacts, registry};

/// A prepared run, with what the user should know about it.
#[derive(Debug, Clone)]
pub struct PreparedRun {
    /// Everything that a term needs.
    pub order: RunOrder,
    /// Space for checkpoints, if known.
    pub room: Option<SaveSpace>,
    /// Findings to show before the launch.
    pub findings: Vec<Finding>,
    /// Smaller notes.
    pub notes: Vec<String>,
    /// The configuration as the trainer will see it.
    pub tree: ConfigTree,
    /// Release of the trainer that would run.
    pub release: TrainerRelease,
    /// Why no program was started to find out more.
    pub left_out: Option<String>,
    /// Settings files that were read, lowest priority first.
    pub settings_files: Vec<Utf8PathBuf>,
    /// The exit code with which `run` would end at once on this machine; a plan may be made on another one.
    pub refused: Option<u8>,
}

/// The trainer release that would run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainerRelease {
    pub version: Option<String>,
    /// The interpreter's answer, if it was asked and answered.
    pub interpreter: Option<PythonInfo>,
    /// Why the version is unknown.
    pub why: Option<String>,
}

/// Everything that a term needs.
#[derive(Debug, Clone)]
pub struct RunOrder {
    pub spec: RunSpec,
    /// Settings that every launch needs besides the specification.
    pub facts: TrainerFacts,
    /// The supervisor's settings.
    pub settings: Settings,
    /// The file that lists this run for `status`.
    pub registry: Option<Utf8PathBuf>,
    /// Shims for a script.
    pub shims: Option<Shims>,
    /// Shims for jobs that are submitted to Slurm.
    pub submitter: Option<Submitter>,
    /// The configuration as people may read it later: JSON, secrets hidden.
    pub told: String,
    /// The YAML for the trainer, if it is not the user's own file.
    pub copy: Option<ConfigCopy>,
}

/// Rank launchers that are Python programs.
const LAUNCHERS: [&str; 3] = ["torchrun", "accelerate", "deepspeed"];
/// Programs that exec the command after them, in the same environment.
const WRAPPERS: [&str; 2] = ["env", "nohup"];
/// The value of `supervisor.trainer` for a command without known checkpoints.
const PLAIN_SAID: &str = "plain";

impl RunOrder {
    /// Python code that runs first in the interpreters of this run, if its command does not show its trainer. Not used if the user
    /// declared the command plain.
    #[must_use]
    pub fn hook(&self, spec: &RunSpec, argv: &[String]) -> Option<&'static str> {
        let policy = &spec.policy;
        let wished = policy.recovers();
        let ours = self.settings.interpreter == InterpreterChoice::Auto && spec.gang.nodes <= 1;
        let is_said = self.settings.trainer.as_str() == PLAIN_SAID;
        registry::hook(spec).filter(|_| wished && ours && !is_said && is_python(argv))
    }

    /// Whether a running attempt can be asked to save.
    #[must_use]
    pub fn save_door(&self) -> SaveDoor {
        let no = |why: &str| SaveDoor::None { why: why.to_owned() };
        let spec = &self.spec;
        if !spec.policy.assist.save_requests {
            return no("assist.save_requests is false");
        }
        if !spec.policy.recovers() {
            return no("nothing is changed in the trainer without recovery");
        }
        let door = registry::adapter_of(spec).save_door(spec, &self.facts);
        if spec.save_door && !door.is_open() {
            // Its configuration says so.
            return SaveDoor::Open {
                how: "the trainer itself",
                python: &[],
            };
        }
        if door.python().is_none() {
            return door;
        }
        if self.settings.interpreter != InterpreterChoice::Auto {
            return no("supervisor.interpreter is plain");
        }
        if spec.gang.nodes > 1 {
            return no("the ranks are on several nodes");
        }
        match is_python(&spec.command) {
            true => door,
            false => no("supervise does not start the trainer's interpreter itself"),
        }
    }
}

/// Returns true if the command starts an interpreter, or a launcher that is a Python program.
fn is_python(argv: &[String]) -> bool {
    let base = |p: &String| p.rsplit('/').next().unwrap_or(p).to_owned();
    let is_wrapper = |word: &&String| WRAPPERS.contains(&base(word).as_str()) || word.contains('=');
    let mut words = argv.iter().skip_while(is_wrapper);
    let program = words.next().map(base);
    // Without its environment or its site module, it runs none of our code.
    let mut switches = words.take_while(|w| w.starts_with('-') && !matches!(w.as_str(), "-c" | "-m"));
    let has_value = |word: &String| ["--", "-W", "-X"].iter().any(|begin| word.starts_with(begin));
    let is_deaf = |word: &String| !has_value(word) && word.contains(['E', 'I', 'S']);
    program.is_some_and(|p| p.starts_with("python") && !switches.any(is_deaf) || LAUNCHERS.contains(&p.as_str()))
}

/// The trainer's YAML without our block, for a trainer that rejects unknown keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigCopy {
    /// The directory, inside the run directory.
    pub dir: Utf8PathBuf,
    /// The file name, which identifies the content.
    pub name: String,
    pub text: String,
}

impl ConfigCopy {
    #[must_use]
    pub fn path(&self) -> Utf8PathBuf {
        self.dir.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::is_python;

    #[test]
    fn what_hears_us_is_an_interpreter_in_our_environment() {
        let hears = |text: &str| is_python(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for heard in [
            "python3 t.py",
            "/v/bin/python3.11 -u -Wignore::SyntaxWarning t.py -E",
            "env A=E nohup python3 t.py",
            "torchrun --nproc_per_node 2 t.py",
            "python3 -m torch.distributed.run t.py",
        ] {
            assert!(hears(heard), "{heard}");
        }
        for deaf in [
            "python3 -E t.py",
            "python3 -uI t.py",
            "python3 -S -m m",
            "bash t.sh",
            "uv run t.py",
            "",
        ] {
            assert!(!hears(deaf), "{deaf}");
        }
    }
}
