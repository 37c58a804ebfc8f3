//! A batch script that `supervise sbatch` writes, under a real Slurm: a worker killed, requeued in mid-run, handed back, cancelled.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::{Refusal, Scene, eventually, send, wait_for};

/// A cluster of its own; it is gone when this goes.
struct Cluster<'a> {
    dir: PathBuf,
    scene: &'a Scene,
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/slurm.sh"));
    // A process that ends well is gone at once; a machine that has much else to do gets the time that Slurm gives by default.
    command.args(arguments).env("KILLWAIT", "30").stdin(Stdio::null());
    command
}

impl<'a> Cluster<'a> {
    fn new(scene: &'a Scene) -> Result<Self, Refusal> {
        let made = script(&["install"]).output().unwrap();
        if !made.status.success() || !nix::unistd::geteuid().is_root() {
            return Err(Refusal::new(&format!(
                "root and Slurm's daemons are needed: {}",
                String::from_utf8_lossy(&made.stderr)
            )));
        }
        let cluster = Self {
            dir: scene.path("cluster"),
            scene,
        };
        let port = free_ports().to_string();
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
    fn run(&self, argv: &[&str]) -> (bool, String) {
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

    fn does(&self, argv: &[&str]) -> String {
        let (ok, text) = self.run(argv);
        assert!(ok, "{argv:?}: {text}");
        text
    }

    /// Submits the run as a person does. Returns the job's number.
    fn submit(&self) -> String {
        let config = self.scene.write_config();
        let mut argv = vec![
            "supervise",
            "sbatch",
            config.to_str().unwrap(),
            "--submit",
            "--name",
            "demo",
        ];
        argv.extend(["--", "--time=30", "--output=job.out"]);
        let said = self.does(&argv);
        let number: String = said
            .strip_prefix("job ")
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        assert!(!number.is_empty(), "{said}");
        number
    }

    fn property(&self, job: &str, name: &str) -> String {
        let text = self.does(&["scontrol", "--oneliner", "show", "job", job]);
        let words = text.split_whitespace().filter_map(|word| word.split_once('='));
        words
            .filter(|(n, _)| *n == name)
            .map(|(_, value)| value.to_owned())
            .next()
            .unwrap_or_default()
    }

    /// Waits until a job was started again so often, and runs.
    fn came_back(&self, job: &str, restarts: &str) {
        wait_for(&format!("restart {restarts} runs"), || {
            self.property(job, "Restarts") == restarts && self.property(job, "JobState") == "RUNNING"
        });
    }

    fn ends(&self, job: &str) -> String {
        eventually("the job has ended", || {
            let state = self.property(job, "JobState");
            ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]
                .contains(&state.as_str())
                .then_some(state)
        })
    }

    fn output(&self) -> String {
        fs::read_to_string(self.scene.path("job.out")).unwrap_or_default()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = script(&["down", self.dir.to_str().unwrap()]).status();
    }
}

/// The first of two ports in a row that nobody has now. None is of those that the kernel gives to whoever asks for any: another program
/// could get it before the daemons do.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
    let first = 20_000 + u16::try_from(std::process::id() % 5_000).unwrap() * 2;
    (first..32_000)
        .step_by(2)
        .find(|port| is_free(*port) && is_free(*port + 1))
        .unwrap()
}

fn workers(scene: &Scene, before: &[i32]) -> Vec<i32> {
    eventually("two new workers run", || {
        let workers = scene.workers();
        (workers.len() == 2 && workers.iter().all(|w| !before.contains(w))).then_some(workers)
    })
}

/// How the terms of a run ended.
fn outcomes(scene: &Scene) -> Vec<Value> {
    let journal = scene.journal();
    let of = |line: &Value| line.pointer("/body/what/finish/outcome").cloned();
    journal.iter().filter_map(of).collect()
}

#[test]
fn a_job_goes_on_through_all_that_slurm_does_to_it() {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.gpus", json!("auto"));
    let expected = scene.expected_digest();
    let cluster = match Cluster::new(&scene) {
        Ok(cluster) => cluster,
        Err(refusal) => return refusal.tell("a_job_goes_on_through_all_that_slurm_does_to_it"),
    };
    let job = cluster.submit();
    let first = workers(&scene, &[]);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let status = cluster.does(&["supervise", "status", scene.root().to_str().unwrap()]);
    assert!(status.contains(&format!("Slurm job {job}")), "{status}");

    // A worker dies: the attempt after it is in the same allocation.
    send(first[0], libc::SIGKILL);
    let second = workers(&scene, &first);
    assert_eq!(cluster.property(&job, "Restarts"), "0");

    // Somebody requeues it.
    cluster.does(&["scontrol", "requeue", &job]);
    cluster.came_back(&job, "1");
    let third = workers(&scene, &second);

    // Its time is cut short, and the notice comes: no save comes before, for the trainer is held.
    cluster.does(&["scontrol", "update", &format!("jobid={job}"), "EndTime=now+20"]);
    cluster.does(&["scancel", "--signal=USR1", "--batch", &job]);
    cluster.came_back(&job, "2");
    cluster.does(&["scontrol", "update", &format!("jobid={job}"), "TimeLimit=30"]);
    let fourth = workers(&scene, &third);
    assert_eq!(
        outcomes(&scene).last(),
        Some(&json!("out_of_time")),
        "{}",
        cluster.output()
    );

    assert_eq!(scene.status()["scheduler"]["restarts"], 2);

    // It is cancelled, and submitted again.
    cluster.does(&["scancel", &job]);
    assert_eq!(cluster.ends(&job), "CANCELLED");
    wait_for("nothing of it lives", || {
        scene.workers().is_empty() && scene.guards().is_empty()
    });
    assert_eq!(outcomes(&scene).last(), Some(&json!("stopped")), "{}", cluster.output());
    // Three attempts in a row proved no new step, and none of them cost a retry.
    assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    let job = cluster.submit();
    workers(&scene, &fourth);
    scene.go();
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());

    assert_eq!(scene.digest(), Some(expected));
    // One history, in which each attempt but the first began where the newest proven step was.
    let attempts = u32::try_from(scene.attempts()).unwrap();
    assert!(
        (2..=attempts).all(|n| scene.resumed(n) == Some(4)),
        "{}",
        cluster.output()
    );
    // The first run's output was not cut off by the second.
    assert!(
        cluster.output().contains("attempt 1") && cluster.output().contains("requeued"),
        "{}",
        cluster.output()
    );
    drop(cluster);
    scene.assert_alone();
}
