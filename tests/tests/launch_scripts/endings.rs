//! How the call ended counts, and not how the script did.

use super::Stage;

/// What the trainer prints is named, and it is relaunched.
fn names_the_cause(shell: &str, body: &str) {
    let stage = Stage::new().fault("nccl");
    let ended = stage.run(shell, body);
    ended
        .expect(0)
        .says("comm.nccl_remote")
        .says("newest proven step: 4 of 4; 2 attempts");
    assert_eq!(stage.calls().len(), 2, "{body}");
    stage.scene.assert_alone();
}

#[test]
fn a_pipe_hides_no_failure() {
    for (shell, body) in [
        ("bash", "CALL out 2>&1 | tee train.log"),
        ("sh", "CALL out 2>&1 | tee -a train.log"),
        ("bash", "set -eo pipefail\nCALL out 2>&1 | tee train.log"),
        ("bash", "exec > >(tee all.log) 2>&1\nCALL out\necho done"),
    ] {
        names_the_cause(shell, body);
    }
}

#[test]
fn what_a_script_does_after_the_call_hides_no_failure() {
    for (shell, body) in [
        ("bash", "CALL out\necho \"done: $(date)\""),
        ("bash", "sleep 1000 &\nserver=$!\nCALL out\nkill $server"),
        ("bash", "train() { CALL out; }\ntrain || sleep 1000"),
        ("sh", "( CALL out ) || true"),
        ("bash", "trap 'echo ended' EXIT\nCALL out\nexit 0"),
    ] {
        names_the_cause(shell, body);
    }
}

#[test]
fn output_in_a_file_is_read_from_there() {
    for (shell, body) in [
        ("bash", "CALL out > train.log 2>&1\necho \"Training finished\""),
        ("sh", "timeout 1h CALL out >> train.log 2>&1; echo done"),
        ("bash", "nohup CALL out > train.log 2> errors.log &\nwait $!\necho done"),
        ("bash", "exec > all.log 2>&1\nCALL out\necho done"),
        ("bash", "env A=1 CALL out &> train.log &\nwait"),
    ] {
        names_the_cause(shell, body);
    }
}

#[test]
fn a_call_that_takes_the_place_of_the_script_counts_as_ever() {
    names_the_cause("bash", "exec CALL out");
    names_the_cause("sh", "exec CALL out 2>&1");
}

#[test]
fn only_what_the_call_appends_is_read_of_its_file() {
    let stage = Stage::new().fault("kill");
    stage.write(
        "train.log",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote process exited or there was a network error\n",
    );
    let ended = stage.run("bash", "CALL out >> train.log 2>&1\necho done");
    ended
        .expect(0)
        .says("was killed by SIGKILL, from outside")
        .says("2 attempts");
    assert!(!ended.text.contains("nccl"), "{}", ended.text);
}

#[test]
fn ends_without_a_word_count_too() {
    for fault in ["kill", "code 1", "code 7"] {
        let stage = Stage::new().fault(fault);
        let ended = stage.run("bash", "CALL out > train.log 2>&1\necho \"Training finished\"");
        ended.expect(0).says("newest proven step: 4 of 4; 2 attempts");
    }
}

#[test]
fn a_script_that_fails_after_the_training_is_told_and_the_training_is_not_repeated() {
    let stage = Stage::new();
    let body = "set -e\nCALL out | cat\necho converting\nsh -c 'exit 3'";
    stage
        .run("bash", body)
        .expect(8)
        .says("finished at step 4")
        .says("exited with code 3 after it");
    // Nothing is trained again, and nothing is forgotten.
    let script = stage.scene.path("run.sh");
    let again = stage.scene.ask(&["run", "--", "bash", script.to_str().unwrap()]);
    again.expect(8).says("exited with code 3 after it");
    assert_eq!((stage.calls().len(), stage.scene.attempts()), (1, 1));
    stage.scene.assert_alone();
}

#[test]
fn a_script_without_a_call_counts_as_it_ends() {
    let stage = Stage::new();
    // It calls the trainer while it is learnt only.
    let ended = stage.run("bash", "[ -e mark ] && exit 5\ntouch mark\nCALL out");
    assert_ne!(ended.code, Some(0), "{}", ended.text);
    ended.says("exited with code 5");
}

#[test]
fn a_training_is_finished_though_its_script_moves_the_steps_away() {
    // One that moves them before any was proven leaves nothing by which its end can be told from a training that saved nothing.
    let proven =
        r#"for n in $(seq 600); do grep -qs '"mark"' out/.supervise/journal/*.jsonl && break; sleep 0.1; done"#;
    for body in ["mv out final", "rm -rf out/checkpoint-*"] {
        let stage = Stage::new();
        stage
            .run("bash", &format!("CALL out && {{ {proven}; {body}; }}"))
            .expect(0)
            .says("moved or deleted after the training");
        assert_eq!(stage.calls().len(), 1);
    }
}
