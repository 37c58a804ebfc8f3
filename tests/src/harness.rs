//! A stage for tests of `supervise run`: a folder, a trainer's YAML, and everything that lives there.
//!
//! Each scene has its own home, its own checkpoint root and its own mark in the environment, by which every
//! process that descends from it is found. A scene that goes ends what it left. Waiting is polling with a limit
//! that only a hanging program reaches; nothing is asserted about how long something took.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod browser;
mod disk;
mod elsewhere;
mod gang;
mod look;
mod processes;
mod running;
mod slurm;
mod tmux;
mod user;

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use browser::Browser;
pub use disk::{Mount, Refusal};
pub use elsewhere::{Container, Overlay};
pub use gang::Gang;
pub use processes::{alive, cmdline, in_scene, send};
pub use running::{Ended, Supervisor};
pub use slurm::Cluster;
pub use tmux::Tmux;

/// Longer than anything takes here, on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// The variable that marks the processes of a scene.
pub const MARK: &str = "E2E_SCENE";

/// A folder with a run in it.
#[derive(Debug)]
pub struct Scene {
    folder: tempfile::TempDir,
    programs: PathBuf,
    yaml: Value,
    env: Vec<(String, String)>,
    started: AtomicU32,
    /// The user that runs `supervise`; `None`: whoever runs the tests.
    user: Option<u32>,
}

impl Scene {
    /// A scene with two ranks, twelve steps, a save at every second one, and no faults. `supervise` and the
    /// trainers stand in one directory.
    #[must_use]
    pub fn new(supervise: &str) -> Scene {
        let mut scene = Scene::demo(supervise);
        scene
            .set("demo.faults", json!([]))
            .set("demo.hidden", json!([24, 16]))
            .set("demo.step_ms", json!(20))
            .set("trainer.n_gpus_per_node", json!(2))
            .set("trainer.total_training_steps", json!(12))
            .set("trainer.max_actor_ckpt_to_keep", Value::Null)
            .set("supervisor.gang.workers", json!(2))
            .set("supervisor.backoff", json!({"initial": "10ms", "jitter": 0.0}))
            .set("supervisor.scan_interval", json!("200ms"));
        scene
    }

    /// The configuration of `examples/configs/demo.yaml`, with its faults.
    #[must_use]
    pub fn demo(supervise: &str) -> Scene {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configs/demo.yaml");
        let folder = tempfile::Builder::new().prefix("supervise-e2e.").tempdir().unwrap();
        let mut scene = Scene {
            programs: Path::new(supervise).parent().unwrap().to_owned(),
            yaml: serde_yaml::from_str(&fs::read_to_string(config).unwrap()).unwrap(),
            env: Vec::new(),
            started: AtomicU32::new(0),
            user: None,
            folder,
        };
        fs::create_dir(scene.path("home")).unwrap();
        scene
            .set_root(&scene.path("checkpoints"))
            // Its processes are found by its name.
            .set(
                "supervisor.command",
                json!(["demo_trainer", "--config", "{config}", "{overrides}"]),
            );
        scene
    }

    /// Changes the trainer's YAML.
    pub fn set(&mut self, key: &str, value: Value) -> &mut Self {
        let mut here = &mut self.yaml;
        for name in key.split('.') {
            if !here.is_object() {
                *here = json!({});
            }
            here = here.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
        }
        *here = value;
        self
    }

    /// Another checkpoint root.
    pub fn set_root(&mut self, root: &Path) -> &mut Self {
        self.set("trainer.default_local_dir", json!(root))
    }

    /// One thing that goes wrong, once or in every attempt.
    pub fn fault(&mut self, kind: &str, step: u64, repeat: bool) -> &mut Self {
        self.set("demo.faults", json!([{"kind": kind, "step": step}]))
            .set("demo.repeat_fault", json!(repeat))
    }

    /// A variable for `supervise` and all below it.
    pub fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A path in the scene's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// The folder as it marks its processes.
    #[must_use]
    pub fn mark(&self) -> String {
        self.path("").display().to_string()
    }

    /// The checkpoint root.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(self.yaml["trainer"]["default_local_dir"].as_str().unwrap())
    }

    /// The run directory.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        match self.yaml["supervisor"]["run_dir"].as_str() {
            Some(dir) => PathBuf::from(dir),
            None => self.root().join(".supervise"),
        }
    }

    /// A step's directory.
    #[must_use]
    pub fn step(&self, step: u64) -> PathBuf {
        self.root().join(format!("global_step_{step}"))
    }

    /// The trainer's pointer.
    #[must_use]
    pub fn tracker(&self) -> PathBuf {
        self.root().join("latest_checkpointed_iteration.txt")
    }

    /// The step that the trainer's pointer names: its save is over.
    #[must_use]
    pub fn tracked(&self) -> Option<u64> {
        fs::read_to_string(self.tracker()).ok()?.trim().parse().ok()
    }

    /// Lets a held trainer go on (`demo.hold_at`).
    pub fn go(&self) {
        let beside = self.root().parent().unwrap().join("go");
        fs::write(beside, "").unwrap();
    }

    /// Holds the next trainer that comes to its step again.
    pub fn hold(&self) {
        let _ = fs::remove_file(self.root().parent().unwrap().join("go"));
    }

    /// Writes the YAML as it is now.
    pub fn write_config(&self) -> PathBuf {
        let (path, draft) = (self.path("demo.yaml"), self.path("demo.yaml.draft"));
        // A trainer that is just being launched reads it as a whole.
        fs::write(&draft, serde_yaml::to_string(&self.yaml).unwrap()).unwrap();
        fs::rename(&draft, &path).unwrap();
        path
    }

    /// A program that stands beside `supervise`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// `supervise` with these arguments, in this scene.
    #[must_use]
    pub fn supervise(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program("supervise"));
        command.args(arguments);
        self.dress(&mut command);
        command
    }

    fn dress(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("SUPERVISE_")) {
            command.env_remove(name);
        }
        let mut path = vec![self.programs.clone()];
        path.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
        command
            .current_dir(self.path(""))
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("HOME", self.path("home"))
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env(MARK, self.mark())
            .envs(self.env.iter().map(|(n, v)| (n, v)))
            .stdin(Stdio::null());
    }

    /// Starts `supervise run` on the YAML as it is now.
    #[must_use]
    pub fn start(&self, more: &[&str]) -> Supervisor {
        let config = self.write_config();
        let mut arguments = vec!["run", config.to_str().unwrap()];
        arguments.extend(more);
        self.start_with(&arguments)
    }

    /// Starts `supervise` with these arguments.
    #[must_use]
    pub fn start_with(&self, arguments: &[&str]) -> Supervisor {
        let mut command = self.supervise(arguments);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        Supervisor::start(command, self.output())
    }

    /// Starts a command of no trainer that is known, with these settings (`retries=0`).
    #[must_use]
    pub fn start_plain(&self, settings: &[&str], command: &[&str]) -> Supervisor {
        let settings: Vec<String> = ["trainer=plain"]
            .iter()
            .chain(settings)
            .map(|s| format!("supervisor.{s}"))
            .collect();
        let mut words = vec!["run"];
        words.extend(settings.iter().flat_map(|s| ["--set", s]));
        words.push("--");
        words.extend(command);
        self.start_with(&words)
    }

    /// Starts a command that leads to `supervise`, in this scene.
    pub(crate) fn start_command(&self, mut command: Command) -> Supervisor {
        self.dress(&mut command);
        Supervisor::start(command, self.output())
    }

    /// Starts `supervise run` as a member of the control group with this list of processes.
    #[must_use]
    pub fn start_in_group(&self, procs: &Path) -> Supervisor {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ >\"$1\" && exec \"$2\" run \"$3\"", "sh"])
            .args([procs, &self.program("supervise"), &self.write_config()]);
        self.start_command(command)
    }

    /// Starts `supervise run` from a copy of the program, which can be deleted while it runs.
    #[must_use]
    pub fn start_copy(&self, copy: &Path) -> Supervisor {
        fs::copy(self.program("supervise"), copy).unwrap();
        let mut command = Command::new(copy);
        command.arg("run").arg(self.write_config());
        self.start_command(command)
    }

    fn output(&self) -> PathBuf {
        let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        self.path(&format!("supervise-{number}.out"))
    }

    /// Runs `supervise run` to its end.
    #[must_use]
    pub fn run(&self, more: &[&str]) -> Ended {
        self.start(more).wait()
    }

    /// Runs another subcommand to its end.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Ended {
        self.start_with(arguments).wait()
    }

    /// `supervise status --json` for this run; null where it knows nothing.
    #[must_use]
    pub fn status(&self) -> Value {
        let root = self.root();
        let ended = self.ask(&["status", root.to_str().unwrap(), "--json"]);
        let text = ended
            .text
            .lines()
            .filter(|l| !l.starts_with("note:"))
            .collect::<Vec<_>>()
            .join("\n");
        let list: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        list.get(0).cloned().unwrap_or(Value::Null)
    }

    /// Digest that the trainer left at its end.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        let beside = self.root().parent().unwrap().join("digest.txt");
        fs::read_to_string(beside).ok().map(|d| d.trim().to_owned())
    }

    /// The digest that an uninterrupted run of this configuration ends with, without `supervise`.
    #[must_use]
    pub fn expected_digest(&self) -> String {
        let mut straight = Scene::demo(self.program("supervise").to_str().unwrap());
        let root = straight.root();
        straight.yaml = self.yaml.clone();
        straight
            .set_root(&root)
            .set("demo.faults", json!([]))
            .set("demo.step_ms", json!(0))
            .set("demo.save_ms", json!(0))
            .set("demo.hold_at", Value::Null)
            .set("trainer.resume_mode", json!("auto"));
        straight.train(&[]);
        straight.digest().unwrap()
    }

    /// Runs the trainer to its end without `supervise`.
    pub fn train(&self, overrides: &[&str]) {
        let codes = Gang::start(self, overrides).wait();
        assert!(codes.iter().all(|c| *c == Some(0)), "{codes:?}");
    }

    /// Another program in this scene, which is no business of `supervise`.
    #[must_use]
    pub fn other(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.dress(&mut command);
        command
    }

    /// Prints the end of the last `supervise run`: a reader of a failed test needs it.
    #[expect(
        clippy::print_stderr,
        reason = "kept by the test's own output, where the failure stands"
    )]
    fn tell_the_last_words(&self) {
        let last = self.started.load(Ordering::SeqCst);
        let said = fs::read_to_string(self.path(&format!("supervise-{last}.out"))).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let end = lines.len().saturating_sub(30);
        eprintln!("supervise-{last}.out ends with:\n{}", lines[end..].join("\n"));
    }

    pub(crate) fn world(&self) -> u64 {
        self.yaml["trainer"]["n_gpus_per_node"].as_u64().unwrap()
    }

    pub(crate) fn dressed(&self, program: &str) -> Command {
        let mut command = Command::new(self.program(program));
        self.dress(&mut command);
        command
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            let left = self.living();
            if left.is_empty() {
                break;
            }
            left.iter().for_each(|(pid, _)| send(*pid, 9));
            std::thread::sleep(Duration::from_millis(20));
        }
        if std::thread::panicking() {
            self.tell_the_last_words();
        }
        // For people who want to see what happened.
        if std::env::var_os("E2E_KEEP").is_some() {
            self.folder.disable_cleanup(true);
        }
    }
}

/// Polls until something is there.
///
/// # Panics
/// It does not come.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    match until(PATIENCE, || look().ok_or(())) {
        Ok(found) => found,
        Err(()) => panic!("it never came: {what}"),
    }
}

/// Polls until a condition holds.
///
/// # Panics
/// It never does.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

fn until<T, E>(limit: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + limit;
    loop {
        match look() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(15)),
            result => return result,
        }
    }
}

/// Names in a folder, sorted; empty where it cannot be read.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Copies a tree as `cp -r` does: new times of modification.
///
/// # Errors
/// The system's.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            let bytes = fs::read(entry.path())?;
            fs::write(target, bytes)?;
        }
    }
    Ok(())
}

/// Every path of a tree with size and time of modification.
#[must_use]
pub fn snapshot(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for name in names(folder) {
        let path = folder.join(name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() {
            found.extend(snapshot(&path));
        }
        found.push((
            path,
            if meta.is_dir() { 0 } else { meta.len() },
            meta.modified().unwrap(),
        ));
    }
    found
}

/// Numbers that follow from a seed, for moments at which something is killed.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed; `E2E_SEED` moves all of them.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let moved = std::env::var("E2E_SEED").ok().and_then(|s| s.parse::<u64>().ok());
        let seed = seed.wrapping_add(moved.unwrap_or(0).wrapping_mul(1000));
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Sleeps between `low` and `high` milliseconds.
    pub fn sleep(&mut self, low: u64, high: u64) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        std::thread::sleep(Duration::from_millis(low + self.0 % (high - low).max(1)));
    }
}
