//! Scripts with everything in their code: the trainer is seen while it runs, its steps are proven, and a relaunch is given one.

use super::scene;
use std::fs;
use supervise_tests::harness::{Scene, Supervisor, wait_for};

/// As much of the module as a training needs: it saves whole steps every two, and is killed once, after step 3.
const TRAINER: &str = r#"
import json, os, shutil, signal, time

class Args:
    def __init__(self, output_dir, save_steps=2, max_steps=6, save_strategy="steps", save_total_limit=None):
        self.output_dir, self.save_steps, self.max_steps = output_dir, save_steps, max_steps
        self.save_strategy, self.save_total_limit = save_strategy, save_total_limit

class Trainer:
    def __init__(self, args):
        self.args = args

    def train(self, resume_from_checkpoint=None, trial=None, **more):
        log = open(os.environ["LOG"], "a")
        print("given", resume_from_checkpoint and os.path.basename(resume_from_checkpoint), file=log, flush=True)
        first = int(str(resume_from_checkpoint).rsplit("-", 1)[1]) if resume_from_checkpoint else 0
        for step in range(first + 1, self.args.max_steps + 1):
            print(step, file=log, flush=True)
            if step % self.args.save_steps == 0:
                self.save(step)
            while step == 3 and "HOLD" in os.environ and not os.path.exists(os.environ["LOG"] + ".go"):
                time.sleep(0.02)
            if step == int(os.environ.get("ENDS", 0)):
                return print({"train_runtime": 1.0}, flush=True)
            if step == 3 and not os.path.exists(os.environ["LOG"] + ".killed"):
                open(os.environ["LOG"] + ".killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    def save(self, step):
        place = f"{self.args.output_dir}/checkpoint-{step}"
        shutil.copytree(os.environ["STEP"], place)
        with open(f"{place}/trainer_state.json") as f:
            state = json.load(f)
        state.update(global_step=step, max_steps=self.args.max_steps)
        if step == int(os.environ.get("ENDS", 0)):
            state["stateful_callbacks"] = {"TrainerControl": {"args": {"should_training_stop": True}, "attributes": {}}}
        with open(f"{place}/trainer_state.json", "w") as f:
            json.dump(state, f)
"#;

const HEAD: &str = "import sys\nfrom transformers.trainer import Args, Trainer\nout = sys.argv[1]\n";

/// Runs a script to its end: what it did, and what a person was told.
fn run(scene: &mut Scene, script: &str, settings: &[&str], code: i32) -> (String, String) {
    let ended = start(scene, script, settings).wait();
    ended.expect(code);
    (did(scene), ended.text.clone())
}

fn did(scene: &Scene) -> String {
    fs::read_to_string(scene.path("log")).unwrap().replace('\n', " ")
}

fn start(scene: &mut Scene, script: &str, settings: &[&str]) -> Supervisor {
    let words = words(scene, script, settings, "run");
    scene.start_with(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The words that start the script; `run_dir`: where its run lives.
fn words(scene: &mut Scene, script: &str, settings: &[&str], run_dir: &str) -> Vec<String> {
    let site = scene.path("site/transformers");
    fs::create_dir_all(&site).unwrap();
    fs::write(site.join("__init__.py"), "").unwrap();
    fs::write(site.join("trainer.py"), TRAINER).unwrap();
    let train = scene.path("train.py");
    fs::write(&train, format!("{HEAD}{script}")).unwrap();
    let (log, out, run_dir) = (scene.path("log"), scene.path("out"), scene.path(run_dir));
    let step = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/hf_trainer_w2/checkpoint-2");
    scene
        .env("PYTHONPATH", scene.path("site").to_str().unwrap())
        .env("LOG", log.to_str().unwrap())
        .env("STEP", step);
    let run_dir = format!("run_dir={}", run_dir.display());
    let all = ["retries=3", "backoff.initial=50ms", "backoff.max=50ms", &run_dir];
    let settings: Vec<String> = all.iter().chain(settings).map(|s| format!("supervisor.{s}")).collect();
    let mut words = vec!["run"];
    words.extend(settings.iter().flat_map(|s| ["--set", s]));
    words.extend(["--", "python3", train.to_str().unwrap(), out.to_str().unwrap()]);
    words.into_iter().map(str::to_owned).collect()
}

fn go(scene: &mut Scene, words: &[String]) -> Supervisor {
    scene.start_with(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A command that names the root of such a script.
fn names_root(scene: &Scene) -> Vec<String> {
    let root = format!("supervisor.root={}", scene.path("out").display());
    let all = [
        "run",
        "--set",
        "supervisor.trainer=hf",
        "--set",
        &root,
        "--",
        "sleep",
        "300",
    ];
    all.map(str::to_owned).to_vec()
}

#[test]
fn a_script_with_everything_in_its_code_resumes() {
    for script in [
        "Trainer(Args(out)).train()\n",
        "class Own(Trainer):\n  def train(self, *args, **more):\n    return super().train(*args, **more)\nOwn(Args(out)).train(None)\n",
        "Trainer(Args(out)).train(resume_from_checkpoint=False)\n",
    ] {
        let mut scene = scene();
        let (did, told) = run(&mut scene, script, &[], 0);
        assert_eq!(
            did.replace("False", "None"),
            "given None 1 2 3 given checkpoint-2 3 4 5 6 ",
            "{told}"
        );
        for words in [
            "saves in",
            "every 2 steps",
            "resume from checkpoint-2",
            "it is given",
            "finished: step 6 is proven",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
    }
}

#[test]
fn a_script_that_asks_by_itself_is_left_to_it() {
    let script = "import os\nlast = sorted(os.listdir(out))[-1:] if os.path.isdir(out) else []\n\
                  Trainer(Args(out)).train(resume_from_checkpoint=out + '/' + last[0] if last else None)\n";
    let mut scene = scene();
    let (did, told) = run(&mut scene, script, &[], 0);
    assert_eq!(did, "given None 1 2 3 given checkpoint-2 3 4 5 6 ", "{told}");
}

#[test]
fn what_may_be_another_trainings_step_is_not_given() {
    // Two trainings into one directory.
    let mut twice = scene();
    let script = "import shutil; shutil.rmtree(out, True)\nTrainer(Args(out, max_steps=2)).train()\nTrainer(Args(out, save_steps=3, max_steps=3)).train()\n";
    let (did, told) = run(&mut twice, script, &[], 0);
    assert!(!did.contains("given checkpoint"), "{did}: {told}");
    assert!(
        told.contains("watched only: it trains into this directory more than once"),
        "{told}"
    );
    // Steps of an earlier training.
    let mut before = scene();
    fs::create_dir_all(before.path("out/checkpoint-90")).unwrap();
    let script = "import shutil; shutil.rmtree(out + '/checkpoint-2', True)\nTrainer(Args(out)).train()\n";
    let (did, told) = run(&mut before, script, &[], 0);
    assert!(!did.contains("given checkpoint"), "{did}: {told}");
    assert!(told.contains("1 steps were there when it began anew"), "{told}");
    // A person says that nothing is to be done.
    for setting in ["trainer=plain", "interpreter=plain"] {
        let mut plain = scene();
        let script = "import shutil; shutil.rmtree(out, True)\nTrainer(Args(out)).train()\n";
        let (did, told) = run(&mut plain, script, &[setting], 0);
        assert!(
            !did.contains("given checkpoint") && !told.contains("saves in"),
            "{did}: {told}"
        );
    }
}

#[test]
fn a_hook_that_fails_breaks_nothing() {
    // Arguments that it cannot read, a module without the class, a class that cannot be changed.
    let odd = "class Odd:\n  def __getattr__(self, name):\n    raise RuntimeError(name)\n\
               class Own(Trainer):\n  def __init__(self):\n    self.args = Odd()\n";
    let script = format!("{odd}try:\n  Own().train()\nexcept RuntimeError:\n  pass\nopen(out, 'w').write('done')\n");
    let mut scene = scene();
    let (did, told) = run(&mut scene, &script, &[], 0);
    assert!(
        did.starts_with("given None")
            && !told.contains("saves in")
            && told.contains("the hook in this script failed (RuntimeError)"),
        "{did}: {told}"
    );
    assert_eq!(fs::read_to_string(scene.path("out")).unwrap(), "done");
}

#[test]
fn what_was_seen_is_known_to_the_next_term() {
    let mut scene = scene();
    scene.env("HOLD", "1");
    let script = "Trainer(Args(out)).train()\n";
    let first = start(&mut scene, script, &[]);
    wait_for("the trainer is seen", || first.text().contains("step 2 is proven"));
    first.kill();
    let second = start(&mut scene, script, &[]);
    wait_for("the living guard is taken over", || {
        second.text().contains("taken over")
    });
    fs::write(scene.path("log.go"), "").unwrap();
    second.wait().expect(0).says("resume from checkpoint-2");
    assert_eq!(did(&scene), "given None 1 2 3 given checkpoint-2 3 4 5 6 ");
}

#[test]
fn a_root_with_another_runs_journal_is_left_to_that() {
    let mut scene = scene();
    let root = format!("supervisor.root={}", scene.path("out").display());
    let other = [
        "run",
        "--set",
        "supervisor.trainer=hf",
        "--set",
        &root,
        "--",
        "python3",
        "-c",
        "pass",
    ];
    scene.start_with(&other).wait().expect(0);
    let script = "import shutil; shutil.rmtree(out + '/checkpoint-2', True)\nTrainer(Args(out)).train()\n";
    let (did, told) = run(&mut scene, script, &[], 0);
    assert!(!did.contains("given checkpoint"), "{did}: {told}");
    assert!(
        told.contains("another run of supervise has its journal there"),
        "{told}"
    );
}

#[test]
fn two_runs_do_not_train_into_one_directory() {
    let mut scene = scene();
    scene.env("HOLD", "1");
    let script = "Trainer(Args(out)).train()\n";
    let first = start(&mut scene, script, &[]);
    wait_for("the trainer is seen", || first.text().contains("step 2 is proven"));
    // The same script with another word is another run; and a command may name the directory.
    let mut second = words(&mut scene, script, &[], "other");
    second.push("--verbose".to_owned());
    go(&mut scene, &second).wait().expect(5).says("trains into");
    let named = names_root(&scene);
    go(&mut scene, &named).wait().expect(5).says("its script saves there");
    // The directory leads to the run that trains there.
    let out = scene.path("out");
    let told = scene.ask(&["status", out.to_str().unwrap()]);
    assert!(told.text.contains("step 2"), "{}", told.text);
    // What outlives its supervisor trains on.
    first.kill();
    go(&mut scene, &named).wait().expect(5).says("its script saves there");
    let third = start(&mut scene, script, &[]);
    wait_for("it is taken over", || third.text().contains("taken over"));
    fs::write(scene.path("log.go"), "").unwrap();
    third.wait().expect(0);
    let told = scene.ask(&["status", out.to_str().unwrap()]);
    assert!(told.text.contains("finished"), "{}", told.text);
}

#[test]
fn a_script_leaves_a_directory_to_the_run_that_lives_there() {
    let mut scene = scene();
    let named = names_root(&scene);
    let first = go(&mut scene, &named);
    wait_for("it runs", || first.text().contains("attempt 1"));
    let script = "Trainer(Args(out)).train()\nimport time; time.sleep(60)\n";
    let (did, told) = run(&mut scene, script, &[], 5);
    assert!(
        told.contains("which saves into") && !did.contains("given checkpoint"),
        "{did}: {told}"
    );
    // Its processes outlive it.
    first.kill();
    let (_, told) = run(&mut scene, script, &[], 5);
    assert!(told.contains("live without a supervisor"), "{told}");
}

#[test]
fn a_fresh_start_needs_a_directory_that_is_known() {
    let mut scene = scene();
    let script = "Trainer(Args(out, max_steps=2)).train()\n";
    let mut fresh = words(&mut scene, script, &[], "run");
    fresh.insert(1, "--fresh".to_owned());
    go(&mut scene, &fresh).wait().expect(64).says("it was never seen");
    run(&mut scene, script, &[], 0);
    go(&mut scene, &fresh).wait().expect(64).says("--fresh --yes");
    fresh.insert(1, "--yes".to_owned());
    let told = go(&mut scene, &fresh).wait();
    told.expect(0);
    assert!(!told.text.contains("ignored"), "{}", told.text);
    assert_eq!(did(&scene), "given None 1 2 given None 1 2 ", "{}", told.text);
}

#[test]
fn a_failure_after_the_last_step_is_no_end() {
    let mut scene = scene();
    let script = "Trainer(Args(out)).train()\nmark = os.environ['LOG'] + '.tail'\n\
                  if not os.path.exists(mark):\n  open(mark, 'w').close()\n  raise OSError('no model was saved')\nopen(out + '/model', 'w').close()\n";
    let (did, told) = run(&mut scene, &format!("import os\n{script}"), &[], 0);
    assert!(did.ends_with("4 5 6 given checkpoint-6 "), "{did}: {told}");
    assert!(told.contains("failed after its last step"), "{told}");
    assert!(scene.path("out/model").exists(), "{told}");
}

#[test]
fn a_trainer_that_ends_by_itself_is_finished() {
    let mut scene = scene();
    scene.env("ENDS", "4");
    let script = "Trainer(Args(out, max_steps=20)).train()\n";
    let (did, told) = run(&mut scene, script, &[], 0);
    assert_eq!(did, "given None 1 2 3 given checkpoint-2 3 4 ", "{told}");
    assert!(
        told.contains("the trainer ended its training by itself at step 4 of 20"),
        "{told}"
    );
}

#[test]
fn a_finished_run_trains_on_if_more_steps_are_planned() {
    let mut scene = scene();
    let script = "flag = lambda name: next((w.split('=', 1)[1] for w in sys.argv if w.startswith(name + '=')), None)\n\
                  Trainer(Args(out, max_steps=int(flag('--max_steps')))).train(flag('--resume_from_checkpoint'))\n";
    let mut all = words(&mut scene, script, &[], "run");
    all.push(format!("--output_dir={}", scene.path("out").display()));
    all.extend(["--save_steps=2", "--logging_steps=1", "--max_steps=4"].map(str::to_owned));
    go(&mut scene, &all).wait().expect(0);
    *all.last_mut().unwrap() = "--max_steps=6".to_owned();
    go(&mut scene, &all).wait().expect(0).says("resume from checkpoint-4");
    assert_eq!(
        did(&scene),
        "given None 1 2 3 given checkpoint-2 3 4 given checkpoint-4 5 6 "
    );
}
