//! A job of Ray's that outlives the command that submitted it. The cluster is a process of the test's own: no descendant of
//! `supervise`, and out of its sight but for what `ray` says.

use super::ways::{KILLED, SMALL, Stage, python};
use std::fs;
use std::process::{Child, Stdio};
use supervise_tests::harness::{names, wait_for};

/// Runs each job that stands in its folder, and says in files how it is. Two at once are noted.
const CLUSTER: &str = r#"
import json, os, pathlib, signal, subprocess, sys, time
here, jobs = pathlib.Path(sys.argv[1]), {}
def say(name, word):
    (here / (name + ".tmp")).write_text(word)
    os.replace(here / (name + ".tmp"), here / (name + ".status"))
while True:
    for order in sorted(here.glob("*.job")):
        name = order.stem
        if jobs: (here.parent / "two-at-once").write_text(name)
        told = json.loads(order.read_text())
        order.unlink()
        jobs[name] = subprocess.Popen(told["argv"], env=told["env"], start_new_session=True)
        say(name, "RUNNING")
    for name, job in list(jobs.items()):
        if (here / (name + ".stop")).exists() and not os.path.exists(here.parent / "deaf"):
            os.killpg(job.pid, signal.SIGKILL)
        code = job.poll()
        if code is not None:
            del jobs[name]
            say(name, "SUCCEEDED" if code == 0 else "STOPPED" if code < 0 else "FAILED")
    time.sleep(0.01)
"#;

/// `ray job submit` and `ray job stop`, as far as they are used.
const RAY: &str = r#"
import json, os, pathlib, sys, time
here, words = pathlib.Path(os.environ["CLUSTER"]), sys.argv[1:]
def status(name):
    try: return (here / (name + ".status")).read_text()
    except OSError: return None
def ended(name):
    while status(name) not in ("SUCCEEDED", "STOPPED", "FAILED"): time.sleep(0.01)
    return status(name)
if words[:2] == ["job", "submit"]:
    at = words.index("--")
    name, = (w.split("=")[1] for w in words[2:at] if w.startswith("--submission-id="))
    assert status(name) is None, "Job with submission_id " + name + " already exists"
    (here / (name + ".tmp")).write_text(json.dumps({"argv": words[at + 1:], "env": {k: v for k, v in os.environ.items() if not k.startswith("SUPERVISE_")}}))
    os.replace(here / (name + ".tmp"), here / (name + ".job"))
    sys.exit(0 if ended(name) == "SUCCEEDED" else 1)
assert words[:2] == ["job", "stop"], words
if status(words[-1]) is None: sys.exit("RuntimeError: Request failed with status code 404: Job " + words[-1] + " does not exist.")
if os.path.exists(here.parent / "away"): sys.exit("ConnectionError: Failed to connect to Ray")
(here / (words[-1] + ".stop")).write_text("")
ended(words[-1])
"#;

/// A stage with a cluster.
struct Rig {
    stage: Stage,
    cluster: Child,
}

impl Rig {
    fn new() -> Self {
        let mut stage = Stage::new("shared");
        let jobs = stage.scene.path("jobs");
        fs::create_dir(&jobs).unwrap();
        let ray = stage.program("ray.py", RAY);
        stage.program(
            "ray",
            &format!("#!/bin/bash\nexec {} {} \"$@\"\n", python().display(), ray.display()),
        );
        stage
            .scene
            .env("CLUSTER", jobs.to_str().unwrap())
            .env("SUPERVISE_REHEARSE", "false");
        let text = stage.program("cluster.py", CLUSTER);
        let mut command = stage.scene.other(&python());
        let cluster = command
            .arg(text)
            .arg(&jobs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { stage, cluster }
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        let root = format!("trainer.default_local_dir={}", self.stage.scene.root().display());
        let call = "run -- ray job submit --submission-id=mine -- python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo";
        let words = call
            .split(' ')
            .chain([root.as_str()])
            .chain(SMALL)
            .chain(more.iter().copied());
        words.map(str::to_owned).collect()
    }

    fn start(&self, more: &[&str]) -> supervise_tests::harness::Supervisor {
        let words = self.words(more);
        self.stage
            .scene
            .start_with(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Names of jobs and how they are.
    fn jobs(&self) -> Vec<(String, String)> {
        let here = self.stage.scene.path("jobs");
        let is = |name: &String| name.ends_with(".status");
        let read = |name: String| {
            let text = fs::read_to_string(here.join(&name)).unwrap_or_default();
            (name.trim_end_matches(".status").to_owned(), text)
        };
        names(&here).into_iter().filter(is).map(read).collect()
    }

    fn states(&self) -> Vec<String> {
        self.jobs().into_iter().map(|(_, state)| state).collect()
    }

    /// The commands that wait for jobs.
    fn clients(&self) -> Vec<i32> {
        let living = self.stage.scene.living().into_iter();
        let is = |(_, words): &(i32, String)| words.contains("ray.py job submit");
        living.filter(is).map(|(pid, _)| pid).collect()
    }

    fn assert_one_at_a_time(&self) {
        assert!(!self.stage.scene.path("two-at-once").exists(), "{:?}", self.jobs());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.cluster.kill();
        let _ = self.cluster.wait();
    }
}

#[test]
fn a_job_whose_submitter_is_killed_is_stopped_before_the_next_one() {
    let rig = Rig::new();
    let run = rig.start(&["++demo.hold_at=5"]);
    wait_for("step 4 is saved", || rig.stage.scene.tracked() == Some(4));
    rig.clients()
        .iter()
        .for_each(|pid| supervise_tests::harness::send(*pid, 9));
    wait_for("the second job", || rig.jobs().len() == 2);
    rig.stage.scene.go();
    let ended = run.wait();
    ended
        .expect(0)
        .says("--submission-id=mine becomes supervise-")
        .says("is stopped, and waited for");
    assert_eq!(rig.states(), ["STOPPED", "SUCCEEDED"]);
    assert_eq!((rig.stage.scene.attempts(), rig.stage.scene.resumed(2)), (2, Some(4)));
    rig.assert_one_at_a_time();
}

#[test]
fn a_job_that_fails_is_no_riddle_and_a_stop_stops_it() {
    let rig = Rig::new();
    let run = rig.start(&[KILLED]);
    run.wait().expect(0);
    assert_eq!(rig.states(), ["FAILED", "SUCCEEDED"]);
    let rig = Rig::new();
    let run = rig.start(&["++demo.hold_at=5"]);
    wait_for("step 4 is saved", || rig.stage.scene.tracked() == Some(4));
    let root = rig.stage.scene.root();
    rig.stage.scene.ask(&["stop", root.to_str().unwrap()]).expect(0);
    run.wait().expect(7);
    assert_eq!(rig.states(), ["STOPPED"]);
}

#[test]
fn a_cluster_that_does_not_answer_is_asked_until_it_says_that_the_job_has_ended() {
    let rig = Rig::new();
    let away = rig.stage.scene.path("away");
    fs::write(&away, "").unwrap();
    let run = rig.start(&["++demo.hold_at=5"]);
    wait_for("step 4 is saved", || rig.stage.scene.tracked() == Some(4));
    rig.clients()
        .iter()
        .for_each(|pid| supervise_tests::harness::send(*pid, 9));
    wait_for("it is told", || run.text().contains("has ended: ConnectionError"));
    assert_eq!(
        (rig.states(), rig.stage.scene.attempts()),
        (vec!["RUNNING".to_owned()], 1)
    );
    fs::remove_file(&away).unwrap();
    wait_for("the second job", || rig.jobs().len() == 2);
    rig.stage.scene.go();
    run.wait().expect(0);
    rig.assert_one_at_a_time();
}

#[test]
fn a_job_of_a_dead_supervisor_is_stopped_by_the_next_one() {
    let rig = Rig::new();
    let run = rig.start(&["++demo.hold_at=5"]);
    wait_for("step 4 is saved", || rig.stage.scene.tracked() == Some(4));
    // The guard, then the supervisor: what the guard held goes with it, the job does not.
    let guards = rig
        .stage
        .scene
        .living()
        .into_iter()
        .filter(|(_, words)| words.contains("__guard"));
    let guards: Vec<i32> = guards.map(|(pid, _)| pid).collect();
    run.kill();
    guards.iter().for_each(|pid| supervise_tests::harness::send(*pid, 9));
    wait_for("its command is gone", || rig.clients().is_empty());
    assert_eq!(rig.states(), ["RUNNING"]);
    let run = rig.start(&["++demo.hold_at=5"]);
    wait_for("the second job", || rig.jobs().len() == 2);
    rig.stage.scene.go();
    run.wait().expect(0);
    assert_eq!(rig.states(), ["STOPPED", "SUCCEEDED"]);
    rig.assert_one_at_a_time();
}
