//! The ways users start verl: a shell script, with `activate` in it or torchrun, a job of Ray. The example scripts
//! themselves are run, on a `verl` whose trainer is the demo's.

use super::SUPERVISE;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, names, wait_for};

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

    fn grpo() -> Self {
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
    fn assert_marked_once(&self) {
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

fn script(path: &Path, text: &str) -> PathBuf {
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

fn example(name: &str) -> String {
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
    ended.expect(0).says("start a trainer again");
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

#[test]
fn a_plan_runs_no_script_unless_it_is_asked_to() {
    let mut stage = Stage::new("sft-root");
    let mark = stage.scene.path("torchrun-ran");
    stage.program("torchrun", &format!("#!/bin/bash\ntouch {}\n", mark.display()));
    let root = stage.scene.root();
    stage.scene.env("ROOT", root.to_str().unwrap());
    let script = example("run_sft.sh");
    let ran = stage.scene.path("ran");
    stage.scene.env("VENV", stage.scene.path("venv").to_str().unwrap());
    fs::create_dir_all(stage.scene.path("venv/bin")).unwrap();
    fs::write(
        stage.scene.path("venv/bin/activate"),
        format!("touch {}\n", ran.display()),
    )
    .unwrap();
    stage
        .scene
        .ask(&["plan", "--", "bash", &script])
        .expect(78)
        .says("plan --learn");
    assert!(!ran.exists());
    let told = stage.scene.ask(&["plan", "--learn", "--json", "--", "bash", &script]);
    let view: Value = serde_json::from_str(&told.expect(0).text).unwrap();
    assert!(ran.exists() && !mark.exists());
    assert_eq!(view["trainer"], "verl-sft");
    assert_eq!(view["root"], root.to_str().unwrap());
    assert_eq!(view["gang"]["launcher"], "driver");
    stage.scene.assert_alone();
}

#[test]
fn a_script_without_a_trainer_is_told_with_what_was_seen() {
    let stage = Stage::grpo();
    let path = script(
        &stage.scene.path("run.sh"),
        "#!/bin/sh\npython3 -c 'print(41 + 1)'\nexit 3\n",
    );
    let ended = stage.scene.ask(&["run", "--", "sh", path.to_str().unwrap()]);
    ended
        .expect(78)
        .says("exit code 3")
        .says("it called: python3 -c")
        .says("    42")
        .says("supervisor.trainer=plain");
    let path = script(&stage.scene.path("slow.sh"), "#!/bin/sh\nsleep 600\n");
    let slow = [
        "run",
        "--set",
        "supervisor.learn_within=1s",
        "--",
        path.to_str().unwrap(),
    ];
    stage.scene.ask(&slow).expect(78).says("learn_within");
    stage.scene.assert_alone();
}

#[test]
fn what_lasts_in_a_script_of_no_known_trainer_is_ended_early_and_said() {
    let stage = Stage::grpo();
    let steps = stage.scene.path("steps");
    let train = script(
        &stage.scene.path("train.py"),
        &format!(
            "import time\nfor step in range(3000):\n    print('step', step, file=open('{}', 'a'), flush=True)\n    time.sleep(0.1)\n",
            steps.display()
        ),
    );
    let path = script(
        &stage.scene.path("wrap.sh"),
        &format!(
            "#!/bin/sh\nsleep 3\n{} {} | tee log\n",
            python().display(),
            train.display()
        ),
    );
    let words = [
        "run",
        "--set",
        "supervisor.learn_step=2s",
        "--",
        "sh",
        path.to_str().unwrap(),
    ];
    let ended = stage.scene.ask(&words);
    let plain = format!("supervise run --set supervisor.trainer=plain -- sh {}", path.display());
    ended
        .expect(78)
        .says("note: reading what `sh ")
        .says("is no trainer that is known")
        .says("train.py")
        .says(&plain)
        .says("supervisor.learn_step");
    let done = fs::read_to_string(&steps).unwrap().lines().count();
    assert!(done < 1000, "{done} steps were trained unsupervised");
    stage.scene.assert_alone();
}

#[test]
fn a_living_trainer_is_taken_over_without_running_its_script() {
    let stage = Stage::grpo();
    let path = script(
        &stage.scene.path("run.sh"),
        &format!(
            "#!/bin/bash\necho x >> {}\npython3 -m verl.trainer.main_ppo trainer.project_name=grpo_gsm8k trainer.experiment_name=qwen2_5_0_5b \
             trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {} ++demo.hold_at=5 \"$@\"\n",
            stage.scene.path("started").display(),
            SMALL.join(" ")
        ),
    );
    let words = ["run", "--", "bash", path.to_str().unwrap()];
    let run = stage.scene.start_with(&words);
    wait_for("step 4 is saved", || stage.scene.tracked() == Some(4));
    stage
        .scene
        .ask(&words)
        .expect(5)
        .says("another supervisor of this script");
    run.kill();
    let run = stage.scene.start_with(&words);
    wait_for("it is taken over", || {
        run.text().contains("goes on with") || run.text().contains("taken over")
    });
    stage.scene.go();
    run.wait().expect(0);
    let started = fs::read_to_string(stage.scene.path("started")).unwrap();
    assert_eq!((started.lines().count(), stage.scene.attempts()), (2, 1));
    stage.scene.assert_alone();
}

#[test]
fn a_root_with_the_time_in_its_name_is_asked_about() {
    let stage = Stage::new("checkpoints/p/e_1");
    let path = script(
        &stage.scene.path("run.sh"),
        &format!(
            "#!/bin/bash\nN=$(cat {count} 2>/dev/null || echo 0); N=$((N + 1)); echo $N > {count}\npython3 -m verl.trainer.main_ppo \
             trainer.project_name=p trainer.experiment_name=e_$N trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {}\n",
            SMALL.join(" "),
            count = stage.scene.path("count").display()
        ),
    );
    let words = ["run", "--", "bash", path.to_str().unwrap()];
    stage.scene.ask(&words).expect(0);
    assert_eq!((stage.scene.attempts(), stage.scene.tracked()), (1, Some(8)));
    stage
        .scene
        .ask(&words)
        .expect(78)
        .says("is the time in its name?")
        .says("checkpoints/p/e_1");
}

#[test]
fn a_script_that_starts_ray_keeps_the_cluster_it_started() {
    let mut stage = Stage::grpo();
    let started = stage.scene.path("ray-started");
    stage.program(
        "ray",
        &format!(
            "#!/bin/bash\n[ \"$1 $2\" = 'start --head' ] && echo x >> {}\n",
            started.display()
        ),
    );
    stage.scene.env("SUPERVISE_TRAINER_VERSION", "0.9.1");
    let text = format!(
        "#!/bin/bash\nray start --head\npython3 -m verl.trainer.main_ppo trainer.project_name=grpo_gsm8k trainer.experiment_name=qwen2_5_0_5b \
         trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {} '{KILLED}'\n",
        SMALL.join(" ")
    );
    let path = script(&stage.scene.path("run.sh"), &text);
    let words = ["plan", "--learn", "--", "bash", path.to_str().unwrap()];
    let told = stage.scene.ask(&words);
    told.expect(0)
        .says("the script starts a cluster")
        .says("in its call  trainer.resume_mode=disable");
    let run = ["run", "--", "bash", path.to_str().unwrap()];
    stage.scene.ask(&run).expect(0);
    assert_eq!((stage.scene.attempts(), stage.scene.resumed(2)), (2, Some(4)));
    for n in [1, 2] {
        let launch = stage.scene.launch(n).to_string();
        assert!(
            !launch.contains("ray_init.address") && !launch.contains("RAY_ADDRESS"),
            "{launch}"
        );
    }
    // Learnt twice, launched twice.
    assert_eq!(fs::read_to_string(started).unwrap().lines().count(), 4);
    // Without `ray start` the trainer gets a cluster of its own.
    let text = text
        .replace("ray start --head", "true")
        .replace("qwen2_5_0_5b", "alone");
    let alone = script(&stage.scene.path("alone.sh"), &text);
    let words = ["plan", "--learn", "--", "bash", alone.to_str().unwrap()];
    stage.scene.ask(&words).expect(0).says("ray_init.address=local");
}
