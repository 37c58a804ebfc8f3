//! Commands of which no checkpoint is known: what counts as progress, what is refused before a launch, what a person is told.

use super::scene;
use std::fs;
use supervise_tests::harness::Scene;

/// Runs a shell script as a plain run with two retries, and gives the number of attempts.
fn run(scene: &Scene, script: &str, code: i32) -> usize {
    let run_dir = format!("run_dir={}", scene.path("run").display());
    let settings = ["retries=2", "backoff.initial=50ms", "backoff.max=50ms", &run_dir];
    let run = scene.start_plain(&settings, &["sh", "-c", script]);
    run.wait().expect(code);
    fs::read_dir(scene.path("run/attempts")).unwrap().count()
}

/// Two steps for each start, from where the last one ended; so many in all.
fn resuming(scene: &Scene, last: u32, end: &str) -> String {
    let count = scene.path("count");
    let count = count.display();
    format!(
        "n=$(cat {count} 2>/dev/null || echo 0); for i in 1 2; do n=$((n + 1)); echo \"step:$n - actor/pg_loss:0.1\"; \
         echo $n >{count}; if [ $n -ge {last} ]; then exit 0; fi; done; {end}"
    )
}

const CUT: &str = "echo 'torch.distributed.DistBackendError: NCCL error in: x.cpp:2251, remote process exited or there was a network error' >&2; exit 1";

#[test]
fn a_program_that_resumes_by_itself_comes_to_its_end() {
    for end in [CUT, "kill -9 $$", "exit 1"] {
        let scene = scene();
        let script = resuming(&scene, 20, end);
        assert_eq!(run(&scene, &script, 0), 10, "{end}");
        scene
            .ask(&["explain", "--verbose"])
            .says("no retry is charged: step 18 is beyond those of all attempts before (step 16)");
    }
}

#[test]
fn a_program_that_begins_anew_has_its_retries_and_no_more() {
    for (end, code) in [("kill -9 $$", 6), (CUT, 3)] {
        let scene = scene();
        let script = format!("for n in 1 2 3; do echo \"step:$n - actor/pg_loss:0.1\"; done; {end}");
        assert_eq!(run(&scene, &script, code), 3, "{end}");
    }
    // Some get further by chance: that ends, too.
    let scene = scene();
    let count = scene.path("count");
    let script = format!(
        "echo x >>{0}; n=$(wc -l <{0}); [ $n = 2 ] && more=7; for n in 1 2 3 $more; do echo \"step:$n - loss:0.1\"; done; kill -9 $$",
        count.display()
    );
    assert_eq!(run(&scene, &script, 6), 5);
}

#[test]
fn a_script_that_is_not_there_is_refused_before_the_first_launch() {
    let scene = scene();
    let set = format!("supervisor.run_dir={}", scene.path("run").display());
    let bin = scene.path("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["torchrun", "accelerate"] {
        let file = bin.join(name);
        fs::write(&file, "#!/bin/sh\nexit 1\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&file, mode).unwrap();
    }
    let launchers = ["torchrun", "accelerate"].map(|name| bin.join(name).display().to_string());
    let [torchrun, accelerate] = launchers.each_ref().map(String::as_str);
    let cases: [&[&str]; 9] = [
        &["python3", "trian.py", "--lr", "1"],
        &["python3", "-u", "trian.py"],
        &["bash", "trian.py"],
        &["sh", "trian.py"],
        &["nohup", "./trian.py"],
        &["env", "A=b", "timeout", "10", "python3", "trian.py"],
        &[torchrun, "--nproc_per_node", "2", "trian.py"],
        &[accelerate, "launch", "--num_processes", "2", "trian.py"],
        &["env", "-i", "nice", "-n", "1", "bash", "-e", "trian.py"],
    ];
    for trainer in ["supervisor.trainer=plain", "supervisor.trainer=auto"] {
        for words in cases {
            let said = scene.ask(&[&["run", "--set", trainer, "--set", &set, "--"], words].concat());
            said.expect(78).says("there is no file").says("trian.py");
            assert!(!scene.path("run/attempts").exists(), "{words:?}");
        }
    }
}

#[test]
fn what_cannot_be_known_is_launched() {
    let scene = scene();
    fs::write(scene.path("there.py"), "print('hello')\n").unwrap();
    let there = scene.path("there.py").display().to_string();
    let cases: [(&[&str], i32); 5] = [
        (&["python3", "-c", "pass", "trian.py"], 0),
        (&["python3", "-m", "this", "trian.py"], 0),
        (&["sh", "-c", "exit 0", "trian.py"], 0),
        (&["python3", &there], 0),
        (&["env", "A=b", "python3", "-uB", &there], 0),
    ];
    for (at, (words, code)) in cases.into_iter().enumerate() {
        let set = format!("supervisor.run_dir={}", scene.path(&format!("run-{at}")).display());
        let run = [
            "run",
            "--set",
            "supervisor.trainer=plain",
            "--set",
            "supervisor.retries=0",
            "--set",
        ];
        scene.ask(&[&run[..], &[&set, "--"], words].concat()).expect(code);
    }
}

#[test]
fn what_is_not_protected_is_said_with_the_command_that_would_protect_it() {
    let scene = scene();
    let (train, yaml) = (scene.path("train_it.py"), scene.path("its.yaml"));
    fs::write(&train, "print('step 1')\n").unwrap();
    fs::write(
        &yaml,
        "output_dir: its_out\nsave_steps: 5\nlogging_steps: 1\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\nmax_steps: 10\n",
    )
    .unwrap();
    let command = ["python3", train.to_str().unwrap(), "--config", yaml.to_str().unwrap()];
    let told = scene.ask(&[&["plan", "--set", "supervisor.trainer=plain", "--"][..], &command].concat());
    let told = told.expect(0).says("NOT protected");
    let line = told.text.lines().find(|l| l.contains("NOT protected")).unwrap();
    let (_, proposed) = line.split_once("to protect it: supervise ").unwrap();
    let proposed = proposed.trim_end().trim_end_matches(" [plain_command]");
    let words: Vec<&str> = proposed.split(' ').collect();
    // As written it prepares a run of Hugging Face's Trainer, with its checkpoints.
    let plan: Vec<&str> = words.iter().map(|w| if *w == "run" { "plan" } else { w }).collect();
    scene.ask(&plan).expect(0).says("(hf)").says("its_out");

    // A plan says what `run` refuses.
    let set = ["plan", "--set", "supervisor.trainer=plain", "--"];
    let said = scene.ask(&[&set[..], &["python3", "trian.py"]].concat());
    said.expect(78)
        .says("`run` would be refused here")
        .says("there is no file");

    // Of this one nothing is known.
    fs::write(&yaml, "lr: 1\n").unwrap();
    let run_dir = format!("supervisor.run_dir={}", scene.path("run").display());
    let set = ["run", "--set", "supervisor.trainer=plain", "--set", &run_dir, "--"];
    let said = scene.ask(&[&set[..], &command].concat());
    said.expect(0)
        .says("NOT protected")
        .says("no command is known that would protect it");
}

/// Two runs of one command are told apart by their run directories.
#[test]
fn each_run_directory_of_a_command_is_a_run() {
    let scene = scene();
    let dir = |name: &str| format!("supervisor.run_dir={}", scene.path(name).display());
    let run = |set: &str| scene.ask(&["run", "--set", "supervisor.trainer=plain", "--set", set, "--", "true"]);
    for name in ["one", "two", "one"] {
        run(&dir(name)).expect(0);
    }
    let said = scene.ask(&["status", "--json"]);
    let runs: serde_json::Value = serde_json::from_str(&said.expect(0).text).unwrap();
    let mut terms: Vec<u64> = runs
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["term"].as_u64())
        .collect();
    terms.sort_unstable();
    assert_eq!(terms, [1, 2], "{runs}");
}
