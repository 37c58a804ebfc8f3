//! Scripts that are asked about, refused, taken over, or keep something that they started.

use super::ways::{KILLED, SMALL, Stage, example, python, script};
use serde_json::Value;
use std::fs;
use supervise_tests::harness::{names, wait_for};

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
    let told = stage
        .scene
        .ask(&["plan", "--learn", "--yes", "--json", "--", "bash", &script]);
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
fn the_last_words_of_a_script_are_told_and_nothing_of_the_reading_is_left() {
    let stage = Stage::grpo();
    let text = "#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9; do echo line $n; done\nexit 3\n";
    let path = script(&stage.scene.path("run.sh"), text);
    // The writer of its output is a process of its own that may come late: looked at more than once.
    for _ in 0..12 {
        let ended = stage
            .scene
            .ask(&["plan", "--learn", "--yes", "--", "sh", path.to_str().unwrap()]);
        ended.expect(78).says("    line 9");
        assert_eq!(
            names(&stage.scene.path("home/.local/state/supervise/learning")),
            [""; 0]
        );
    }
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
    stage.scene.ask(&words).expect(5).says("is already running");
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
    let stage = Stage::new("checkpoints/p/e_20261128_000001");
    let path = script(
        &stage.scene.path("run.sh"),
        &format!(
            "#!/bin/bash\nN=$(cat {count} 2>/dev/null || echo 0); N=$((N + 1)); echo $N > {count}\npython3 -m verl.trainer.main_ppo \
             trainer.project_name=p trainer.experiment_name=e_20261128_00000$N trainer.n_gpus_per_node=1 algorithm.adv_estimator=grpo {}\n",
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
        .says("checkpoints/p/e_20261128_000001");
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
    let words = ["plan", "--learn", "--yes", "--", "bash", path.to_str().unwrap()];
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
    let words = ["plan", "--learn", "--yes", "--", "bash", alone.to_str().unwrap()];
    stage.scene.ask(&words).expect(0).says("ray_init.address=local");
}
