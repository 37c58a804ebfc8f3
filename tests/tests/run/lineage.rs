//! Whose steps are they: an older run's, a person's, a copy's, a stranger's.

use super::{running, saved, scene, stopped_at_eight};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Scene, copy_tree, snapshot};

/// A root in which another run, not under care, left the steps 2, 4, 6 and 8.
fn older_run(tracker: &str) -> (Scene, String) {
    let mut scene = scene();
    let expected = scene.expected_digest();
    scene.train(&["trainer.total_training_steps=8"]);
    fs::remove_file(scene.path("digest.txt")).unwrap();
    fs::write(scene.tracker(), tracker).unwrap();
    scene.fault("kill_rank", 9, false);
    (scene, expected)
}

fn steps_aside(scene: &Scene) -> Vec<u64> {
    let number = |path: &String| path.rsplit("global_step_").next()?.split('.').next()?.parse().ok();
    let mut steps: Vec<u64> = scene.aside().iter().filter_map(number).collect();
    steps.sort_unstable();
    steps
}

fn all_foreign(scene: &Scene) -> bool {
    scene.aside().iter().all(|a| a.starts_with("foreign/"))
}

#[test]
fn an_older_runs_higher_steps_are_a_question() {
    let (scene, expected) = older_run("4");
    let before: Vec<_> = [2, 4, 6, 8].map(|n| snapshot(&scene.step(n))).into();
    scene.run(&[]).expect(4).says("--from 4").says("--from 8");
    assert_eq!(before, [2, 4, 6, 8].map(|n| snapshot(&scene.step(n))));
    assert_eq!((scene.aside().len(), scene.attempts()), (0, 0));
    // The same answer, without looking again.
    scene.run(&[]).expect(4);

    scene.run(&["--from", "4", "--again"]).expect(0);
    assert_eq!(scene.resumed(1), Some(4));
    assert_eq!(steps_aside(&scene), [6, 8]);
    assert_eq!(scene.digest(), Some(expected));
    assert_eq!(scene.attempts(), 2);
    scene.assert_alone();
}

#[test]
fn an_older_run_that_is_agreed_upon_is_continued() {
    let (scene, expected) = older_run("8");
    scene.run(&[]).expect(0);
    assert_eq!((scene.resumed(1), scene.resumed(2)), (Some(8), Some(8)));
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn resume_mode_disable_begins_again_once() {
    let (mut scene, expected) = older_run("8");
    scene
        .set("trainer.resume_mode", json!("disable"))
        .set("demo.hold_at", json!(11));
    let run = scene.start(&[]);
    saved(&scene, 10);
    run.signal(15);
    run.wait().expect(143);
    assert_eq!((scene.resumed(1), scene.resumed(2)), (None, Some(8)));
    scene.go();
    // The configuration still says `disable`; its wish is fulfilled.
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(3), Some(10));
    assert_eq!(steps_aside(&scene), [2, 4, 6, 8]);
    assert!(all_foreign(&scene), "{:?}", scene.aside());
    assert_eq!(scene.digest(), Some(expected));
    scene.assert_alone();
}

#[test]
fn a_fresh_start_that_is_asked_for_begins_again_once() {
    let (scene, expected) = older_run("8");
    scene.run(&["--fresh", "--yes"]).expect(0);
    assert_eq!((scene.resumed(1), scene.resumed(2)), (None, Some(8)));
    assert_eq!(steps_aside(&scene), [2, 4, 6, 8]);
    assert!(all_foreign(&scene), "{:?}", scene.aside());
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn a_tracker_that_a_person_set_back_is_a_question() {
    let (scene, expected) = stopped_at_eight();
    fs::write(scene.tracker(), "4").unwrap();
    scene.run(&[]).expect(4).says("--from 4").says("--from 8");
    assert_eq!((scene.aside().len(), scene.attempts()), (0, 1));
    scene.run(&["--from", "4", "--again"]).expect(0);
    assert_eq!(scene.resumed(2), Some(4));
    assert_eq!(steps_aside(&scene), [6, 8]);
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn a_tracker_that_leads_elsewhere_is_neither_read_nor_written_through() {
    let (scene, expected) = stopped_at_eight();
    let elsewhere = scene.path("key");
    fs::write(&elsewhere, "BEGIN PRIVATE KEY").unwrap();
    fs::remove_file(scene.tracker()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, scene.tracker()).unwrap();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
    assert_eq!(scene.digest(), Some(expected));
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "BEGIN PRIVATE KEY");
    assert!(fs::symlink_metadata(scene.tracker()).unwrap().is_file());
}

#[test]
fn a_newest_step_behind_a_link_is_a_question() {
    let (scene, expected) = older_run("8");
    let elsewhere = scene.path("moved-away");
    fs::rename(scene.step(8), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, scene.step(8)).unwrap();
    scene.run(&[]).expect(4).says("symbolic link").says("--from");
    assert_eq!((scene.aside().len(), scene.attempts()), (0, 0));
    scene.run(&["--from", "6"]).expect(0);
    assert_eq!(scene.resumed(1), Some(6));
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn a_copied_root_begins_a_new_run_at_its_newest_step() {
    let (mut scene, expected) = stopped_at_eight();
    let original = scene.root();
    let before = snapshot(&original);
    let copy = scene.path("copy/checkpoints");
    copy_tree(&original, &copy).unwrap();
    // Before a run begins there, no command may reach the run of the original.
    let place = copy.to_str().unwrap();
    fs::remove_dir_all(copy.join("global_step_6")).unwrap();
    for command in [
        &["status", place][..],
        &["stop", place],
        &["rollback", place, "--to", "4"],
        &["forget", place],
    ] {
        scene
            .ask(command)
            .expect(64)
            .says(&format!("this is a copy of {}", original.display()));
    }
    let listed = scene.ask(&["checkpoints", place]).expect(0).text.clone();
    assert!(listed.contains(place) && !listed.contains("global_step_6"), "{listed}");
    scene.set_root(&copy);
    scene.go();
    let config = scene.write_config();
    let planned = scene.ask(&["plan", config.to_str().unwrap()]);
    planned
        .expect(0)
        .says(&format!("is a copy of {}", original.display()))
        .says("global_step_8");
    scene.run(&[]).expect(0).says("is a copy");
    assert_eq!((scene.resumed(1), scene.attempts()), (Some(8), 1));
    assert_eq!(scene.digest(), Some(expected));
    assert_eq!(scene.aside(), [""; 0]);
    assert_eq!(snapshot(&original), before);
}

#[test]
fn a_restored_root_begins_a_new_run_and_is_called_no_copy_of_itself() {
    let (scene, expected) = stopped_at_eight();
    let (root, backup) = (scene.root(), scene.path("backup"));
    copy_tree(&root, &backup).unwrap();
    // The place of the old one is not given to the new.
    fs::rename(&root, scene.path("broken")).unwrap();
    copy_tree(&backup, &root).unwrap();
    scene.go();
    scene.run(&[]).expect(0).says("is another directory than the one at");
    assert_eq!((scene.resumed(1), scene.digest()), (Some(8), Some(expected)));
}

#[test]
fn a_moved_root_goes_on() {
    let (mut scene, expected) = stopped_at_eight();
    let there = scene.path("there/checkpoints");
    fs::create_dir(scene.path("there")).unwrap();
    fs::rename(scene.root(), &there).unwrap();
    scene.set_root(&there);
    scene.go();
    scene.run(&[]).expect(0).says("was moved here");
    assert_eq!((scene.resumed(2), scene.attempts()), (Some(8), 2));
    assert_eq!(scene.digest(), Some(expected));
}

#[test]
fn a_step_that_a_stranger_brought_between_two_terms_is_not_taken() {
    let mut scene = scene();
    scene.fault("exit0_early", 9, true);
    scene.run(&[]).expect(3);
    let attempts = scene.attempts();
    copy_tree(&scene.step(8), &scene.step(10)).unwrap();
    fs::write(scene.tracker(), "10").unwrap();
    let before = snapshot(&scene.step(10));
    scene
        .run(&["--again"])
        .expect(5)
        .says("global_step_10")
        .says("with --from 10 if");
    assert_eq!(snapshot(&scene.step(10)), before);
    assert_eq!((scene.attempts(), scene.aside().len()), (attempts, 0));
    scene.assert_alone();
}

#[test]
fn a_run_goes_on_from_a_step_that_is_asked_for_while_nothing_lives() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(9));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 8);
    run.signal(15);
    run.wait().expect(143);
    scene.go();
    scene.run(&["--from", "5"]).expect(64).says("no such step");
    let config = scene.write_config();
    let plan = scene.ask(&["plan", config.to_str().unwrap(), "--from", "5"]);
    plan.expect(64).says("can be resumed: 8, 6, 4, 2");
    scene.run(&["--from", "6", "--again"]).expect(0);
    assert_eq!(scene.resumed(2), Some(6));
    assert_eq!(steps_aside(&scene), [8]);
    assert_eq!(scene.digest(), Some(expected));
}

/// The only step of an older run, one file of which is cut short.
fn one_torn_step(file: &str) -> Scene {
    let (scene, _) = older_run("8");
    for step in [2, 4, 6] {
        fs::remove_dir_all(scene.step(step)).unwrap();
    }
    let path = scene.step(8).join(file);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    scene
}

#[test]
fn what_is_left_of_a_torn_step_is_asked_about_and_then_resumed_from() {
    let scene = one_torn_step("actor/optim_world_size_2_rank_1.pt");
    scene
        .run(&[])
        .expect(4)
        .says("global_step_8 could be resumed without its optimizer state")
        .says("--set supervisor.degraded_resume=model_only");
    assert_eq!((scene.aside().len(), scene.attempts()), (0, 0));
    // Leave is the answer to the question: nothing else has to be said.
    let run = scene.run(&["--set", "supervisor.degraded_resume=model_only"]);
    run.expect(0).says("NOT restored: optimizer state");
    assert_eq!(scene.resumed(1), Some(8));
    let launched = scene.launch(1).to_string();
    assert!(launched.contains("load_contents=['model','extra']"), "{launched}");
    // It died before its first save: what is left is taken again, and its own steps are whole afterwards.
    assert_eq!(scene.resumed(2), Some(8));
    assert_eq!(scene.proven(), 12);
    scene.assert_alone();
}

#[test]
fn a_torn_state_of_the_dataloader_goes_aside_and_only_the_order_is_lost() {
    let scene = one_torn_step("data.pt");
    scene.run(&[]).expect(0).says("NOT restored: data order");
    assert_eq!(scene.resumed(1), Some(8));
    assert!(!scene.step(8).join("data.pt").exists());
    let aside = scene
        .root()
        .join(".supervise/aside/global_step_8_data.pt.before-attempt-1");
    assert!(aside.is_file());
    scene.assert_alone();
}

#[test]
fn another_release_than_the_term_before_is_told() {
    let mut scene = scene();
    scene.set("supervisor.trainer_version", json!("0.9.0"));
    let first = scene.run(&[]);
    first.expect(0);
    assert!(!first.text.contains("the trainer's version"), "{}", first.text);
    scene
        .set("supervisor.trainer_version", json!("0.9.1"))
        .set("trainer.total_training_steps", json!(16));
    let second = scene.run(&[]);
    second
        .expect(0)
        .says("the trainer's version is 0.9.1 now, and was 0.9.0");
    assert_eq!(scene.resumed(2), Some(12));
    // The same again is no news.
    let third = scene.set("trainer.total_training_steps", json!(18)).run(&[]);
    assert!(
        !third.expect(0).text.contains("the trainer's version"),
        "{}",
        third.text
    );
}

/// An empty root is a fresh start, and so is a file system that is not mounted: that this run was here before is said.
#[test]
fn a_run_whose_directory_is_gone_is_warned_of() {
    let warning = "this run was started here before";
    let scene = scene();
    let first = scene.run(&[]);
    first.expect(0);
    assert!(!first.text.contains(warning), "{}", first.text);
    fs::remove_dir_all(scene.root()).unwrap();
    let config = scene.write_config();
    scene.ask(&["plan", config.to_str().unwrap()]).expect(0).says(warning);
    scene.run(&[]).expect(0).says(warning).says("is gone");
}
