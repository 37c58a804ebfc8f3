//! Whose steps a run goes on from: `supervise run` on roots into which others wrote, as the users that do it.
//!
//! Needs root, to play a user without privileges (1000) and another one (1001).
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;
use supervise_checkpoint::proof_record::{decode, encode};
use supervise_checkpoint::{FilePin, InspectLimits};
use supervise_host::io_worker::fact_of;
use supervise_tests::harness::{Scene, copy_tree, eventually};
use supervise_tests::torch_file::{self, Value as Pickled};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");
/// The user of the run, as [`Scene::without_privileges`] makes it.
const USER: u32 = 1000;
const ANOTHER: u32 = 1001;

/// Gives a folder with all that is in it to a user.
fn give(path: &Path, user: u32) {
    lchown(path, Some(user), Some(user)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

/// A run of a user without privileges that was stopped before step 9: steps 2, 4, 6, 8 are there, and anybody may write there.
fn stopped_in_a_shared_root(test: &str) -> Option<Scene> {
    let mut scene = Scene::new(SUPERVISE);
    scene.set("demo.hold_at", json!(9));
    scene.write_config();
    fs::create_dir(scene.root()).unwrap();
    fs::set_permissions(scene.root(), fs::Permissions::from_mode(0o777)).unwrap();
    if let Err(e) = scene.without_privileges() {
        e.tell(test);
        return None;
    }
    let run = scene.start(&[]);
    eventually("step 8 is saved", || (scene.tracked()? >= 8).then_some(()));
    run.signal(15);
    run.wait().expect(143);
    scene.go();
    Some(scene)
}

/// Dataloader state with an object of a class that nobody knows.
fn laced() -> Pickled {
    torch_file::dict([("_num_yielded", Pickled::Object("evil_project.payload", "Runner"))])
}

/// Replaces a step by a copy whose dataloader state holds an object of a class that nobody knows.
fn lace(scene: &Scene, step: u64, owner: u32) {
    let (there, copy) = (scene.step(step), scene.path("laced"));
    copy_tree(&there, &copy).unwrap();
    fs::write(copy.join("data.pt"), torch_file::encode(&laced())).unwrap();
    fs::remove_dir_all(&there).unwrap();
    fs::rename(&copy, &there).unwrap();
    give(&there, owner);
}

/// The story of the run holds these words.
#[track_caller]
fn explains(scene: &Scene, words: &[&str]) {
    let root = scene.root();
    let told = scene.ask(&["explain", "--verbose", root.to_str().unwrap()]);
    for word in words {
        told.expect(0).says(word);
    }
}

/// The proof record of a step.
fn record(scene: &Scene, step: u64) -> std::path::PathBuf {
    scene.run_dir().join(format!("verified/global_step_{step}.jsonl"))
}

#[test]
fn a_step_that_another_user_put_in_place_is_not_resumed_from() {
    let test = "a_step_that_another_user_put_in_place_is_not_resumed_from";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    lace(&scene, 8, ANOTHER);
    let verified = scene.ask(&["verify", scene.step(8).to_str().unwrap(), "--depth", "full"]);
    verified.expect(22);
    let run = scene.run(&[]);
    run.expect(0);
    explains(&scene, &["global_step_8 is unknown", "belongs to user 1001"]);
    assert_eq!(scene.resumed(2), Some(6));
    assert_eq!(scene.proven(), 12);
    // Nobody but its owner may write to it, so that it could only be renamed.
    let hidden = fs::read_dir(scene.root()).unwrap();
    let mut hidden = hidden.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(hidden.any(|name| name.starts_with(".aside.global_step_8.")));
}

#[test]
fn a_step_that_was_replaced_as_the_same_user_is_judged_as_anybodys() {
    let test = "a_step_that_was_replaced_as_the_same_user_is_judged_as_anybodys";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    lace(&scene, 8, USER);
    let verified = scene.ask(&["verify", scene.step(8).to_str().unwrap(), "--depth", "full"]);
    verified.expect(22);
    scene
        .run(&[])
        .expect(4)
        .says("evil_project.payload.Runner")
        .says("--from N");
    assert_eq!((scene.attempts(), scene.aside().len()), (1, 0));
    // The way out that is named works.
    scene.run(&["--from", "6", "--again"]).expect(0);
    assert_eq!(scene.resumed(2), Some(6));
}

#[test]
fn a_step_that_was_restored_from_a_copy_is_read_and_resumed_from() {
    let test = "a_step_that_was_restored_from_a_copy_is_read_and_resumed_from";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    let (there, copy) = (scene.step(8), scene.path("backup"));
    copy_tree(&there, &copy).unwrap();
    fs::remove_dir_all(&there).unwrap();
    copy_tree(&copy, &there).unwrap();
    give(&there, USER);
    scene.run(&[]).expect(0);
    explains(&scene, &["every byte was read"]);
    assert_eq!(scene.resumed(2), Some(8));
}

/// The trainer pickles a class of its user's, while the run is watched.
#[test]
fn what_the_run_wrote_itself_is_taken_by_run_and_by_verify() {
    let mut scene = Scene::new(SUPERVISE);
    scene.set("demo.hold_at", json!(9));
    let run = scene.start(&[]);
    eventually("step 8 is saved", || (scene.tracked()? >= 8).then_some(()));
    fs::write(scene.step(8).join("data.pt"), torch_file::encode(&laced())).unwrap();
    run.signal(15);
    run.wait().expect(143);
    let (step, root) = (scene.step(8), scene.root());
    let (step, root) = (step.to_str().unwrap(), root.to_str().unwrap());
    let config = scene.write_config();
    let plan = || scene.ask(&["plan", config.to_str().unwrap()]);
    plan().expect(0).says("global_step_8 is the newest whole step");
    for path in [step, root] {
        scene.ask(&["verify", path, "--depth", "full"]).expect(0);
    }
    // The same bytes once more, and nobody saw who wrote them.
    let copy = scene.path("copy");
    copy_tree(&scene.step(8), &copy).unwrap();
    fs::remove_dir_all(scene.step(8)).unwrap();
    fs::rename(&copy, scene.step(8)).unwrap();
    plan().expect(4).says("evil_project.payload.Runner");
    for path in [step, root] {
        scene.ask(&["verify", path, "--depth", "full"]).expect(22);
    }
}

#[test]
fn another_users_step_is_taken_if_a_person_names_it_or_trusts_the_user() {
    let test = "another_users_step_is_taken_if_a_person_names_it_or_trusts_the_user";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    give(&scene.step(8), ANOTHER);
    let config = scene.write_config();
    let plan = scene.ask(&["plan", config.to_str().unwrap()]);
    plan.expect(0)
        .says("global_step_6")
        .says("--from 8")
        .says("trust_owners: [1001]");
    let trusting = [
        "plan",
        config.to_str().unwrap(),
        "--set",
        "supervisor.proof.trust_owners=[1001]",
    ];
    scene
        .ask(&trusting)
        .expect(0)
        .says("global_step_8 is the newest whole step");
    let wrong = [
        "plan",
        config.to_str().unwrap(),
        "--set",
        "supervisor.proof.trust_owners=[somebody]",
    ];
    scene.ask(&wrong).expect(78).says("id -u");
    scene.run(&["--from", "8", "--again"]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
}

#[test]
fn another_users_step_that_cannot_be_moved_holds_up_nothing() {
    let test = "another_users_step_that_cannot_be_moved_holds_up_nothing";
    let mut scene = Scene::new(SUPERVISE);
    scene
        .set("supervisor.retries", json!(1))
        .fault("kill_rank", 9, true)
        .set("demo.hold_at", json!(4))
        .write_config();
    fs::create_dir(scene.root()).unwrap();
    // As /tmp: everybody may write, and move what is his own.
    fs::set_permissions(scene.root(), fs::Permissions::from_mode(0o1777)).unwrap();
    if let Err(e) = scene.without_privileges() {
        return e.tell(test);
    }
    // Of a root that belongs to the user everything could be moved.
    lchown(scene.root(), Some(0), Some(0)).unwrap();
    let run = scene.start(&[]);
    eventually("step 2 is saved", || (scene.tracked()? >= 2).then_some(()));
    for name in ["global_step_40", "global_step_41"] {
        copy_tree(&scene.step(2), &scene.root().join(name)).unwrap();
        give(&scene.root().join(name), ANOTHER);
    }
    // What nobody but its owner can look into.
    fs::set_permissions(scene.step(41), fs::Permissions::from_mode(0o700)).unwrap();
    scene.go();
    let ended = run.wait();
    // That no attempt comes further than step 8 is what ends it, and nothing else.
    ended.expect(6);
    assert_eq!((scene.resumed(2), scene.resumed(3)), (Some(8), Some(8)));
    assert!(scene.step(40).is_dir() && scene.step(41).is_dir());
    let moves = |text: String| text.contains("move_aside") && text.contains("global_step_40");
    let tried = |line: &&Value| line["kind"] == "intended" && moves(line.to_string());
    assert_eq!(scene.journal().iter().filter(tried).count(), 1, "it is tried once");
    assert_eq!(scene.aside(), [""; 0]);
}

/// A copy of the run's own step, and one whose counters are far ahead, as another user leaves them: what is whole stays whole.
#[test]
fn another_users_step_does_not_accuse_the_runs_own() {
    let test = "another_users_step_does_not_accuse_the_runs_own";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    for (from, to) in [(8, 7), (2, 1), (8, 3), (2, 5)] {
        copy_tree(&scene.step(from), &scene.step(to)).unwrap();
        give(&scene.step(to), ANOTHER);
    }
    let config = scene.write_config();
    let plan = scene.ask(&["plan", config.to_str().unwrap()]);
    plan.expect(0).says("global_step_8 is the newest whole step");
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
    // Nor once it has come to its end.
    copy_tree(&scene.step(12), &scene.step(11)).unwrap();
    give(&scene.step(11), ANOTHER);
    scene.run(&[]).expect(0);
    assert_eq!(scene.proven(), 12);
}

#[test]
fn what_another_user_writes_into_the_tracker_is_ignored() {
    let test = "what_another_user_writes_into_the_tracker_is_ignored";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    fs::remove_file(scene.tracker()).unwrap();
    fs::write(scene.tracker(), "2").unwrap();
    give(&scene.tracker(), ANOTHER);
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(8));
    assert_eq!(scene.tracked(), Some(12));
}

/// It was named once, and nothing was saved since.
#[test]
fn a_step_that_a_person_named_is_remembered() {
    let test = "a_step_that_a_person_named_is_remembered";
    let Some(mut scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    give(&scene.step(8), ANOTHER);
    scene.set("demo.hold_at", json!(9)).write_config();
    fs::remove_file(scene.path("go")).ok();
    let run = scene.start(&["--from", "8", "--again"]);
    eventually("it has resumed", || scene.resumed(2));
    run.signal(15);
    run.wait().expect(143);
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(3), Some(8));
}

/// A flipped byte in a shard, and a record that says it was always so.
#[test]
fn a_forged_proof_record_passes_nobody() {
    let test = "a_forged_proof_record_passes_nobody";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    let shard = scene.step(8).join("actor/model_world_size_2_rank_0.pt");
    let mut bytes = fs::read(&shard).unwrap();
    // In the numbers of a tensor.
    let at = bytes.len() / 2;
    bytes[at] ^= 0x40;
    fs::write(&shard, &bytes).unwrap();
    let step = scene.step(8);
    let verified = scene.ask(&["verify", step.to_str().unwrap(), "--depth", "full"]);
    verified.expect(21);
    forge(&record(&scene, 8), &shard, crc32fast::hash(&bytes));
    let run = scene.run(&[]);
    run.expect(0);
    explains(&scene, &["global_step_8 is damaged"]);
    assert_eq!(scene.resumed(2), Some(6));
}

#[test]
fn a_forged_record_does_not_condemn_a_step_either() {
    let test = "a_forged_record_does_not_condemn_a_step_either";
    let Some(scene) = stopped_in_a_shared_root(test) else {
        return;
    };
    // As another user could have put it there: not believed, and not held against the step.
    give(&record(&scene, 8), ANOTHER);
    let shard = scene.step(8).join("actor/model_world_size_2_rank_0.pt");
    let crc = crc32fast::hash(&fs::read(&shard).unwrap());
    forge(&record(&scene, 8), &shard, !crc);
    scene.run(&[]).expect(0).says("is not used");
    assert_eq!(scene.resumed(2), Some(8));
}

/// Makes a record fit a file as it is now, with this checksum for its bytes. The record's own checksum fits as well.
fn forge(record: &Path, file: &Path, crc: u32) {
    let mut forged = decode(&fs::read(record).unwrap(), &InspectLimits::default()).unwrap();
    let file = camino::Utf8Path::from_path(file).unwrap();
    let named = |path: &camino::Utf8PathBuf| file.ends_with(path);
    let path = forged.files.keys().find(|path| named(path)).unwrap().clone();
    let known = forged.files.get_mut(&path).unwrap();
    known.pin = FilePin::of(&fact_of(path, &fs::metadata(file).unwrap()));
    known.report.crc = Some(crc);
    let mut bytes = Vec::new();
    encode(&forged, &mut bytes).unwrap();
    fs::write(record, bytes).unwrap();
}
