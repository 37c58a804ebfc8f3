//! Words that an operator reads of a run that failed: the worker's own last words, and the output of attempt after attempt.

use super::scene;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use supervise_tests::harness::{Refusal, wait_for};

#[test]
fn the_last_lines_of_what_no_rule_knows_are_told() {
    let scene = scene();
    let worker = scene.program("fake_worker");
    let lines: Vec<String> = (1..=20).map(|n| format!("strange thing {n}.")).collect();
    let mut words = vec![
        "run",
        "--set",
        "supervisor.retries=0",
        "--",
        worker.to_str().unwrap(),
        "error",
        "7",
    ];
    words.extend(lines.iter().map(String::as_str));
    words.push("\u{1b}[2Jfetched from http://me:hush@host/x");
    let ended = scene.ask(&words);
    ended.expect(6).says("worker 0 exited with code 7");
    scene
        .ask(&["status"])
        .says("1 attempt without progress, 0 of 0 retries used");
    for told in [ended.text, scene.ask(&["status"]).text, scene.ask(&["explain"]).text] {
        for (words, there) in [
            ("strange thing 20.", true),
            ("strange thing 12.", true),
            ("strange thing 11.", false),
            ("fetched from http://***@host/x", true),
            ("hush", false),
            ("\u{1b}", false),
        ] {
            // The command itself says the same words.
            let mut told = told
                .lines()
                .filter(|l| !l.contains("command") && !l.contains("error 7"));
            assert_eq!(told.any(|l| l.contains(words)), there, "{words:?}: {told:?}");
        }
    }
}

#[test]
fn what_follows_the_output_follows_the_run_from_attempt_to_attempt() {
    let scene = scene();
    let script = scene.path("train.sh");
    let go = scene.path("go");
    let count = scene.path("count");
    fs::write(
        &script,
        format!(
            "n=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo $n > {count}; echo attempt says $n
             if [ $n = 2 ]; then exit 0; fi; while [ ! -e {go} ]; do sleep 0.05; done; exit 3",
            count = count.display(),
            go = go.display()
        ),
    )
    .unwrap();
    let run = scene.start_plain(&["backoff.initial=100ms"], &["sh", script.to_str().unwrap()]);
    wait_for("the first attempt", || count.exists());
    let follower = scene.start_with(&["logs", "--follow"]);
    wait_for("its output is shown", || follower.text().contains("attempt says 1"));
    fs::write(&go, "").unwrap();
    run.wait().expect(0);
    let shown = follower.wait();
    shown.expect(0).says("attempt says 2");
    assert!(!scene.ask(&["logs", "--attempt", "1"]).text.contains("attempt says 2"));
}

#[test]
fn of_several_workers_the_output_of_the_one_that_failed_first_is_shown() {
    let scene = scene();
    let script = "echo i am $RANK; if [ $RANK = 2 ]; then exit 9; fi; exec sleep 60";
    let run = scene.start_plain(&["gang.workers=3", "retries=0"], &["sh", "-c", script]);
    run.wait().expect(6);
    let shown = scene.ask(&["logs"]);
    shown
        .expect(0)
        .says("i am 2")
        .says("worker 2 of attempt 1 failed first");
    scene.ask(&["logs", "--worker", "1"]).expect(0).says("i am 1");
}

#[test]
fn a_trainer_that_cannot_be_imported_is_known_before_the_launch() {
    let mut scene = scene();
    // What stands in PATH may be a script that chooses one.
    let said = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .unwrap();
    let python = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
    let look = "import importlib.util as u; raise SystemExit(u.find_spec('verl') is not None)";
    if !Command::new(&python).args(["-c", look]).status().unwrap().success() {
        let why = format!("{} has verl", python.display());
        return Refusal::new(&why).tell("a trainer that cannot be imported");
    }
    let words = json!([python.to_str().unwrap(), "-m", "verl.trainer.main_ppo", "{overrides}"]);
    scene.set("supervisor.command", words);
    let config = scene.write_config();
    let planned = scene.ask(&["plan", config.to_str().unwrap()]);
    planned
        .expect(78)
        .says("`run` would be refused here: verl cannot be imported by");
    let ended = scene.run(&[]);
    ended
        .expect(78)
        .says("verl cannot be imported by")
        .says("nothing was started");
    assert!(!scene.run_dir().join("attempts").exists());
    // A script that chooses the interpreter, by the directory it is started in, as pyenv's does: it is asked itself.
    let shim = scene.path("python3");
    let chosen = scene.path("here/.python");
    fs::create_dir(chosen.parent().unwrap()).unwrap();
    fs::write(&chosen, python.to_str().unwrap()).unwrap();
    fs::write(&shim, "#!/bin/sh\nexec \"$(cat .python)\" \"$@\"\n").unwrap();
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scene.path("").display(), std::env::var("PATH").unwrap());
    let inside = format!("cd {} && exec \"$0\" \"$@\"", chosen.parent().unwrap().display());
    scene.env("PATH", &path);
    let ended = scene
        .other(Path::new("/bin/sh"))
        .args(["-c", &inside])
        .arg(scene.program("supervise"))
        .args(["run", "--", "python3", "-m", "verl.trainer.main_ppo"])
        .args([
            "trainer.save_freq=1",
            "trainer.n_gpus_per_node=1",
            "algorithm.adv_estimator=grpo",
        ])
        .arg(format!("trainer.default_local_dir={}", scene.path("other").display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(78), "{said}");
    for words in ["verl cannot be imported by", "`python3 -m verl", "nothing was started"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!scene.path("other/.supervise/attempts").exists());
}

/// A control group with so much memory below our own; none where the machine does not let us have one.
pub(super) struct LittleMemory(PathBuf);

impl LittleMemory {
    pub(super) fn make(name: &str, most: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let first = own
            .lines()
            .find_map(|l| l.split_once(":memory:").map(|(_, path)| path.to_owned()));
        let (above, limit) = match first {
            Some(path) => (
                PathBuf::from(format!("/sys/fs/cgroup/memory{path}")),
                "memory.limit_in_bytes",
            ),
            None => {
                let path = own.lines().find_map(|l| l.strip_prefix("0::"))?;
                (PathBuf::from(format!("/sys/fs/cgroup{path}")), "memory.max")
            }
        };
        let group = Self(above.join(format!("supervise-test-{name}-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(limit), most).ok()?;
        // Without swap where that is counted: it ends sooner.
        let _ = fs::write(group.0.join("memory.memsw.limit_in_bytes"), most);
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        Some(group)
    }

    pub(super) fn entrance(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_worker_that_the_kernel_killed_for_want_of_memory_is_told_as_such() {
    let Some(little) = LittleMemory::make("kill", "256M") else {
        let why = "no control group with a limit of memory can be made here";
        return Refusal::new(why).tell("a worker that was killed for want of memory");
    };
    let mut scene = scene();
    let enter = scene.path("enter.sh");
    // Only the worker is in it: what has little memory is not the supervisor.
    let text = format!(
        "echo $$ > {} || exit 5\nexec tail /dev/zero\n",
        little.entrance().display()
    );
    fs::write(&enter, text).unwrap();
    scene.env("SUPERVISE_KILL__CGROUP", "off");
    let log = Path::new("/dev/kmsg");
    if fs::File::open(log).is_ok() {
        scene
            .start_plain(&["retries=0"], &["sh", enter.to_str().unwrap()])
            .wait()
            .expect(6)
            .says("mem.host_oom")
            .says("the kernel: Memory cgroup out of memory: Killed process");
        scene.ask(&["explain"]).says("mem.host_oom");
    } else {
        Refusal::new("it may not be read here").tell("what the kernel's log says of a kill");
    }
    // All of it is in it, and counts its processes by itself: the counters of the group tell what the log does not.
    let inside = format!(
        "echo $$ > {} || exit 5; exec unshare --pid --fork --mount-proc sh -c '{} run --set supervisor.trainer=plain --set supervisor.retries=0 -- tail /dev/zero; exit $?'",
        little.entrance().display(),
        scene.program("supervise").display()
    );
    let ended = scene
        .other(Path::new("/bin/sh"))
        .args(["-c", &inside])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(6), "{said}");
    assert!(
        said.contains("mem.host_oom") && said.contains("of this control group"),
        "{said}"
    );
}
