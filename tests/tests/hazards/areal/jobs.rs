//! Jobs of Slurm's. The cluster is a process of the test's own: no descendant of `supervise`, and out of its sight but for what
//! `squeue` says.

use crate::areal_run::Run;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use supervise_tests::harness::{Ended, Supervisor, names, send, wait_for};

/// Runs each job that stands in its folder, one after the other noted, and says in files how it is.
const CLUSTER: &str = r#"
import json, os, pathlib, signal, subprocess, sys, time
here, jobs = pathlib.Path(sys.argv[1]), {}
def say(name, word):
    (here / (name + ".tmp")).write_text(word)
    os.replace(here / (name + ".tmp"), here / (name + ".state"))
while True:
    for order in sorted(here.glob("*.job")):
        name, told = order.stem, json.loads(order.read_text())
        order.unlink()
        if told["name"].startswith("exp_trial0") and jobs: (here / "two-at-once").touch()
        jobs[name] = subprocess.Popen([told["script"]], env=told["env"], cwd=told["cwd"], start_new_session=True)
        (here / (name + ".says")).write_text(told["says"])
        say(name, "RUNNING")
    for name, job in list(jobs.items()):
        if (here / (name + ".stop")).exists(): os.killpg(job.pid, signal.SIGKILL)
        code = job.poll()
        if code is not None:
            del jobs[name]
            say(name, "COMPLETED" if code == 0 else "CANCELLED" if code < 0 else "FAILED")
    time.sleep(0.01)
"#;

/// `sbatch`, `squeue` and `scancel`, as far as they are used.
const SLURM: &str = r#"
import json, os, pathlib, sys, time
here, program, words = pathlib.Path(os.environ["CLUSTER"]), sys.argv[1], sys.argv[2:]
def state(name):
    try: return (here / (name + ".state")).read_text()
    except OSError: return "PENDING"
if program == "sbatch":
    options = dict(w[2:].split("=", 1) for w in words[:-1])
    assert "SUPERVISE_ATTEMPT" not in os.environ, os.environ["SUPERVISE_ATTEMPT"]
    assert "supervise/shims" not in os.environ["PATH"], os.environ["PATH"]
    name = str(len(list(here.glob("*.submitted"))) + 1)
    (here / (name + ".submitted")).touch()
    says = "|".join([options.get("comment", "(null)"), words[-1], options["job-name"]])
    order = {"script": words[-1], "name": options["job-name"], "says": says, "cwd": os.getcwd(), "env": dict(os.environ)}
    (here / (name + ".tmp")).write_text(json.dumps(order))
    os.replace(here / (name + ".tmp"), here / (name + ".job"))
    while state(name) == "PENDING": time.sleep(0.01)
    print("Submitted batch job " + name)
    sys.exit()
if os.path.exists(here / "away"): sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
if program == "scancel":
    for name in words[1:]: (here / (name + ".stop")).touch()
    sys.exit()
for file in sorted(here.glob("*.state")):
    name = file.stem
    if "--jobs" in words and name not in words: continue
    if state(name) == "RUNNING": print(name + "|RUNNING|" + (here / (name + ".says")).read_text())
"#;

/// A controller whose worker is a job. With a file `mortal` it dies in the first attempt, once the trainer in its job did; the job
/// lives on. With a file `away` nothing answers then.
const CONTROLLER: &str = "\
import shlex
logs = os.path.join(files, 'logs/me/exp/trial0')
os.makedirs(logs, exist_ok=True)
script = os.path.join(logs, 'actor.sh')
died = os.path.join(files, 'died')
mortal = attempt == 1 and os.path.exists('mortal')
with open(script, 'w') as file:
    file.write('#!/bin/sh\\nareal_trainer ' + shlex.join(sys.argv[1:]) + '\\n')
    if mortal:
        file.write(f'touch {died}\\nsleep 600\\n')
os.chmod(script, 0o755)
job = subprocess.check_output(['sbatch', '--job-name=exp_trial0:actor', script], text=True).split()[-1]
note('submitted', job)
while subprocess.run(['squeue', '--jobs', job], capture_output=True).stdout:
    if mortal and os.path.exists(died):
        if os.path.exists('away'):
            os.rename('away', 'jobs/away')
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
";

/// More steps than any test waits for.
const LONG: u64 = 1_000_000;
/// Where a controller of this run writes its script.
const OWN: &str = "files/logs/me/exp/trial0/actor.sh";

/// A run with a cluster.
struct Rig {
    run: Run,
    jobs: PathBuf,
    cluster: Child,
}

impl Rig {
    /// The run ends with this step.
    fn until(step: u64) -> Self {
        Self::new(Run::new(CONTROLLER).until(step))
    }

    /// The trainer of the first attempt dies in step 6, then its controller.
    fn mortal() -> Self {
        let rig = Self::new(Run::new(CONTROLLER).killed_once());
        fs::write(rig.run.scene.path("mortal"), "").unwrap();
        rig
    }

    fn new(run: Run) -> Self {
        let mut run = run.set("scheduler", "type", "slurm".into());
        let jobs = run.scene.path("jobs");
        let bin = run.scene.path("bin");
        fs::create_dir(&jobs).unwrap();
        fs::create_dir(&bin).unwrap();
        let slurm = bin.join("slurm.py");
        fs::write(&slurm, SLURM).unwrap();
        for name in ["sbatch", "squeue", "scancel"] {
            let text = format!("#!/bin/sh\nexec python3 {} {name} \"$@\"\n", slurm.display());
            crate::areal_run::program(&bin.join(name), &text);
        }
        let programs = run.scene.program("").display().to_string();
        let path = format!("{}:{programs}:{}", bin.display(), std::env::var("PATH").unwrap());
        run.scene.env("PATH", &path).env("CLUSTER", jobs.to_str().unwrap());
        fs::write(bin.join("cluster.py"), CLUSTER).unwrap();
        let mut command = run.scene.other("python3".as_ref());
        let cluster = command
            .arg(bin.join("cluster.py"))
            .arg(&jobs)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { run, jobs, cluster }
    }

    /// How the jobs are, in their order.
    fn states(&self) -> Vec<String> {
        let is = |name: &String| name.ends_with(".state");
        let read = |name: String| fs::read_to_string(self.jobs.join(name)).unwrap();
        names(&self.jobs).into_iter().filter(is).map(read).collect()
    }

    /// Somebody submits a job that lives until it is stopped.
    fn submit(&self, script: &str, words: &[&str]) {
        let script = self.run.scene.path(script);
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        crate::areal_run::program(&script, "#!/bin/sh\nexec sleep 600\n");
        let mut command = self.run.scene.other(&self.run.scene.path("bin/sbatch"));
        let done = command.args(words).arg(&script).stdout(Stdio::null()).status().unwrap();
        assert!(done.success());
    }

    fn stop(&self, job: u32) {
        fs::write(self.jobs.join(format!("{job}.stop")), "").unwrap();
    }

    fn assert_one_at_a_time(&self) {
        assert!(!self.jobs.join("two-at-once").exists(), "{:?}", self.states());
    }

    /// The supervisor and the guard are killed; the job lives.
    fn orphan_the_job(&self, supervisor: Supervisor) {
        let living = self.run.scene.living();
        let guards = living.iter().filter(|(_, words)| words.contains("__guard"));
        let guards: Vec<i32> = guards.map(|(pid, _)| *pid).collect();
        supervisor.kill();
        guards.iter().for_each(|pid| send(*pid, 9));
        let controller = |(_, words): &(i32, String)| words.contains("train.py");
        wait_for("the controller is gone", || {
            !self.run.scene.living().iter().any(controller)
        });
    }

    fn command(&self, name: &str) -> Ended {
        self.run.scene.ask(&[name, self.run.root().to_str().unwrap()])
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.cluster.kill();
        let _ = self.cluster.wait();
    }
}

/// [process.slurm_jobs] Jobs of its Slurm scheduler and its Slurm launcher outlive a controller or launcher that is killed, and train on beside the next one | Each job says in its comment which attempt submitted it; it is cancelled, and has ended in Slurm's own words before the next launch
#[test]
fn a_job_outlives_its_controller() {
    let rig = Rig::mortal();
    let ended = rig.run.run(&[]);
    ended
        .expect(0)
        .says("are cancelled, and waited for: 1 (exp_trial0:actor, RUNNING)");
    assert_eq!(rig.states(), ["CANCELLED", "COMPLETED"]);
    assert_eq!(rig.run.trained(), [1, 2, 3, 4, 5, 5, 6, 7, 8]);
    rig.assert_one_at_a_time();
}

/// [process.slurm_jobs] A controller that is asked to end leaves its jobs | A stop cancels them, and ends when they have
#[test]
fn a_stop_cancels_the_jobs() {
    let rig = Rig::until(LONG);
    let supervisor = rig.run.start(&[]);
    wait_for("a step is trained", || !rig.run.trained().is_empty());
    rig.command("stop").expect(0);
    supervisor.wait().expect(7);
    assert_eq!(rig.states(), ["CANCELLED"]);
}

/// [process.slurm_jobs] Where everything on its machine died, its jobs train on | The next `supervise run` or `supervise stop` knows them by their comment, and cancels them
#[test]
fn the_job_of_a_dead_supervisor_is_cancelled_by_a_stop_or_by_the_next_run() {
    let rig = Rig::until(LONG);
    let supervisor = rig.run.start(&[]);
    wait_for("a step is trained", || !rig.run.trained().is_empty());
    rig.orphan_the_job(supervisor);
    assert_eq!(rig.states(), ["RUNNING"]);
    rig.command("stop")
        .expect(0)
        .says("cancelled with Slurm: 1 (exp_trial0:actor");
    assert_eq!(rig.states(), ["CANCELLED"]);
    rig.command("stop").expect(0).says("nothing of it lives");

    let supervisor = rig.run.start(&[]);
    wait_for("the second job", || rig.states().len() == 2);
    rig.orphan_the_job(supervisor);
    assert_eq!(rig.states(), ["CANCELLED", "RUNNING"]);
    let supervisor = rig.run.start(&[]);
    wait_for("the third job", || rig.states().len() == 3);
    assert_eq!(rig.states(), ["CANCELLED", "CANCELLED", "RUNNING"]);
    rig.command("stop").expect(0);
    supervisor.wait().expect(7).says("are cancelled, and waited for: 2 (");
    rig.assert_one_at_a_time();
}

/// [process.slurm_states] A job that Slurm preempted or whose node failed is an unknown state, and ends the launcher | The launcher is started again, and goes on from the last save; jobs of it that live are cancelled first
#[test]
fn a_job_that_was_preempted() {
    let script = "code = train(stdout=subprocess.DEVNULL)\nif code:\n    raise KeyError('PREEMPTED')\nsys.exit(1)\n";
    let rig = Rig::new(Run::launcher("areal.infra.launcher.slurm", script).killed_once());
    let ended = rig.run.run(&[]);
    ended.expect(0).says("step 8 is proven");
    assert_eq!(rig.run.trained(), [1, 2, 3, 4, 5, 5, 6, 7, 8]);
}

/// [process.slurm_names] Its jobs are known by their names alone, which two runs may share | A job without proof is never cancelled: one of this run's names and directory is named and waited for, those of other runs are left alone
#[test]
fn a_job_of_the_same_name() {
    let rig = Rig::until(8);
    let named = "--job-name=exp_trial0:actor";
    // Other runs: below another root, and one that is supervised.
    rig.submit("other/logs/me/exp/trial0/actor.sh", &[named]);
    rig.submit(
        OWN,
        &[named, "--comment=supervise:0123456789abcdef/0123456789abcdef/1/1"],
    );
    rig.submit("other/x.sh", &["--job-name=exp_trial01:actor"]);
    // By hand, or by a program that does not look into PATH.
    rig.submit(OWN, &[named]);
    let supervisor = rig.run.start(&[]);
    wait_for("it is named", || {
        let text = supervisor.text();
        text.contains("Slurm lists 4 (exp_trial0:actor, RUNNING): named as") && text.contains("not touched")
    });
    assert!(rig.run.noted("submitted").is_empty());
    rig.stop(4);
    let ended = supervisor.wait();
    ended.expect(0);
    assert_eq!(
        rig.states(),
        ["RUNNING", "RUNNING", "RUNNING", "CANCELLED", "COMPLETED"]
    );
    (1..4).for_each(|job| rig.stop(job));
}

/// [process.slurm_jobs] While Slurm does not answer, nobody can know what trains | No answer is no good answer: it is asked again, for half an hour at most, and nothing is launched meanwhile
#[test]
fn a_controller_of_slurms_that_does_not_answer_is_waited_for() {
    let rig = Rig::mortal();
    fs::write(rig.run.scene.path("away"), "").unwrap();
    let supervisor = rig.run.start(&[]);
    wait_for("it is told", || {
        let text = supervisor.text();
        text.contains("Slurm does not say that the jobs of this run have ended: squeue: slurm_load_jobs error")
    });
    assert_eq!((rig.run.launches(), rig.states()), (1, vec!["RUNNING".to_owned()]));
    fs::remove_file(rig.jobs.join("away")).unwrap();
    supervisor.wait().expect(0);
    assert_eq!(rig.states(), ["CANCELLED", "COMPLETED"]);
    rig.assert_one_at_a_time();
}
