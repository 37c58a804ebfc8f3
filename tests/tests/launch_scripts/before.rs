//! What a script does before its call: what it prints is no cause, and what it deletes is its fault.

use super::Stage;
use std::fs;

#[test]
fn what_is_printed_before_the_call_is_not_the_cause() {
    for prelude in [
        "no-such-nvidia-smi || true\nmodule load cuda\nconda activate x",
        "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"",
        "cat /nowhere/.bashrc",
    ] {
        let stage = Stage::new().fault("early");
        let ended = stage.run("bash", &format!("{prelude}\nCALL out"));
        ended
            .expect(0)
            .says("was killed by SIGKILL, from outside")
            .says("newest proven step: 4 of 4; 2 attempts");
    }
}

#[test]
fn a_script_that_deletes_the_step_to_resume_from_is_named() {
    for delete in [
        "rm -rf out/checkpoint-*",
        "find out -name '*.safetensors' -delete; find out -type f -delete",
    ] {
        let stage = Stage::new().fault("kill");
        let body = format!("[ -e failed-out ] && {{ {delete}; }}\nCALL out | cat");
        let ended = stage.run("bash", &body);
        ended
            .expect(78)
            .says("the launch script deletes what the run resumes from")
            .says("out/checkpoint-2");
        // The trainer was not started on nothing.
        assert_eq!(stage.calls().len(), 1);
        assert!(!fs::exists(stage.scene.path("out/checkpoint-4")).unwrap());
        stage.scene.assert_alone();
    }
}

#[test]
fn a_script_that_deletes_steps_while_it_is_learnt_is_named() {
    let stage = Stage::new();
    let body = "if [ -e clears ]; then rm -rf out/checkpoint-*; fi\nCALL out";
    stage.run("bash", body).expect(0);
    stage.write("clears", "");
    let script = stage.scene.path("run.sh");
    let script = script.to_str().unwrap();
    // We started it before, so that its root is known, and looked at: nobody is asked.
    for command in [&["plan", "--learn"][..], &["run"]] {
        fs::create_dir_all(stage.scene.path("out/checkpoint-2")).unwrap();
        let said = stage.scene.ask(&[command, &["--", "bash", script]].concat());
        said.expect(78)
            .says("deleted checkpoint-2")
            .says("before it called the trainer");
    }
    assert_eq!(stage.calls().len(), 1);
}

#[test]
fn a_plan_runs_no_unknown_script_unless_somebody_agrees() {
    let stage = Stage::new();
    let script = stage.script("touch ran\nCALL out");
    let words = ["plan", "--learn", "--", "bash", &script];
    stage
        .scene
        .ask(&words)
        .expect(64)
        .says("what it does before that call is done")
        .says(&format!("supervise plan --learn --yes -- bash {script}"));
    assert!(!fs::exists(stage.scene.path("ran")).unwrap());
    stage
        .scene
        .ask(&["plan", "--learn", "--yes", "--", "bash", &script])
        .expect(0);
    assert!(fs::exists(stage.scene.path("ran")).unwrap());
    assert!(!fs::exists(stage.scene.path("out")).unwrap());
}
