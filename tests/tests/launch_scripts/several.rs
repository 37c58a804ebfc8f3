//! Scripts that call a trainer more than once.

use super::{CALL, Stage};
use std::fs;
use supervise_tests::harness::wait_for;

#[test]
fn a_second_training_is_held_back_and_said() {
    for body in [
        "set -e\nCALL out\nCALL other\necho all stages done",
        "for dir in out other; do CALL $dir; done",
        "CALL out && CALL other",
    ] {
        let stage = Stage::new();
        let ended = stage.run("bash", body);
        ended
            .expect(8)
            .says("finished at step 4")
            .says("held back: trl sft")
            .says("one `supervise run` per training");
        assert!(!fs::exists(stage.scene.path("other")).unwrap());
        assert_eq!(stage.calls().len(), 1);
        // It stays so.
        let script = stage.scene.path("run.sh");
        stage
            .scene
            .ask(&["run", "--", "bash", script.to_str().unwrap()])
            .expect(8);
        stage.scene.assert_alone();
    }
}

#[test]
fn a_second_call_is_the_same_training_only_if_all_of_it_is_the_same() {
    for body in [
        "CALL out; CALL out --do_eval; touch done",
        "mkdir -p b; CALL out; (cd b; CALL out); touch done",
        "echo a: 1 > x.yaml; CALL out --config x.yaml; echo a: 2 > x.yaml; CALL out --config x.yaml; touch done",
    ] {
        let stage = Stage::new();
        stage.run("bash", body).expect(8).says("held back: trl sft");
        assert_eq!(stage.calls().len(), 1, "{body}");
        assert!(!fs::exists(stage.scene.path("done")).unwrap(), "{body}");
    }
    let stage = Stage::new();
    stage.run("bash", "while true; do CALL out; done").expect(0);
}

/// What learning did to the script's own files makes it go on to another training.
#[test]
fn another_training_than_the_one_that_was_learnt_is_not_run_in_its_place() {
    let stage = Stage::new();
    let body = "for dir in out other; do mkdir $dir.lock || continue; CALL $dir; done";
    let ended = stage.run("bash", body);
    ended.expect(78).says(
        "calls another training than the one that was learned: `--output_dir other` instead of `--output_dir out`",
    );
    assert!(stage.calls().is_empty());
    // A time in its root is no other training.
    let stage = Stage::new();
    let ended = stage.run("bash", "CALL out/$(date +%Y%m%d_%H%M%S.%N)");
    ended.expect(0);
    assert_eq!(stage.calls().len(), 1);
}

#[test]
fn two_trainings_at_once_are_one_and_the_other_is_named() {
    for body in [
        "CALL out &\nfirst=$!\nwhile [ ! -e out/checkpoint-2 ]; do sleep 0.05; done\nCALL other; echo \"other: $?\"\nrm hold\nwait $first",
        // The script ends, and the training goes on.
        "set -e\nCALL out &\nwhile [ ! -e out/checkpoint-2 ]; do sleep 0.05; done\n( sleep 2; rm hold ) &\nCALL other",
    ] {
        let stage = Stage::new();
        stage.write("hold", "");
        let ended = stage.run("bash", body);
        ended
            .expect(8)
            .says("finished at step 4")
            .says("while the first was running");
        assert!(!fs::exists(stage.scene.path("other")).unwrap());
        let log = fs::read_to_string(stage.scene.run_dir().join("attempts/0001/worker-0.log")).unwrap();
        assert!(log.contains("supervise each by itself"), "{log}");
        assert!(!body.contains("other: ") || log.contains("other: 78"), "{log}");
        assert_eq!((stage.calls().len(), stage.scene.attempts()), (1, 1));
        stage.scene.assert_alone();
    }
}

#[test]
fn the_one_that_was_learnt_is_started_whichever_comes_first() {
    let stage = Stage::new();
    // While it is learnt, the first call ends it.
    let body = "if [ -e learnt ]; then CALL other & sleep 1; CALL out; wait; else touch learnt; CALL out; fi";
    let ended = stage.run("bash", body);
    ended.expect(8).says("held back").says("--output_dir other");
    assert_eq!(stage.calls().len(), 1);
    assert!(fs::exists(stage.scene.path("out/checkpoint-4")).unwrap());
}

#[test]
fn calls_of_one_training_for_several_nodes_all_start() {
    let stage = Stage::new();
    // `torchrun`, which runs the rank of one node: the second trains nothing of its own.
    stage.write(
        "bin/torchrun",
        "#!/bin/bash\nnode=${1#--node_rank=}; shift\necho $node >> nodes\n[ $node = 0 ] || exit 0\nshift\nexec python3 bin/trl \"$@\"\n",
    );
    stage.write("train.py", "");
    let call = CALL.replace("trl sft", "train.py");
    let body = format!("for n in 0 1; do torchrun --node_rank=$n {call} out & done\nwait");
    let ended = stage.run("bash", &body);
    ended.expect(0);
    let nodes = fs::read_to_string(stage.scene.path("nodes")).unwrap();
    assert_eq!(nodes.lines().count(), 2, "{nodes}");
}

#[test]
fn calls_of_one_training_for_several_ranks_all_start() {
    for variable in ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"] {
        let stage = Stage::new();
        stage.write(
            "bin/torchrun",
            &format!("#!/bin/bash\necho ${variable} >> ranks\n[ ${variable} = 0 ] || exit 0\nshift\nexec python3 bin/trl \"$@\"\n"),
        );
        stage.write("train.py", "");
        let call = CALL.replace("trl sft", "train.py");
        let body = format!("for n in 0 1; do {variable}=$n torchrun {call} out & done\nwait");
        stage.run("bash", &body).expect(0);
        let ranks = fs::read_to_string(stage.scene.path("ranks")).unwrap();
        assert_eq!(ranks.lines().count(), 2, "{variable}: {ranks}");
    }
}

#[test]
fn a_loop_over_configurations_that_goes_on_after_a_crash_is_relaunched() {
    for body in [
        "for dir in out other; do CALL $dir; sleep 1; done",
        "CALL out || CALL other",
        "until CALL out; do echo once more; done",
        "while true; do CALL out; sleep 1; done",
    ] {
        let stage = Stage::new().fault("kill");
        let ended = stage.run("bash", body);
        let loops_on = body.starts_with("for");
        ended
            .expect(if loops_on { 8 } else { 0 })
            .says("was killed by SIGKILL, from outside");
        assert!(!ended.text.contains("has to be changed"), "{}", ended.text);
        assert_eq!((stage.calls().len(), stage.scene.attempts()), (2, 2), "{body}");
        assert!(!fs::exists(stage.scene.path("other")).unwrap());
    }
}

#[test]
fn a_training_goes_on_when_its_script_is_killed() {
    let stage = Stage::new();
    stage.write("hold", "");
    let script = stage.script("echo $$ > shell\nCALL out | cat");
    let run = stage.scene.start_with(&["run", "--", "bash", &script]);
    wait_for("step 2 is saved", || {
        fs::exists(stage.scene.path("out/checkpoint-2")).unwrap()
    });
    let shell = fs::read_to_string(stage.scene.path("shell")).unwrap();
    let kill = std::process::Command::new("kill").args(["-9", shell.trim()]).status();
    assert!(kill.unwrap().success());
    fs::remove_file(stage.scene.path("hold")).unwrap();
    let ended = run.wait();
    ended.expect(8).says("was killed by SIGKILL after it");
    assert_eq!((stage.calls().len(), stage.scene.attempts()), (1, 1));
}
