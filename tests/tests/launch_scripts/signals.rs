//! Signals reach the trainer once, and its end is the call's for the shell, too.

use super::Stage;
use std::fs;
use supervise_tests::harness::wait_for;

#[test]
fn a_signal_reaches_the_trainer_once_however_it_is_sent() {
    for (shell, body) in [
        // To the process. `sh` hands on no functions, so that `$!` is our program's own number.
        ("sh", "CALL out &\nWAIT\nkill $!\nsleep 0.5\ntouch go\nwait $!\nwait"),
        // To the group of the script, of which the shell itself is a member.
        (
            "sh",
            "trap : TERM\nCALL out &\nWAIT\nkill -TERM 0\nsleep 0.5\ntouch go\nwait; wait",
        ),
        // To a group of the trainer's own.
        (
            "bash",
            "set -m\nCALL out &\nWAIT\nkill -TERM -- -$!\nsleep 0.5\ntouch go\nwait",
        ),
        (
            "sh",
            "setsid CALL out &\nWAIT\nkill -TERM -$!\nsleep 0.5\ntouch go\nwait",
        ),
        (
            "sh",
            "setsid CALL out &\nWAIT\nkill -TERM $!\nsleep 0.5\ntouch go\nwait",
        ),
        ("bash", "timeout 4 CALL out &\nWAIT\nsleep 5\ntouch go\nwait"),
        ("sh", "timeout 4 CALL out &\nWAIT\nsleep 5\ntouch go\nwait"),
    ] {
        let stage = Stage::new().fault("term");
        let body = body.replace("WAIT", "while [ ! -e ready ]; do sleep 0.05; done");
        let ended = stage.run(shell, &body);
        let terms = fs::read_to_string(stage.scene.path("terms")).unwrap_or_default();
        assert_eq!(terms, "x", "{body}\n{}", ended.text);
    }
}

#[test]
fn a_stop_lets_the_trainer_end_by_itself() {
    let stage = Stage::new().fault("term");
    let script = stage.script("CALL out | cat\necho done");
    let run = stage.scene.start_with(&["run", "--", "bash", &script]);
    wait_for("it trains", || fs::exists(stage.scene.path("ready")).unwrap());
    run.signal(15);
    wait_for("it was told", || fs::exists(stage.scene.path("terms")).unwrap());
    fs::write(stage.scene.path("go"), "").unwrap();
    run.wait().expect(143);
    assert_eq!(fs::read_to_string(stage.scene.path("terms")).unwrap(), "x");
    assert!(fs::exists(stage.scene.path("out/checkpoint-4")).unwrap());
    stage.scene.assert_alone();
}

#[test]
fn the_shell_sees_the_trainers_own_end() {
    for (fault, seen) in [("kill", "137"), ("code 7", "7")] {
        let stage = Stage::new().fault(fault);
        stage.run("bash", "CALL out\necho $? >> ends").expect(0);
        let ends = fs::read_to_string(stage.scene.path("ends")).unwrap();
        assert_eq!(ends.lines().collect::<Vec<_>>(), [seen, "0"]);
    }
}
