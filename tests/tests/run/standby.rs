//! Interpreters that import ahead, and go on as the next attempt's workers.

use super::SUPERVISE;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use supervise_tests::harness::{Scene, Supervisor, eventually, send, wait_for};

/// A trainer of two ranks: it notes all that could tell how it was started, and steps until it may go.
pub(super) const TRAIN: &str = r#"
import os, sys
early = "wave" in sys.modules and "colorsys" in sys.modules
too_early = "tabnanny" in sys.modules
os.environ["CHOSEN"] = "by the script"
import json, time, wave
import mine
os.environ["STORE"] = os.environ["MASTER_ADDR"]
import colorsys
import ctypes
os.environ["COMPUTED"] = str(6 * 7)
import tabnanny

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
own = ("TORCHELASTIC_", "MASTER_PORT", "SUPERVISE_ATTEMPT", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
noted = {
    "early": early, "too_early": too_early, "mine": mine.VALUE, "argv": sys.argv, "words": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
    "name": __name__, "file": __file__, "cwd": os.getcwd(), "input": sys.stdin.read(), "leads": os.getsid(0) == os.getpid(),
    "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path if type(f).__name__ != "Noting"],
    "threads": len(os.listdir("/proc/self/task")), "warned": sys.warnoptions,
    "files": sorted(os.readlink("/proc/self/fd/" + f) for f in ("0",)),
    "env": {k: v for k, v in os.environ.items() if not k.startswith(own)},
}
path = f"{sys.argv[1]}/{attempt}.{os.environ['RANK']}.json"
with open(path + ".draft", "w") as f:
    json.dump(noted, f)
os.rename(path + ".draft", path)
for step in range(1, 100000):
    print("step", step, flush=True)
    time.sleep(0.05)
    if os.path.exists(sys.argv[1] + "/go"):
        sys.exit(0)
"#;

pub(super) struct Stage {
    pub(super) scene: Scene,
    run: Supervisor,
}

impl Stage {
    fn new(flags: &[&str]) -> Self {
        Self::of(Scene::new(SUPERVISE), "python3", TRAIN, flags)
    }

    pub(super) fn of(scene: Scene, python: &str, script: &str, flags: &[&str]) -> Self {
        Self::set(scene, python, script, flags, "supervisor.standby=auto")
    }

    fn set(mut scene: Scene, python: &str, script: &str, flags: &[&str], more: &str) -> Self {
        fs::write(scene.path("train.py"), script).unwrap();
        fs::write(scene.path("mine.py"), "VALUE = 1\n").unwrap();
        fs::create_dir(scene.path("out")).unwrap();
        scene.env("PYTHONDONTWRITEBYTECODE", "1").env("GIVEN", "by the user");
        let (script, out, run_dir) = (scene.path("train.py"), scene.path("out"), scene.path("run"));
        let run_dir = format!("supervisor.run_dir={}", run_dir.display());
        let mut words = vec!["run"];
        for set in [
            "supervisor.trainer=plain",
            "supervisor.standby=auto",
            "supervisor.gang.launcher=gang",
            "supervisor.gang.workers=2",
            "supervisor.gang.gpus=none",
            "supervisor.backoff.initial=10ms",
            more,
            &run_dir,
        ] {
            words.extend(["--set", set]);
        }
        words.extend(["--", python]);
        words.extend(flags);
        words.extend([script.to_str().unwrap(), out.to_str().unwrap()]);
        let run = scene.start_with(&words);
        Self { scene, run }
    }

    /// All that the ranks of an attempt noted, once both did.
    pub(super) fn noted(&self, attempt: u32) -> Vec<Value> {
        eventually(&format!("attempt {attempt} runs"), || {
            let of = |rank| fs::read(self.scene.path(&format!("out/{attempt}.{rank}.json"))).ok();
            [of(0)?, of(1)?]
                .iter()
                .map(|text| serde_json::from_slice(text).ok())
                .collect()
        })
    }

    /// Interpreters that wait for the next attempt.
    pub(super) fn waiting(&self) -> Vec<i32> {
        let waits = |pid: &i32| {
            let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            env.split(|b| *b == 0).any(|v| v.starts_with(b"SUPERVISE_AWAITED="))
        };
        self.scene
            .living()
            .into_iter()
            .map(|(pid, _)| pid)
            .filter(waits)
            .collect()
    }

    fn both_wait(&self) -> Vec<i32> {
        eventually("two interpreters wait", || {
            Some(self.waiting()).filter(|w| w.len() == 2)
        })
    }

    fn both_have_imported(&self) {
        wait_for("both have imported all", || {
            self.both_wait().into_iter().all(has_imported)
        });
    }

    /// A worker of this attempt, by the mark that others find it by.
    fn worker(&self, attempt: u32) -> i32 {
        let bears = |pid: &i32| {
            let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            env.split(|b| *b == 0)
                .any(|v| v.starts_with(b"SUPERVISE_ATTEMPT=") && v.ends_with(format!("/{attempt}").as_bytes()))
        };
        let is_script = |(_, line): &(i32, String)| line.contains("train.py") && line.contains("python3");
        let found = || {
            self.scene
                .living()
                .into_iter()
                .filter(is_script)
                .map(|(pid, _)| pid)
                .find(bears)
        };
        eventually("a worker bears the mark", found)
    }

    pub(super) fn kill(&self, attempt: u32) {
        send(self.worker(attempt), libc::SIGKILL);
    }

    /// The journal's word on how the interpreters of an attempt came to be: none, `went`, or why not. Its line may come after the
    /// workers' first.
    pub(super) fn ahead(&self, attempt: usize) -> Value {
        eventually(&format!("the launch of attempt {attempt} is in the journal"), || {
            let mut lines: Vec<Value> = Vec::new();
            for file in fs::read_dir(self.scene.path("run/journal")).ok()? {
                let text = fs::read_to_string(file.ok()?.path()).ok()?;
                lines.extend(text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()));
            }
            let launched = |l: &Value| find(l, "launched").cloned().filter(Value::is_object);
            let launches: Vec<Value> = lines.iter().filter_map(launched).collect();
            launches.get(attempt - 1).map(|l| l["ahead"].clone())
        })
    }

    pub(super) fn ends(self) {
        fs::write(self.scene.path("out/go"), "").unwrap();
        self.run.wait().expect(0);
        self.scene.assert_alone();
    }
}

/// It has imported the last module, whose library is mapped, and reads: it does not rest between two imports.
fn has_imported(pid: i32) -> bool {
    let of = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    of("maps").contains("/_ctypes.") && of("syscall").split(' ').next() == Some(&libc::SYS_read.to_string())
}

/// The first value under this key, however deep.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|v| find(v, key))),
        Value::Array(list) => list.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

#[test]
fn interpreters_that_waited_run_the_same_as_new_ones() {
    let stage = Stage::new(&["-u"]);
    let mut cold = stage.noted(1);
    assert_eq!(cold[0]["early"], json!(false));
    stage.both_have_imported();
    stage.kill(1);
    let ahead = stage.noted(2);
    assert_eq!(stage.ahead(2), json!("went"));
    assert_eq!(ahead[0]["early"], json!(true));
    cold.iter_mut().for_each(|c| c["early"] = json!(true));
    for (ahead, cold) in ahead.iter().zip(&cold) {
        for (key, value) in cold.as_object().unwrap() {
            assert_eq!(&ahead[key], value, "{key}");
        }
    }
    // What the script itself does before an import was done for the import alone.
    assert_eq!(ahead[1]["env"]["CHOSEN"], json!("by the script"));

    // Another attempt's, from what the first one noted; then the script's own module is edited while they wait.
    stage.both_have_imported();
    fs::write(stage.scene.path("mine.py"), "VALUE = 22\n").unwrap();
    stage.kill(2);
    let edited = stage.noted(3);
    assert_eq!((&edited[0]["mine"], &edited[0]["early"]), (&json!(22), &json!(false)));
    let why = stage.ahead(3)["cold"]["why"].to_string();
    assert!(why.contains("mine.py") && why.contains("changed"), "{why}");
    stage.ends();
}

/// One process that starts the rest by itself, as a trainer over Ray does: another interpreter.
const DRIVES: &str = r#"
import sys
early = "wave" in sys.modules
import json, os, subprocess, time, wave
import ctypes

out = sys.argv[1]
attempt = sum(name.endswith(".0.json") for name in os.listdir(out)) + 1
ask = "import json, os, sys; print(json.dumps([sys.flags.no_user_site, sorted(os.environ), 'wave' in sys.modules]))"
below = json.loads(subprocess.run([sys.executable, "-s", "-c", ask], stdout=subprocess.PIPE, check=True).stdout)
for rank in (1, 0):
    with open(f"{out}/draft", "w") as f:
        json.dump({"early": early, "below": below, "ours": sorted(k for k in os.environ if k.startswith("SUPERVISE"))}, f)
    os.rename(f"{out}/draft", f"{out}/{attempt}.{rank}.json")
for step in range(1, 100000):
    print("step", step, flush=True)
    time.sleep(0.05)
    if os.path.exists(out + "/go"):
        sys.exit(0)
"#;

#[test]
fn the_interpreter_of_a_driver_is_imported_ahead_and_what_it_starts_is_not_touched() {
    let stage = Stage::set(
        Scene::new(SUPERVISE),
        "python3",
        DRIVES,
        &[],
        "supervisor.gang.launcher=driver",
    );
    let cold = stage.noted(1);
    wait_for("one interpreter has imported all", || {
        let waiting = stage.waiting();
        waiting.len() == 1 && waiting.into_iter().all(has_imported)
    });
    stage.kill(1);
    let ahead = stage.noted(2);
    assert_eq!(stage.ahead(2), json!("went"));
    assert_eq!((&cold[0]["early"], &ahead[0]["early"]), (&json!(false), &json!(true)));
    assert_eq!(
        (&cold[0]["below"], &cold[0]["ours"]),
        (&ahead[0]["below"], &ahead[0]["ours"])
    );
    stage.ends();
}

#[test]
fn without_those_that_waited_the_attempt_starts_its_own() {
    let stage = Stage::new(&[]);
    stage.noted(1);
    for pid in stage.both_wait() {
        send(pid, libc::SIGKILL);
    }
    stage.kill(1);
    assert_eq!(stage.noted(2)[1]["early"], json!(false));
    assert!(stage.ahead(2)["cold"]["why"].is_string());

    // The guard that waits with them is killed: they end with it.
    let waiting = stage.both_wait();
    let status = fs::read_to_string(format!("/proc/{}/stat", waiting[0])).unwrap();
    let guard: i32 = status
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    send(guard, libc::SIGKILL);
    wait_for("they ended with it", || stage.waiting().is_empty());
    stage.kill(2);
    assert_eq!(stage.noted(3)[0]["early"], json!(false));
    stage.ends();
}

#[test]
fn an_interpreter_that_ignores_the_environment_is_never_started_ahead() {
    let stage = Stage::new(&["-E"]);
    stage.noted(1);
    // Long after a guard began to wait.
    let log = stage.scene.path("run/attempts/0001/worker-0.log");
    wait_for("many steps", || {
        fs::read_to_string(&log).is_ok_and(|t| t.contains("step 100"))
    });
    stage.kill(1);
    assert_eq!(stage.noted(2)[0]["early"], json!(false));
    let why = stage.ahead(2)["cold"]["why"].to_string();
    assert!(why.contains("no interpreter") && stage.waiting().is_empty(), "{why}");
    stage.ends();
}

/// An interpreter of its own, and the place of what is installed for it.
pub(super) fn environment(scene: &Scene) -> (String, PathBuf) {
    let venv = scene.path("venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .status();
    assert!(made.unwrap().success());
    let lib = fs::read_dir(venv.join("lib")).unwrap().next().unwrap().unwrap().path();
    let python = venv.join("bin/python3").to_str().unwrap().to_owned();
    (python, lib.join("site-packages"))
}

#[test]
fn imports_that_print_much_are_left_to_the_start_at_once() {
    let scene = Scene::new(SUPERVISE);
    let (python, installed) = environment(&scene);
    let loud = "import os\nfor _ in range(300):\n    os.write(1, b'.' * 1023 + b'\\n')\n";
    fs::write(installed.join("loud.py"), loud).unwrap();
    // The trainer's own module stands before what is installed, and does not end the list.
    let script = TRAIN.replace(
        "import json, time, wave\n",
        "import json, time, wave\nimport mine\nimport loud\n",
    );
    let stage = Stage::of(scene, &python, &script, &[]);
    stage.noted(1);
    let both = stage.both_wait();
    let in_write = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|c| c.starts_with("1 "));
    wait_for("they print into full pipes", || both.iter().all(in_write));
    stage.kill(1);
    assert_eq!(stage.noted(2)[0]["early"], json!(false));
    let why = stage.ahead(2)["cold"]["why"].to_string();
    assert!(why.contains("print"), "{why}");
    stage.ends();
}

/// The first attempt installs what makes other interpreters read another file first; what they can write tells on them.
const INSTALLS: &str = r#"
import os, sys
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
if attempt == 1:
    with open(os.environ["HOOK"], "w") as f:
        f.write(f"import sys; sys.path.insert(0, '{os.environ['OTHER']}')\n")
try:
    with open(f"{sys.argv[1]}/touched.{attempt}", "w") as f:
        f.write("here")
except OSError:
    open(sys.argv[1] + "/refused", "w").close()
    while True: pass
"#;

/// Something that was installed since the attempt began keeps the next one's interpreters from reading ours: they run the trainer.
#[test]
fn an_interpreter_that_reads_another_file_first_writes_nothing_and_is_ended() {
    let mut scene = Scene::new(SUPERVISE);
    let (python, installed) = environment(&scene);
    fs::create_dir(scene.path("other")).unwrap();
    fs::write(scene.path("other/sitecustomize.py"), "").unwrap();
    let (hook, other) = (installed.join("hook.pth"), scene.path("other"));
    scene
        .env("HOOK", hook.to_str().unwrap())
        .env("OTHER", other.to_str().unwrap());
    let stage = Stage::of(scene, &python, &format!("{INSTALLS}{TRAIN}"), &[]);
    stage.noted(1);
    // On a machine with much else to do they may be ended before they come to it.
    let begun = Cell::new(false);
    wait_for("they run the trainer", || {
        let some = !stage.waiting().is_empty();
        begun.set(begun.get() || some);
        stage.scene.path("out/refused").exists() || begun.get() && !some
    });
    wait_for("they are ended", || stage.waiting().is_empty());
    let touched = fs::read_to_string(stage.scene.path("out/touched.2")).unwrap_or_default();
    assert_eq!(touched, "");
    stage.kill(1);
    stage.noted(2);
    let ahead = stage.ahead(2);
    let why = ahead["cold"]["why"].to_string();
    assert!(
        why.contains("did not read") && ahead["cold"]["lasting"] == json!(true),
        "{ahead}"
    );
    stage.ends();
}

const DAEMONIC: &str = r"
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    os._exit(0)
os.wait()
";

#[test]
fn a_daemon_that_an_import_leaves_is_ended_and_the_attempt_starts_its_own() {
    let scene = Scene::new(SUPERVISE);
    let (python, installed) = environment(&scene);
    fs::write(installed.join("daemonic.py"), DAEMONIC).unwrap();
    let script = TRAIN.replace(
        "import json, time, wave\n",
        "import json, time, wave\nimport daemonic\n",
    );
    let stage = Stage::of(scene, &python, &script, &[]);
    stage.noted(1);
    // Two interpreters, and the daemon of each.
    wait_for("they have imported it", || stage.waiting().len() == 4);
    stage.kill(1);
    assert_eq!(stage.noted(2)[0]["early"], json!(false));
    let why = stage.ahead(2)["cold"]["why"].to_string();
    assert!(why.contains("started a process"), "{why}");
    stage.ends();
}

#[test]
fn interpreters_that_need_more_memory_than_they_may_end_and_are_not_started_again() {
    let scene = Scene::new(SUPERVISE);
    let stage = Stage::set(scene, "python3", TRAIN, &[], "supervisor.standby_memory=1MB");
    stage.noted(1);
    let drafted = || {
        let living = stage.scene.living();
        living.iter().any(|(_, line)| line.contains("--drafted"))
    };
    wait_for("interpreters are started ahead", drafted);
    wait_for("they end", || stage.waiting().is_empty());
    stage.kill(1);
    stage.noted(2);
    let ahead = stage.ahead(2);
    let why = ahead["cold"]["why"].to_string();
    assert!(
        why.contains("memory") && ahead["cold"]["lasting"] == json!(true),
        "{ahead}"
    );
    // Long after others would have been started.
    let log = stage.scene.path("run/attempts/0002/worker-0.log");
    wait_for("many steps", || {
        fs::read_to_string(&log).is_ok_and(|t| t.contains("step 100"))
    });
    stage.kill(2);
    stage.noted(3);
    assert_eq!(
        stage.ahead(3),
        json!({"cold": {"why": ahead["cold"]["why"]}}),
        "of the driver, no interpreter's"
    );
    stage.ends();
}

/// The file that interpreters run first, in a folder of the scene.
pub(super) fn lay_ours(scene: &Scene) {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../supervisor/host/src/guard/standby");
    let both = ["start.py", "sitecustomize.py"].map(|name| fs::read_to_string(format!("{ours}/{name}")).unwrap());
    fs::create_dir(scene.path("ours")).unwrap();
    fs::write(scene.path("ours/sitecustomize.py"), both.concat() + "begin()\n").unwrap();
}

/// One that answered late is killed, and another started: it must have run nothing until it hears that it may.
#[test]
fn an_interpreter_that_said_it_goes_runs_nothing_before_it_is_let() {
    let scene = Scene::new(SUPERVISE);
    lay_ours(&scene);
    fs::write(scene.path("train.py"), "import sys\nopen(sys.argv[1], 'w').close()\n").unwrap();
    fs::write(scene.path("notes"), "b 1 9999999999\ni json\n").unwrap();
    for is_let in [false, true] {
        let (mut channel, theirs) = UnixStream::pair().unwrap();
        let (script, ran) = (scene.path("train.py"), scene.path("ran"));
        let mut interpreter = Command::new("python3")
            .arg(&script)
            .env("PYTHONPATH", scene.path("ours"))
            .env("SUPERVISE_AWAITED", "run/1/2")
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(channel.try_clone().unwrap()).lines().map(Result::unwrap);
        let draft = json!({"imports": scene.path("notes"), "pauses": 0});
        let order = json!({"argv": ["python3", script, ran], "cwd": std::env::current_dir().unwrap()});
        writeln!(channel, "{draft}\n{order}").unwrap();
        assert!(lines.any(|line| line.contains("goes")));
        if is_let {
            writeln!(channel, "{}", json!({"run": true})).unwrap();
        } else {
            channel.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert!(interpreter.wait().unwrap().success());
        assert_eq!(ran.exists(), is_let);
    }
}
