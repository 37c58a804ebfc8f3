//! A Slurm cluster for one test, and what is done on it.

use super::{Refusal, Scene, eventually};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A cluster of its own; it is gone when this goes.
#[derive(Debug)]
pub struct Cluster<'a> {
    script: &'static str,
    dir: PathBuf,
    scene: &'a Scene,
}

/// Clusters of this process so far: each has ports of its own.
static MADE: AtomicU16 = AtomicU16::new(0);

/// A call of the script that makes the cluster.
fn call(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed").join(script));
    // A process that ends well is gone at once; a machine that has much else to do gets the time that Slurm gives by default.
    command.args(arguments).env("KILLWAIT", "30").stdin(Stdio::null());
    command
}

impl<'a> Cluster<'a> {
    /// Makes one with a script of `testbed/`: `slurm.sh`, or `slurm-nodes.sh`.
    ///
    /// # Errors
    /// It cannot be made on this machine.
    pub fn new(scene: &'a Scene, script: &'static str) -> Result<Self, Refusal> {
        Self::with(scene, script, &[])
    }

    /// The same, with variables that the script heeds.
    ///
    /// # Errors
    /// It cannot be made on this machine.
    pub fn with(scene: &'a Scene, script: &'static str, variables: &[(&str, &str)]) -> Result<Self, Refusal> {
        let made = call(script, &["install"]).output().unwrap();
        if !made.status.success() || !nix::unistd::geteuid().is_root() {
            return Err(Refusal::new(&format!(
                "root and Slurm's daemons are needed: {}",
                String::from_utf8_lossy(&made.stderr)
            )));
        }
        let cluster = Self {
            script,
            dir: scene.path("cluster"),
            scene,
        };
        let port = free_ports().to_string();
        // Its daemons keep what they inherit: no pipe of ours.
        let log = scene.path("cluster.log");
        let status = call(script, &["up", cluster.dir.to_str().unwrap(), &port])
            .envs(variables.iter().copied())
            .stdout(fs::File::create(&log).unwrap())
            .stderr(fs::File::options().append(true).open(&log).unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "{}", fs::read_to_string(log).unwrap());
        Ok(cluster)
    }

    /// One of Slurm's programs, or `supervise`, as in a shell of this cluster.
    #[must_use]
    pub fn run(&self, argv: &[&str]) -> (bool, String) {
        let mut command = match argv[0] {
            "supervise" => self.scene.supervise(&argv[1..]),
            program => self.scene.other(Path::new(program)),
        };
        if argv[0] != "supervise" {
            command.args(&argv[1..]);
        }
        let out = command
            .env("SLURM_CONF", self.dir.join("etc/slurm.conf"))
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// The same, which has to succeed; its words.
    pub fn does(&self, argv: &[&str]) -> String {
        let (ok, text) = self.run(argv);
        assert!(ok, "{argv:?}: {text}");
        text
    }

    /// Submits the run as a person does. Returns the job's number.
    #[must_use]
    pub fn submit(&self) -> String {
        self.submit_with(&[])
    }

    /// The same, with more options of sbatch.
    #[must_use]
    pub fn submit_with(&self, more: &[&str]) -> String {
        let config = self.scene.write_config();
        let config = config.to_str().unwrap();
        let ours = ["supervise", "sbatch", config, "--submit", "--name", "demo"];
        let slurms = ["--", "--time=30", "--output=job.out"];
        let said = self.does(&[&ours[..], &slurms, more].concat());
        let rest = said.strip_prefix("job ").unwrap_or_default();
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        assert!(!number.is_empty(), "{said}");
        number
    }

    /// A property of a job, as `scontrol` prints it.
    #[must_use]
    pub fn property(&self, job: &str, name: &str) -> String {
        let text = self.does(&["scontrol", "--oneliner", "show", "job", job]);
        let mut words = text.split_whitespace().filter_map(|word| word.split_once('='));
        words
            .find(|(n, _)| *n == name)
            .map_or_else(String::new, |(_, value)| value.to_owned())
    }

    /// Waits until a job has ended; its state.
    #[must_use]
    pub fn ends(&self, job: &str) -> String {
        eventually("the job has ended", || {
            let state = self.property(job, "JobState");
            ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]
                .contains(&state.as_str())
                .then_some(state)
        })
    }

    /// Something done to a node: `cut`, `heal`, `power-off`, `power-on`.
    pub fn node(&self, what: &str, node: &str) {
        let status = call(self.script, &[what, self.dir.to_str().unwrap(), node]).status();
        assert!(status.unwrap().success(), "{what} {node}");
    }

    /// Ends the controller, or starts it again: `stop`, `start`.
    pub fn controller(&self, what: &str) {
        let status = call(self.script, &[what, self.dir.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{what}");
    }

    /// Output of the jobs so far.
    #[must_use]
    pub fn output(&self) -> String {
        fs::read_to_string(self.scene.path("job.out")).unwrap_or_default()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = call(self.script, &["down", self.dir.to_str().unwrap()]).status();
    }
}

/// The first of four ports in a row that nobody has now. None is of those that the kernel gives to whoever asks for any: another program
/// could get it before the daemons do.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
    let before = MADE.fetch_add(1, Ordering::SeqCst) * 8;
    let first = 20_000 + u16::try_from(std::process::id() % 2_500).unwrap() * 4 + before;
    (first..32_000)
        .step_by(4)
        .find(|port| (0..4).all(|n| is_free(*port + n)))
        .unwrap()
}
