//! A gang over two nodes of a real Slurm cluster: a rank killed, the guard killed, cancelled.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::{Refusal, Scene, eventually, in_scene, send, wait_for};

/// Two nodes of its own; they are gone when this goes.
struct Cluster<'a> {
    dir: PathBuf,
    scene: &'a Scene,
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/slurm-nodes.sh"));
    command.args(arguments).stdin(Stdio::null());
    command
}

impl<'a> Cluster<'a> {
    fn new(scene: &'a Scene) -> Result<Self, Refusal> {
        let made = script(&["install"]).output().unwrap();
        if !made.status.success() || !nix::unistd::geteuid().is_root() {
            return Err(Refusal::new(&format!(
                "root, iproute2 and Slurm's daemons are needed: {}",
                String::from_utf8_lossy(&made.stderr)
            )));
        }
        let cluster = Self {
            dir: scene.path("cluster"),
            scene,
        };
        let port = free_port().to_string();
        // Its daemons keep what they inherit: no pipe of ours.
        let log = scene.path("cluster.log");
        let status = script(&["up", cluster.dir.to_str().unwrap(), &port])
            .stdout(fs::File::create(&log).unwrap())
            .stderr(fs::File::options().append(true).open(&log).unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "{}", fs::read_to_string(log).unwrap());
        Ok(cluster)
    }

    /// One of Slurm's programs, or `supervise`, as in a shell of this cluster.
    fn does(&self, argv: &[&str]) -> String {
        let mut command = match argv[0] {
            "supervise" => self.scene.supervise(&argv[1..]),
            program => self.scene.other(Path::new(program)),
        };
        if argv[0] != "supervise" {
            command.args(&argv[1..]);
        }
        let conf = self.dir.join("etc/slurm.conf");
        let out = command.env("SLURM_CONF", conf).output().unwrap();
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success(), "{argv:?}: {text}");
        text.trim().to_owned()
    }

    /// Submits the run as a person does. Returns the job's number.
    fn submit(&self) -> String {
        let config = self.scene.write_config();
        let config = config.to_str().unwrap();
        let said = self.does(&[
            "supervise",
            "sbatch",
            config,
            "--submit",
            "--name",
            "demo",
            "--",
            "--time=30",
            "--output=job.out",
        ]);
        let number: String = said.chars().skip_while(|c| !c.is_ascii_digit()).collect();
        number.chars().take_while(char::is_ascii_digit).collect()
    }

    fn state(&self, job: &str) -> String {
        let text = self.does(&["scontrol", "--oneliner", "show", "job", job]);
        let word = text.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
        word.unwrap_or_default().to_owned()
    }

    fn ends(&self, job: &str) -> String {
        eventually("the job has ended", || {
            let state = self.state(job);
            ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]
                .contains(&state.as_str())
                .then_some(state)
        })
    }

    fn output(&self) -> String {
        fs::read_to_string(self.scene.path("job.out")).unwrap_or_default()
    }

    /// Ranks, in no order: processes of the trainer on either node.
    fn ranks(&self) -> Vec<i32> {
        let all = in_scene(&self.scene.mark());
        let ranks = all.into_iter().filter(|(_, line)| line.starts_with("demo_trainer "));
        ranks.map(|(pid, _)| pid).collect()
    }

    fn new_ranks(&self, before: &[i32]) -> Vec<i32> {
        eventually("two new ranks run", || {
            let ranks = self.ranks();
            (ranks.len() == 2 && ranks.iter().all(|r| !before.contains(r))).then_some(ranks)
        })
    }

    fn steps(&self) -> String {
        self.does(&["squeue", "--steps", "--noheader", "--format", "%j"])
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = script(&["down", self.dir.to_str().unwrap()]).status();
    }
}

/// The first of three ports in a row that nobody has now, of none that the kernel gives to whoever asks for any.
fn free_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
    let first = 20_000 + u16::try_from(std::process::id() % 2_500).unwrap() * 4;
    (first..32_000)
        .step_by(4)
        .find(|port| (0..3).all(|n| is_free(*port + n)))
        .unwrap()
}

/// Namespace of a process's network: each node has its own.
fn network_of(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

#[test]
fn a_gang_on_two_nodes_goes_on_in_its_allocation() {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.workers", json!(1))
        .set("supervisor.gang.nodes", json!(2));
    let expected = scene.expected_digest();
    let cluster = match Cluster::new(&scene) {
        Ok(cluster) => cluster,
        Err(refusal) => return refusal.tell("a_gang_on_two_nodes_goes_on_in_its_allocation"),
    };
    let job = cluster.submit();
    let first = cluster.new_ranks(&[]);
    assert_ne!(network_of(first[0]), network_of(first[1]), "one rank on each node");
    wait_for("step 4 is proven", || scene.proven() == 4);

    // A rank on either node dies: the attempt after it is in the same allocation, on both.
    send(first[0], libc::SIGKILL);
    let second = cluster.new_ranks(&first);
    send(second[1], libc::SIGKILL);
    let third = cluster.new_ranks(&second);
    assert!(first.iter().chain(&second).all(|pid| !third.contains(pid)));

    // So does the guard: the step that it had started is ended before another one begins.
    let guards = scene.guards();
    send(guards[0], libc::SIGKILL);
    let fourth = cluster.new_ranks(&third);
    assert_eq!(
        cluster.steps().lines().filter(|s| s.starts_with("supervise-")).count(),
        1
    );

    // It is cancelled: nothing is left on either node, and it goes on where it was.
    cluster.does(&["scancel", &job]);
    assert_eq!(cluster.ends(&job), "CANCELLED");
    wait_for("nothing of it lives", || in_scene(&scene.mark()).is_empty());
    let job = cluster.submit();
    cluster.new_ranks(&fourth);
    scene.go();
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());

    assert_eq!(scene.digest(), Some(expected), "{}", cluster.output());
    let attempts = u32::try_from(scene.attempts()).unwrap();
    assert!(
        attempts >= 5 && (2..=attempts).all(|n| scene.resumed(n) == Some(4)),
        "{}",
        cluster.output()
    );
    drop(cluster);
    scene.assert_alone();
}
