//! Runs of a newer build of AReaL: each save stands beside the one before, and `LATEST` names it.

use super::{Run, in_order};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::areal_set::{Shape, named, save, save_until};

fn shape() -> Shape {
    Shape {
        own: true,
        data_ranks: 1,
        ..Shape::default()
    }
}

fn newer() -> Run {
    let mut run = Run::new();
    run.yaml["miniature"]["own"] = json!(true);
    run
}

/// The same, after a run to its end at step 8; it is to go on to step 12.
fn finished() -> Run {
    let mut run = newer();
    run.run(&[]).expect(0);
    run.yaml["total_train_steps"] = json!(12);
    run
}

fn steps(run: &Run) -> Vec<u64> {
    run.trained().iter().map(|(step, _)| *step).collect()
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// The first shard of what `LATEST` names.
fn shard(run: &Run) -> PathBuf {
    named(&run.root()).unwrap().join("payloads/default/__0_0.distcp")
}

/// First shards of all copies, with the names of the copies.
fn copies(run: &Run) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(run.store().join("protected")).into_iter().flatten();
    let of = |e: fs::DirEntry| {
        let shard = e.path().join("default/recover_checkpoint/__0_0.distcp");
        (e.file_name().into_string().unwrap(), shard)
    };
    entries.map(|e| of(e.unwrap())).collect()
}

fn went_aside(run: &Run, below: &str, name: &str) -> bool {
    let entries = fs::read_dir(run.store().join(below)).into_iter().flatten();
    entries.flatten().any(|e| {
        let found = e.file_name().into_string().unwrap();
        found.starts_with(name) && !found.ends_with(".json")
    })
}

#[test]
fn a_save_that_is_killed_before_the_pointer_moves_costs_the_steps_since_the_one_before_and_after_it_nothing() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), 4, &shape()).unwrap();
    let whole = save_until(folder.path(), 6, &shape(), usize::MAX).unwrap();
    // The last three: the new pointer is written, put in place, and the generation before is deleted.
    for (operations, lost) in [
        (2, true),
        (8, true),
        (whole - 4, true),
        (whole - 3, false),
        (whole - 1, false),
    ] {
        let mut run = newer();
        run.yaml["miniature"]["fault"] = json!({ "step": 6, "operations": operations });
        let ended = run.run(&[]);
        ended.expect(0).says("step 8 is proven");
        in_order(&run.trained());
        let expected: &[u64] = match lost {
            true => &[1, 2, 3, 4, 5, 6, 5, 6, 7, 8],
            false => &[1, 2, 3, 4, 5, 6, 7, 8],
        };
        assert_eq!(steps(&run), expected, "after {operations} operations:\n{}", ended.text);
        assert_eq!(went_aside(&run, "aside", "generation_step"), lost, "{}", ended.text);
    }
}

#[test]
fn copies_are_kept_for_areal_deletes_all_generations_but_one() {
    let mut run = newer();
    run.yaml["miniature"]["step_ms"] = json!(800);
    // Nothing is looked for: the pointer is heard of when it moves.
    run.yaml["supervisor"]["scan_interval"] = json!("1h");
    run.run(&[]).expect(0);
    let generations = fs::read_dir(run.root().join("checkpoint_generations")).unwrap().count();
    assert_eq!(generations, 1);
    let kept = copies(&run).len();
    assert!((2..=3).contains(&kept), "{kept}");
    let root = run.root();
    let listed = run.scene.ask(&["checkpoints", root.to_str().unwrap(), "-v"]);
    listed.expect(0).says("LATEST names step 8").says("live").says("kept");
    run.scene.ask(&["verify", root.to_str().unwrap()]).expect(0);
    run.scene
        .ask(&["status", root.to_str().unwrap()])
        .expect(0)
        .says("finished");
}

#[test]
fn a_pointer_that_says_nothing_is_replaced_and_no_step_is_trained_twice_that_a_copy_has() {
    let run = finished();
    let latest = run.root().join("LATEST");
    fs::write(&latest, "{\"generation\": ").unwrap();
    let config = run.config();
    let plan = [&["plan", &config], &super::COMMAND[..]].concat();
    run.scene
        .ask(&plan)
        .expect(0)
        .says("pointer_damaged")
        .says("LATEST names generation_step00000007");
    let ended = run.run(&[]);
    ended.expect(0).says("pointer_damaged").says("step 12 is proven");
    in_order(&run.trained());
    assert_eq!(steps(&run), (1..=12).collect::<Vec<u64>>(), "{}", ended.text);
    assert!(went_aside(&run, "aside", "LATEST."), "what it said is kept");
}

#[test]
fn what_the_pointer_names_is_damaged_and_an_older_one_is_gone_on_from() {
    let run = finished();
    cut(&shard(&run));
    let number = |name: &str| name.strip_prefix("step_")?.split('.').next()?.parse::<u64>().ok();
    // Which saves were copied in time differs.
    let mut older = 0;
    for (name, shard) in copies(&run) {
        match number(&name).unwrap() {
            8 => cut(&shard),
            step => older = older.max(step),
        }
    }
    let ended = run.run(&[]);
    ended
        .expect(0)
        .says(&format!("step_{older}."))
        .says("step 12 is proven");
    in_order(&run.trained());
    let again: Vec<u64> = (older + 1..=12).collect();
    assert_eq!(steps(&run)[8..], again, "{}", ended.text);
    assert!(went_aside(&run, "aside", "generation_step00000007."), "{}", ended.text);
}

#[test]
fn where_all_of_them_are_damaged_nothing_is_started_and_nothing_is_moved() {
    let run = finished();
    cut(&shard(&run));
    copies(&run).iter().for_each(|(_, shard)| cut(shard));
    let trained = steps(&run);
    run.run(&[]).expect(4).says("no step is provable now");
    assert_eq!(steps(&run), trained);
    assert!(named(&run.root()).unwrap().is_dir());
}

#[test]
fn fresh_moves_generations_and_the_pointer_aside() {
    let mut run = finished();
    run.yaml["total_train_steps"] = json!(4);
    run.run(&["--fresh", "--yes"]).expect(0).says("start from scratch");
    assert_eq!(steps(&run)[8..], [1, 2, 3, 4]);
    assert!(went_aside(&run, "aside/foreign", "generation_step00000007."));
    assert!(went_aside(&run, "aside/foreign", "step_"));
    assert!(went_aside(&run, "aside", "LATEST."));
    assert!(named(&run.root()).unwrap().ends_with("generation_step00000003"));
}

#[test]
fn a_run_of_an_older_build_goes_on_with_a_newer_one() {
    let mut run = Run::new();
    run.run(&[]).expect(0);
    run.yaml["miniature"]["own"] = json!(true);
    run.yaml["total_train_steps"] = json!(12);
    run.run(&[]).expect(0).says("step 12 is proven");
    run.yaml["total_train_steps"] = json!(14);
    let root = run.root();
    let listed = run.scene.ask(&["checkpoints", root.to_str().unwrap(), "-v"]);
    listed.expect(0).says("written in place by an older build of AReaL");
    let ended = run.run(&[]);
    ended.expect(0).says("step 14 is proven");
    in_order(&run.trained());
    assert_eq!(steps(&run), (1..=14).collect::<Vec<u64>>(), "{}", ended.text);
}

/// The user's name is a part of the root: under another one nothing is found, and the same file would begin anew.
#[test]
fn another_user_does_not_begin_anew() {
    let mut run = finished();
    run.scene.env("USER", "somebody").env("LOGNAME", "somebody");
    run.run(&[])
        .expect(78)
        .says("was run before by `me`")
        .says("LOGNAME=me");
    assert_eq!(steps(&run).len(), 8);
}

#[test]
fn a_wish_is_refused_where_nothing_is_resumed() {
    let run = finished();
    for wish in [&["--fresh", "--no-recovery"][..], &["--from", "6", "--no-recovery"]] {
        run.run(wish).expect(64).says("--no-recovery");
    }
    assert_eq!(steps(&run).len(), 8);
}
