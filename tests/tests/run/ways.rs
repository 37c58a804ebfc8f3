//! The ways users start verl: a shell script, with `activate` in it or torchrun, a job of Ray. The example scripts
//! themselves are run, on a `verl` whose trainer is the demo's.

use super::SUPERVISE;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, names};

/// `verl.trainer.main_ppo`: notes how it was called and trains as the demo trainer does, on one rank. Asked for its configuration as
/// Hydra asks, it prints it, or refuses the override that REFUSED names.
const MAIN_PPO: &str = r#"
import json, os, subprocess, sys, time
if "--cfg" in sys.argv:
    sets = dict(w.lstrip("+").split("=", 1) for w in sys.argv[1:] if "=" in w)
    for refused in filter(sets.get, [os.environ.get("REFUSED")]):
        sys.exit("Could not override '" + refused + "'.")
    while "HELD" in os.environ: time.sleep(0.02)
    tree = {"trainer": {}}
    for key, value in sets.items():
        at = tree
        for part in key.split(".")[:-1]: at = at.setdefault(part, {})
        at[key.split(".")[-1]] = value
    flow = lambda at: "{" + ", ".join(k + ": " + flow(v) for k, v in at.items()) + "}" if isinstance(at, dict) else at
    for key, value in tree.items(): print(key + ": " + flow(value))
    sys.exit(0)
known = ("trainer.", "demo.", "++demo.", "algorithm.", "actor_rollout_ref.actor.checkpoint.")
with open(os.environ["CALLS"], "a") as f:
    f.write(json.dumps({"argv": sys.argv[1:], "path": os.environ["PATH"], "exe": sys.executable,
                        "ours": [k for k in os.environ if k.startswith(("BASH_FUNC_", "SUPERVISE_WAY"))]}) + "\n")
words = [w for w in sys.argv[1:] if w.startswith(known) and not w.startswith("trainer.logger")]
sys.exit(subprocess.call(["demo_trainer", *words]))
"#;

/// A scene with a fake `verl`, a few fake programs, and a root where the script's names put it.
pub(super) struct Stage {
    pub(super) scene: Scene,
    calls: PathBuf,
}

impl Stage {
    pub(super) fn new(root: &str) -> Self {
        let mut scene = Scene::new(SUPERVISE);
        let package = scene.path("site/verl/trainer");
        fs::create_dir_all(&package).unwrap();
        for dir in [&package, package.parent().unwrap()] {
            fs::write(dir.join("__init__.py"), "").unwrap();
        }
        fs::write(package.join("main_ppo.py"), MAIN_PPO).unwrap();
        let calls = scene.path("calls");
        let bin = scene.path("bin");
        fs::create_dir(&bin).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let (root, site) = (scene.path(root), scene.path("site"));
        let path = format!("{}:{path}", scene.program("").display());
        scene
            .set_root(&root)
            .env("PYTHONPATH", site.to_str().unwrap())
            .env("CALLS", calls.to_str().unwrap())
            .env("PATH", &path)
            .env("GPUS", "1")
            .env("DATA", "/data")
            .env("SUPERVISE_BACKOFF__INITIAL", "10ms")
            .env("SUPERVISE_SCAN_INTERVAL", "200ms");
        Self { scene, calls }
    }

    pub(super) fn grpo() -> Self {
        Self::new("checkpoints/grpo_gsm8k/qwen2_5_0_5b")
    }

    /// A program in front of PATH.
    pub(super) fn program(&self, name: &str, text: &str) -> PathBuf {
        script(&self.scene.path("bin").join(name), text)
    }

    /// How the trainer was called, call by call.
    pub(super) fn calls(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.calls).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Every call had each override of ours exactly once, and nothing of ours in its environment.
    pub(super) fn assert_marked_once(&self) {
        let calls = self.calls();
        for (n, call) in (1..).zip(&calls) {
            let argv = call["argv"].as_array().unwrap();
            let launch = self.scene.launch(n);
            let ours = launch["overrides"].as_array().unwrap();
            assert!(!ours.is_empty());
            assert!(argv.ends_with(ours), "{argv:?}\n{ours:?}");
            for one in ours {
                assert_eq!(argv.iter().filter(|a| *a == one).count(), 1, "{one} in {argv:?}");
            }
            assert_eq!(call["ours"], json!([]));
            let shims = self.scene.path("home/.local/state/supervise/shims");
            assert!(!call["path"].as_str().unwrap().contains(shims.to_str().unwrap()));
            assert!(!call["exe"].as_str().unwrap().contains("shims"));
        }
        assert_eq!(calls.len(), self.scene.attempts());
    }
}

pub(super) fn script(path: &Path, text: &str) -> PathBuf {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// The interpreter by its path.
pub(super) fn python() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut dirs = std::env::split_paths(&path).map(|d| d.join("python3"));
    dirs.find(|p| p.is_file()).unwrap()
}

pub(super) fn example(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scripts");
    dir.join(name).canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Small steps, eight of them, saved at every second one.
pub(super) const SMALL: [&str; 5] = [
    "trainer.total_training_steps=8",
    "trainer.save_freq=2",
    "++demo.hidden=[24,16]",
    "++demo.step_ms=20",
    "trainer.max_actor_ckpt_to_keep=null",
];
pub(super) const KILLED: &str = "++demo.faults=[{kind:kill_rank,step:5}]";

pub(super) fn run_words<'a>(command: &'a [&'a str], more: &'a [&'a str]) -> Vec<&'a str> {
    [&["run", "--"], command, more, &SMALL].concat()
}

#[test]
fn the_script_is_learnt_killed_and_brought_back() {
    let stage = Stage::grpo();
    let script = example("run_grpo.sh");
    let ended = stage.scene.ask(&run_words(&["bash", &script], &[KILLED]));
    ended
        .expect(0)
        .says("finished")
        .says("verl-ppo")
        .says("the script starts: python3 -m verl.trainer.main_ppo");
    assert_eq!((stage.scene.attempts(), stage.scene.resumed(2)), (2, Some(4)));
    stage.assert_marked_once();
    // It is found by the script, the root, and its identity.
    let root = stage.scene.root();
    for name in [script.as_str(), root.to_str().unwrap()] {
        stage.scene.ask(&["status", name]).expect(0).says("finished");
    }
    // Nothing is left of the learning.
    assert_eq!(
        names(&stage.scene.path("home/.local/state/supervise/learning")),
        [""; 0]
    );
    stage.scene.assert_alone();
}

#[test]
fn a_script_that_activates_an_environment_is_seen_through() {
    let mut stage = Stage::grpo();
    let venv = stage.scene.path("venv/bin");
    fs::create_dir_all(&venv).unwrap();
    fs::write(
        venv.join("activate"),
        format!(
            "export VIRTUAL_ENV={0}\nexport PATH={0}/bin:$PATH\n",
            venv.parent().unwrap().display()
        ),
    )
    .unwrap();
    // The environment's interpreter, which says where it stands, and a step before the training.
    script(
        &venv.join("python3"),
        &format!(
            "#!/bin/bash\necho \"$1 $2\" >> \"$CALLS.venv\"\nexec {} \"$@\"\n",
            python().display()
        ),
    );
    let prepare = script(
        &stage.scene.path("prepare.py"),
        "import sys; print('prepared', sys.argv[1:])\n",
    );
    let venv = venv.parent().unwrap().to_str().unwrap().to_owned();
    stage
        .scene
        .env("VENV", &venv)
        .env("PREPARE", prepare.to_str().unwrap())
        .env("SUPERVISE_REHEARSE", "false");
    let script = example("run_grpo.sh");
    let ended = stage.scene.ask(&run_words(&["bash", &script], &[]));
    ended.expect(0);
    stage.assert_marked_once();
    let used = fs::read_to_string(stage.scene.path("calls.venv")).unwrap();
    // It prepares while it is learnt and at the launch, and trains once; it is also the one that is asked for verl's release.
    let count = |what: &str| used.lines().filter(|l| l.contains(what)).count();
    assert_eq!(
        (count("prepare.py"), count("-m verl.trainer.main_ppo")),
        (2, 1),
        "{used}"
    );
    assert!(used.lines().count() > 3, "{used}");
    let log = fs::read_to_string(stage.scene.run_dir().join("attempts/0001/worker-0.log")).unwrap();
    assert!(log.contains("prepared ['--local_save_dir', '/data']"), "{log}");
}

#[test]
fn overrides_in_the_command_arrive_once_even_through_the_script() {
    let stage = Stage::grpo();
    let script = example("run_grpo.sh");
    let ended = stage
        .scene
        .ask(&run_words(&["bash", &script, "{overrides}"], &[KILLED]));
    ended.expect(0);
    assert_eq!(stage.scene.resumed(2), Some(4));
    stage.assert_marked_once();
}

#[test]
fn an_interpreter_by_path_needs_overrides_in_the_command() {
    let mut stage = Stage::new("checkpoints/grpo_gsm8k/by_path");
    stage.scene.env("PYTHON", python().to_str().unwrap());
    // It is seen to run, so it must live long enough for that.
    let main = stage.scene.path("site/verl/trainer/main_ppo.py");
    fs::write(&main, format!("import time; time.sleep(2)\n{MAIN_PPO}")).unwrap();
    let script = example("run_overrides.sh");
    stage
        .scene
        .ask(&run_words(&["bash", &script], &[]))
        .expect(78)
        .says("by the path of its interpreter")
        .says("{overrides}");
    assert_eq!(stage.calls(), [Value::Null; 0]);
    let ended = stage
        .scene
        .ask(&run_words(&["bash", &script, "{overrides}"], &[KILLED]));
    ended.expect(0);
    assert_eq!((stage.scene.attempts(), stage.scene.resumed(2)), (2, Some(4)));
    let calls = stage.calls();
    let ours = stage.scene.launch(2)["overrides"].clone();
    assert!(
        ours.as_array()
            .unwrap()
            .iter()
            .all(|o| calls[1]["argv"].as_array().unwrap().contains(o))
    );
    stage.scene.assert_alone();
}

#[test]
fn a_trainer_without_our_overrides_is_ended_before_its_first_save() {
    let stage = Stage::grpo();
    // The first time it calls by name, later by path.
    let text = format!(
        "#!/bin/bash\nPY=python3\n[ -e {mark} ] && PY=$(type -P -a python3 | tail -n 1)\ntouch {mark}\n\"$PY\" -m verl.trainer.main_ppo \
         trainer.project_name=grpo_gsm8k trainer.experiment_name=qwen2_5_0_5b trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {} ++demo.hold_at=1\n",
        SMALL.join(" "),
        mark = stage.scene.path("mark").display()
    );
    let path = script(&stage.scene.path("run.sh"), &text);
    let ended = stage.scene.ask(&["run", "--", "bash", path.to_str().unwrap()]);
    ended.expect(78).says("without our overrides");
    assert_eq!(names(&stage.scene.root()), [".supervise"]);
    stage.scene.assert_alone();
}

#[test]
fn another_call_than_was_learnt_is_not_made() {
    let stage = Stage::grpo();
    let text = format!(
        "#!/bin/bash\nN=$(cat {count} 2>/dev/null || echo 2); echo 4 > {count}\npython3 -m verl.trainer.main_ppo \
         trainer.project_name=grpo_gsm8k trainer.experiment_name=qwen2_5_0_5b trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo trainer.save_freq=$N > out.txt 2>&1\n",
        count = stage.scene.path("count").display()
    );
    let path = script(&stage.scene.path("run.sh"), &text);
    let ended = stage.scene.ask(&["run", "--", path.to_str().unwrap()]);
    ended.expect(78).says("trainer.save_freq was `2`, it is `4` now");
    assert_eq!(stage.calls(), [Value::Null; 0]);
    stage.scene.assert_alone();
}

#[test]
fn a_script_that_tries_again_by_itself_is_relaunched_instead() {
    let stage = Stage::grpo();
    let text = format!(
        "#!/bin/bash\nuntil python3 -m verl.trainer.main_ppo trainer.project_name=grpo_gsm8k trainer.experiment_name=qwen2_5_0_5b \
         trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {} '{KILLED}'; do echo once more; done\n",
        SMALL.join(" ")
    );
    let path = script(&stage.scene.path("run.sh"), &text);
    let ended = stage.scene.ask(&["run", "--", "bash", path.to_str().unwrap()]);
    ended.expect(0).says("the trainer of the script");
    assert_eq!((stage.scene.attempts(), stage.scene.resumed(2)), (2, Some(4)));
    stage.assert_marked_once();
}

#[test]
fn a_job_of_ray_is_waited_for() {
    let mut stage = Stage::new("shared");
    stage.program(
        "ray",
        "#!/bin/bash\n[ \"$1 $2\" = 'job stop' ] && exit 0\n[ \"$1 $2\" = 'job submit' ] || exit 9\nfor a in \"$@\"; do [ \"$a\" = --no-wait ] && exit 8; done\n\
         while [ \"$1\" != -- ]; do shift; done; shift; \"$@\" || exit 1\n",
    );
    let root = stage.scene.root();
    stage.scene.env("ROOT", root.to_str().unwrap());
    let script = example("run_ray_job.sh");
    let ended = stage.scene.ask(&run_words(&["bash", &script], &[KILLED]));
    ended.expect(0);
    assert_eq!((stage.scene.attempts(), stage.scene.resumed(2)), (2, Some(4)));
    stage.assert_marked_once();
    // The same without a script: nothing has to be learnt.
    let direct = [
        "ray",
        "job",
        "submit",
        "--no-wait",
        "--",
        "python3",
        "-m",
        "verl.trainer.main_ppo",
    ];
    let root = format!("trainer.default_local_dir={}", stage.scene.path("direct").display());
    let more = [
        root.as_str(),
        "trainer.n_gpus_per_node=1",
        "algorithm.adv_estimator=grpo",
    ];
    stage
        .scene
        .ask(&run_words(&direct, &more))
        .expect(0)
        .says("--no-wait is taken out");
}
