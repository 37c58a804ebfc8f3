//! The workers of a driver's own Ray, forked from an interpreter that imported ahead what those before them had.

use super::SUPERVISE;
use super::standby::environment;
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Scene, Supervisor, alive, cmdline, eventually, send, wait_for};

/// In the place of verl's driver: it starts three workers as Ray does, and one more program.
const DRIVER: &str = r#"
import json, os, subprocess, sys, time
out, here = os.environ["OUT"], os.path.dirname(os.path.abspath(__file__))
attempt = sum(name.endswith(".0.json") for name in os.listdir(out)) + 1
below = json.loads(subprocess.run([sys.executable, "-c", "import json, os, sys; print(json.dumps([sorted(os.environ), sys.path]))"],
                                  stdout=subprocess.PIPE, check=True).stdout)
os.environ["SET_BY_DRIVER"] = "yes"
workers = os.path.join(os.environ["RAY_HERE"], "ray/_private/workers")
env = dict(os.environ, RAY_RAYLET_PID=str(os.getpid()), PYTHONPATH="/nowhere/extra:" + os.environ.get("PYTHONPATH", ""))
os.umask(0o027)
for n in range(3):
    variables = {"ALL": "${SET_BY_DRIVER}${MISSING}", "RANK": str(n)}
    if n == 2 and os.path.exists(out + "/another"):
        variables["ALL"] = "no"
    context = {"command_prefix": [], "env_vars": variables, "py_executable": sys.executable, "override_worker_entrypoint": None, "java_jars": []}
    words = ["--serialized-runtime-env-context=" + json.dumps(context), "--language=PYTHON", "--number=" + str(n), "--attempt=" + str(attempt)]
    with open(f"{out}/{attempt}.{n}.log", "w") as log:
        subprocess.Popen([sys.executable, workers + "/setup_worker.py", workers + "/default_worker.py", *words], env=env, cwd=out, stdout=log,
                         stderr=log, preexec_fn=lambda: os.nice(3))
while not all(os.path.exists(f"{out}/{attempt}.{n}.json") for n in range(3)):
    time.sleep(0.02)
with open(f"{out}/{attempt}.driver", "w") as f:
    json.dump({"below": below}, f)
for step in range(1, 100000):
    print(f"step:{step} - training/global_step:{step} - actor/pg_loss:0.1", flush=True)
    time.sleep(0.05)
"#;

/// As Ray's: it becomes the worker, in the environment that was asked for.
const SETUP: &str = r#"
import json, os, re, shlex, sys
words = sys.argv[1:]
context = json.loads(next(w for w in words if w.startswith("--serialized")).partition("=")[2])
for key, value in context["env_vars"].items():
    os.environ[key] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
rest = [w for w in words if not w.startswith(("--serialized", "--language"))]
os.execvp("bash", ["bash", "-c", " ".join(["exec", sys.executable, *map(shlex.quote, rest)])])
"#;

/// As Ray's: it imports, and lasts as long as the driver.
const WORKER: &str = r#"
import sys
early = [name for name in ("wave", "colorsys", "tabnanny") if name in sys.modules]
import json, os, time
path = list(sys.path)
import wave
os.environ["LATER"] = "the same"
os.environ["OWN"] = os.environ["RANK"]
import colorsys
sys.path.insert(0, os.environ["OUT"])
import dice
import ctypes
import random
words = dict(w[2:].split("=") for w in sys.argv[1:])
umask = os.umask(0)
os.umask(umask)
SHELLS = ("_", "PWD", "OLDPWD", "SHLVL")
noted = {
    "early": early, "pid": os.getpid(), "parent": os.getppid(), "draws": [random.random(), dice.OWN.random()],
    "same": {
        "env": {k: v for k, v in os.environ.items() if "/attempts/" not in v and not k.startswith(("SUPERVISE_", "RAY_", "WANDB")) and k not in SHELLS},
        "number": words["number"], "name": __name__, "file": __file__, "path": path, "umask": umask, "nice": os.nice(0), "cwd": os.getcwd(),
        "output": os.readlink("/proc/self/fd/1").rpartition(".log")[1], "input": os.readlink("/proc/self/fd/0"), "flags": str(sys.flags),
        "files": sum(os.path.exists(f"/proc/self/fd/{f}") and "memfd" not in os.readlink(f"/proc/self/fd/{f}") for f in range(100)), "threads": len(os.listdir("/proc/self/task")),
        "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path if type(f).__name__ != "NotingWorker"],
    },
}
target = f"{os.environ['OUT']}/{words['attempt']}.{words['number']}.json"
print("begun", flush=True)
with open(target + ".draft", "w") as f:
    json.dump(noted, f)
os.rename(target + ".draft", target)
driver = int(os.environ["RAY_RAYLET_PID"])
while os.path.exists(f"/proc/{driver}"):
    time.sleep(0.05)
"#;

struct Stage {
    scene: Scene,
    run: Supervisor,
    words: Vec<String>,
}

fn start(scene: &Scene, words: &[String]) -> Supervisor {
    scene.start_with(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

impl Stage {
    fn new() -> Self {
        let mut scene = Scene::new(SUPERVISE);
        let (python, installed) = environment(&scene);
        for (file, text) in [
            ("dice.py", "import random\nOWN = random.Random()\n"),
            ("verl/__init__.py", ""),
            ("verl/trainer/__init__.py", ""),
            ("verl/trainer/main_ppo.py", DRIVER),
            ("ray/_private/workers/setup_worker.py", SETUP),
            ("ray/_private/workers/default_worker.py", WORKER),
        ] {
            let path = installed.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let out = scene.path("out");
        fs::create_dir(&out).unwrap();
        let here = scene.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        scene.env("RAY_HERE", installed.to_str().unwrap());
        scene
            .env("OUT", out.to_str().unwrap())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let run_dir = format!("supervisor.run_dir={here}/run");
        let root = format!("trainer.default_local_dir={here}/checkpoints");
        let mut words = vec!["run"];
        let sets = [
            "supervisor.trainer=verl",
            "supervisor.rehearse=false",
            "supervisor.standby=auto",
            "supervisor.backoff.initial=10ms",
            &run_dir,
        ];
        sets.iter().for_each(|set| words.extend(["--set", set]));
        words.extend([
            "--",
            &python,
            "-m",
            "verl.trainer.main_ppo",
            &root,
            "trainer.save_freq=1000000",
        ]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let run = start(&scene, &words);
        Self { scene, run, words }
    }

    /// Notes of an attempt's three workers.
    fn noted(&self, attempt: u32) -> Vec<Value> {
        eventually(&format!("the workers of attempt {attempt} run"), || {
            let of = |n| fs::read(self.scene.path(&format!("out/{attempt}.{n}.json"))).ok();
            let texts = [of(0)?, of(1)?, of(2)?];
            texts.iter().map(|text| serde_json::from_slice(text).ok()).collect()
        })
    }

    /// The driver's own notes.
    fn driver(&self, attempt: u32) -> Value {
        eventually("the driver runs", || {
            let text = fs::read(self.scene.path(&format!("out/{attempt}.driver"))).ok()?;
            serde_json::from_slice(&text).ok()
        })
    }

    /// Driver's interpreter and the one to be forked have imported all, and read.
    fn both_wait(&self) -> Vec<i32> {
        eventually("both have imported all", || {
            let waits = |pid: &i32| {
                let of = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let env = of("environ");
                let reads =
                    String::from_utf8_lossy(&of("syscall")).split(' ').next() == Some(&libc::SYS_read.to_string());
                env.split(|b| *b == 0).any(|v| v.starts_with(b"SUPERVISE_AWAITED=")) && reads
            };
            let waiting: Vec<i32> = self
                .scene
                .living()
                .into_iter()
                .map(|(pid, _)| pid)
                .filter(waits)
                .collect();
            let is_forked = |pid: &i32| cmdline(*pid).contains("default_worker.py");
            let has_imported = |pid: i32| {
                let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
                maps.contains("/_ctypes.")
            };
            (waiting.len() == 2 && waiting.iter().copied().find(is_forked).is_some_and(has_imported)).then_some(waiting)
        })
    }

    fn driver_of(&self, attempt: u32) -> i32 {
        self.driver(attempt);
        eventually("the driver lives", || {
            let found = self.scene.living().into_iter().find(|(pid, line)| {
                let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let mut variables = env.split(|b| *b == 0);
                line.contains("-m verl.trainer.main_ppo")
                    && !line.contains("supervise run")
                    && variables.any(|v| v.starts_with(b"SUPERVISE_ATTEMPT="))
            });
            found.map(|(pid, _)| pid)
        })
    }

    fn kill(&self, attempt: u32) {
        send(self.driver_of(attempt), libc::SIGKILL);
    }

    fn ends(self) {
        self.run.signal(libc::SIGTERM);
        self.run.wait().expect(143);
        self.scene.assert_alone();
    }
}

fn early(noted: &[Value]) -> Vec<&Value> {
    noted.iter().map(|n| &n["early"]).collect()
}

#[test]
fn the_workers_of_a_drivers_ray_are_forked_and_are_as_new_ones() {
    let stage = Stage::new();
    let cold = stage.noted(1);
    assert_eq!(early(&cold), [&json!([]), &json!([]), &json!([])]);
    let waiting = stage.both_wait();
    stage.kill(1);
    let ahead = stage.noted(2);
    let imported = json!(["wave", "colorsys"]);
    assert_eq!(early(&ahead), [&imported, &imported, &imported], "{}", stage.run.text());
    for (ahead, cold) in ahead.iter().zip(&cold) {
        for (key, value) in cold["same"].as_object().unwrap() {
            assert_eq!(&ahead["same"][key], value, "{key}");
        }
        assert!(waiting.contains(&i32::try_from(ahead["parent"].as_i64().unwrap()).unwrap()));
    }
    for which in [0, 1] {
        assert_ne!(ahead[0]["draws"][which], ahead[1]["draws"][which]);
    }
    // A program that is no worker of Ray is touched by none of it.
    assert_eq!(stage.driver(2)["below"], stage.driver(1)["below"]);

    // One that is to run in another environment starts as ever.
    stage.both_wait();
    fs::write(stage.scene.path("out/another"), "").unwrap();
    stage.kill(2);
    let third = stage.noted(3);
    assert_eq!(early(&third), [&imported, &imported, &json!([])]);
    fs::remove_file(stage.scene.path("out/another")).unwrap();

    // One that waits is gone: all of its forks start as ever.
    let forked = stage.both_wait();
    let forked = forked
        .into_iter()
        .find(|pid| cmdline(*pid).contains("default_worker.py"))
        .unwrap();
    send(forked, libc::SIGKILL);
    wait_for("it is gone", || !alive(forked));
    stage.kill(3);
    let fourth = stage.noted(4);
    assert_eq!(early(&fourth), [&json!([]), &json!([]), &json!([])]);
    stage.ends();
}

/// The one that is forked listens as a guard does: whoever looks for the guard must not meet it.
#[test]
fn another_supervisor_takes_over_an_attempt_whose_workers_are_forks() {
    let mut stage = Stage::new();
    stage.noted(1);
    stage.both_wait();
    stage.kill(1);
    let ahead = stage.noted(2);
    assert_eq!(early(&ahead)[0], &json!(["wave", "colorsys"]));
    // The driver put it before what was there, which was the place of supervise alone.
    assert_eq!(ahead[0]["same"]["env"]["PYTHONPATH"], json!("/nowhere/extra"));
    let driver = stage.driver_of(2);
    stage.run.kill();
    stage.run = start(&stage.scene, &stage.words);
    let log = stage.scene.path("run/attempts/0002/worker-0.log");
    let steps = || {
        fs::read_to_string(&log)
            .unwrap_or_default()
            .matches("training/global_step")
            .count()
    };
    wait_for("the new one follows the attempt", || {
        stage.run.text().contains("term 2 begins")
    });
    let before = steps();
    wait_for("it goes on", || steps() > before + 20);
    assert!(
        alive(driver) && !stage.scene.path("run/attempts/0003").exists(),
        "{}",
        stage.run.text()
    );
    stage.ends();
}
