//! How a run ends, and what the next `run` makes of it.

use super::scene;
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Scene, snapshot};

#[test]
fn a_finished_run_is_not_launched_again() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let losses = fs::read(scene.path("losses.jsonl")).unwrap();
    let steps = snapshot(&scene.step(12));
    scene.run(&[]).expect(0).says("finished");
    scene.run(&["--again"]).expect(0);
    assert_eq!(scene.attempts(), 1);
    assert_eq!(fs::read(scene.path("losses.jsonl")).unwrap(), losses);
    assert_eq!(snapshot(&scene.step(12)), steps);
    scene.assert_alone();
}

#[test]
fn exit_code_0_before_the_end_is_no_success() {
    let mut scene = scene();
    scene.fault("exit0_early", 1, true);
    scene.run(&[]).expect(3).says("exit code 0");
    assert_eq!((scene.attempts(), scene.digest()), (1, None));
    scene.assert_alone();
}

#[test]
fn exit_code_0_after_progress_is_tried_once_more() {
    let mut scene = scene();
    scene.fault("exit0_early", 5, true);
    scene.run(&[]).expect(3);
    assert_eq!((scene.attempts(), scene.resumed(2)), (2, Some(4)));
    scene.set("demo.faults", json!([]));
    let expected = scene.expected_digest();
    scene.run(&["--again"]).expect(0);
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn the_same_exception_twice_ends_the_run_until_a_person_says_so() {
    let mut scene = scene();
    scene.fault("exception", 5, true);
    scene.run(&[]).expect(3).says("injected failure at step 5");
    let attempts = scene.attempts();
    assert!((2..=3).contains(&attempts), "{attempts} attempts");
    let journals = scene.names("journal");
    let ended = scene.run(&[]);
    ended.expect(3).says("--again");
    assert_eq!((scene.attempts(), scene.names("journal")), (attempts, journals));
    scene.run(&["--again"]).expect(3);
    assert!(scene.attempts() > attempts);
    scene.set("demo.faults", json!([]));
    let expected = scene.expected_digest();
    scene.run(&["--again"]).expect(0);
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}

/// A unit of systemd or a batch script starts it with the same words each time: a person says so beside them.
#[test]
fn what_a_person_lets_go_on_goes_on_with_its_next_start() {
    let mut scene = scene();
    scene.fault("exception", 5, true);
    scene.run(&[]).expect(3);
    let attempts = scene.attempts();
    scene.set("demo.faults", json!([]));
    let expected = scene.expected_digest();
    scene.run(&[]).expect(3).says("supervise resume ");
    let said = scene.ask(&["resume", "--json"]);
    said.expect(0);
    let told: Value = serde_json::from_slice(said.text.as_bytes()).unwrap();
    assert_eq!(
        (&told["was"], &told["written"]),
        (&json!("deterministic_failure"), &json!(true))
    );
    assert_eq!(scene.attempts(), attempts);
    let ended = "it had ended: failed: ";
    scene.ask(&["status"]).expect(0).says("next start").says(ended);
    scene.ask(&["explain"]).expect(0).says("lets the run go on");
    let again = scene.ask(&["resume"]);
    again
        .expect(0)
        .says("nothing blocked")
        .says(ended)
        .says("would resume from global_step_4");
    scene.run(&[]).expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (attempts + 1, Some(expected)));
    scene.ask(&["resume"]).expect(64).says("is finished");
    scene.assert_alone();
}

#[test]
fn retries_are_used_up() {
    let mut scene = scene();
    scene.fault("kill_rank", 1, true).set("supervisor.retries", json!(2));
    scene.run(&[]).expect(6).says("retries: 2");
    assert_eq!(scene.attempts(), 3);
    scene.run(&[]).expect(6).says("--again");
    assert_eq!(scene.attempts(), 3);
    scene.assert_alone();
}

#[test]
fn progress_refills_the_retries() {
    let mut scene = scene();
    let kill = |step: u64| json!({"kind": "kill_rank", "step": step});
    scene
        .set("demo.faults", [3, 5, 7, 9, 11].map(kill).into_iter().collect())
        .set("supervisor.retries", json!(1));
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0);
    assert_eq!((scene.attempts(), scene.digest()), (6, Some(expected)));
}

#[test]
fn a_command_that_is_not_there_is_a_mistake_in_the_configuration() {
    let mut scene = scene();
    scene.set("supervisor.command", json!(["no_such_trainer", "{overrides}"]));
    scene.run(&[]).expect(78).says("no_such_trainer");
    assert_eq!(scene.attempts(), 0);
    let name = scene.path("empty").display().to_string();
    fs::write(&name, "").unwrap();
    scene.set("supervisor.command", json!([name, "{overrides}"]));
    scene.run(&[]).expect(78);
    assert_eq!(scene.attempts(), 0);
}

#[test]
fn where_nothing_is_provable_nothing_is_begun() {
    let scene = scene();
    let expected = scene.expected_digest();
    scene.train(&["trainer.total_training_steps=2"]);
    let shard = scene.step(2).join("actor/model_world_size_2_rank_1.pt");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let before = snapshot(&scene.step(2));
    scene.run(&[]).expect(4).says("is provable");
    let root = scene.root();
    scene
        .ask(&["explain", root.to_str().unwrap()])
        .expect(0)
        .says("global_step_2");
    assert_eq!((snapshot(&scene.step(2)), scene.attempts()), (before, 0));
    // Asked in the same way it answers the same, and the plan says so; asked in another way it does not.
    let config = scene.write_config();
    let config = config.to_str().unwrap();
    scene.ask(&["plan", config]).expect(4).says("it ended before");
    scene.ask(&["plan", config, "--fresh"]).expect(0);
    scene.run(&["--allow-fresh", "--again"]).expect(0);
    assert_eq!((scene.resumed(1), scene.aside().len()), (None, 1));
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn a_lost_tracker_does_not_begin_the_training_again() {
    let mut scene = scene();
    scene.fault("lose_tracker", 6, false);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(6), Some(expected)));
    assert_eq!(scene.aside(), [""; 0]);
}

#[test]
fn a_rank_that_hangs_is_found_and_the_run_goes_on() {
    let mut scene = scene();
    scene
        .fault("hang", 5, false)
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let expected = scene.expected_digest();
    scene.start(&[]).wait_long().expect(0).says("stuck");
    // It was looked at before it was ended.
    let stacks = fs::read_to_string(scene.run_dir().join("attempts/0001/evidence/stacks.txt")).unwrap();
    assert!(stacks.contains("worker 0") && stacks.contains("  thread "), "{stacks}");
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    scene.assert_alone();
}

/// The trainer starts from scratch although it was told to resume: seen, and ended before it saves over anything.
/// Attempt 2 overrides the supervisor's own override.
fn second_takes(scene: &mut Scene, setting: &str) {
    let script = format!(
        "#!/bin/sh\ncase $SUPERVISE_ATTEMPT in */2) set -- \"$@\" {setting} demo.step_ms=1500;; esac\nexec {} \"$@\"\n",
        scene.program("demo_trainer").display()
    );
    let wrapper = scene.path("wrapper.sh");
    fs::write(&wrapper, script).unwrap();
    let words = json!(["/bin/sh", wrapper, "--config", "{config}", "{overrides}"]);
    scene.set("supervisor.command", words).fault("kill_rank", 7, false);
}

#[test]
fn a_trainer_that_forgets_where_it_was_is_ended_before_its_first_save() {
    let mut scene = scene();
    second_takes(&mut scene, "trainer.resume_mode=disable");
    let expected = scene.expected_digest();
    scene.run(&[]).expect(3).says("starts from scratch");
    assert_eq!(
        (scene.attempts(), scene.resumed(2), scene.tracked()),
        (2, Some(6), Some(6))
    );
    assert_eq!(scene.aside(), [""; 0]);
    // Steps of the second attempt would have been written by its own processes: none was.
    let losses = fs::read_to_string(scene.path("losses.jsonl")).unwrap();
    let second = losses.lines().filter(|l| l.contains("/2\"")).count();
    assert!(second < 2, "{second} steps were trained from scratch");
    scene.run(&["--again"]).expect(0);
    assert_eq!((scene.resumed(3), scene.digest()), (Some(6), Some(expected)));
    scene.assert_alone();
}

#[test]
fn a_trainer_that_goes_on_from_another_step_is_ended_before_its_first_save() {
    let mut scene = scene();
    // It is ordered to go on from step 6.
    let other = format!("trainer.resume_from_path={}/global_step_2", scene.root().display());
    second_takes(&mut scene, &other);
    let expected = scene.expected_digest();
    scene.run(&[]).expect(3).says("it was to resume from 6");
    let losses = fs::read_to_string(scene.path("losses.jsonl")).unwrap();
    let second = losses.lines().filter(|l| l.contains("/2\"")).count();
    assert!(second < 2, "{second} steps were trained from another step");
    assert_eq!((scene.attempts(), scene.tracked()), (2, Some(6)));
    scene.run(&["--again"]).expect(0);
    assert_eq!((scene.resumed(3), scene.digest()), (Some(6), Some(expected)));
    scene.assert_alone();
}

/// Whatever stands in the place of a small file of ours, nobody waits for somebody to write into it.
#[test]
fn a_fifo_in_the_place_of_a_small_file_holds_nobody_up() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let root = scene.root();
    let holder = fs::read_dir(scene.run_dir().join("lease"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let places = [
        scene.run_dir().join("spec/1.json"),
        scene.run_dir().join("run.id"),
        scene.run_dir().join("journal/1.jsonl"),
        scene.tracker(),
        holder.path().join("holder.json"),
    ];
    for place in places {
        let before = fs::read(&place).unwrap();
        fs::remove_file(&place).unwrap();
        nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for words in [
            ["status", root.to_str().unwrap()],
            ["plan", scene.write_config().to_str().unwrap()],
        ] {
            let ended = scene.ask(&words);
            let said = ended.code.is_some_and(|code| code < 80);
            assert!(
                said,
                "{words:?} with {}: {:?}\n{}",
                place.display(),
                ended.code,
                ended.text
            );
        }
        fs::remove_file(&place).unwrap();
        fs::write(&place, before).unwrap();
    }
    // A journal that is none is named.
    let journal = scene.run_dir().join("journal/1.jsonl");
    fs::write(&journal, "").unwrap();
    scene.ask(&["status", root.to_str().unwrap()]).says("1.jsonl is empty");
}

#[test]
fn a_failure_that_only_the_user_knows_is_answered_as_the_user_says() {
    let scene = scene();
    let worker = scene.program("fake_worker");
    let rules = "supervisor.rules=[{pattern: 'no licence for \\w+', class: user.licence, action: stop, advice: 'Ask the licence server.'}]";
    let words = [
        "run",
        "--set",
        rules,
        "--",
        worker.to_str().unwrap(),
        "error",
        "7",
        "no licence for vsim",
    ];
    let said = scene.ask(&words);
    said.expect(3).says("user.licence").says("a restart cannot help");
    assert!(!said.text.contains("may help"), "{}", said.text);
    scene.ask(&["explain"]).says("Ask the licence server.");
}
