//! A genuine checkpoint of Megatron's, layout v2, two tensor parallel ranks: each of its files, and each way to lose it.

use crate::bench::{Bench, fixtures};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use supervise_tests::harness::snapshot;

const SET: &str = "verl_megatron_v2_tp2";

/// Every file of the second step, relative to it.
fn files(bench: &Bench) -> Vec<PathBuf> {
    let step = bench.step(2, "");
    let all = snapshot(&step).into_iter().map(|(path, ..)| path);
    let files: Vec<PathBuf> = all
        .filter(|p| p.is_file())
        .map(|p| p.strip_prefix(&step).unwrap().to_owned())
        .collect();
    assert!(files.len() > 15, "{files:?}");
    files
}

/// Does something to a file and to nothing else, its time of modification included; and undoes it.
fn while_changed(path: &Path, change: impl FnOnce(&Path), look: impl FnOnce()) {
    let (bytes, at) = (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap());
    change(path);
    put_back(path, at);
    look();
    fs::write(path, bytes).unwrap();
    put_back(path, at);
}

fn put_back(path: &Path, at: SystemTime) {
    if let Ok(file) = File::options().write(true).open(path) {
        file.set_modified(at).unwrap();
    }
}

/// [proof.deleted] Any file of a Megatron step can be missing | Each one's loss is found, and it is named
#[test]
fn each_file_deleted_is_named() {
    let bench = Bench::megatron_shards().with(SET);
    for file in files(&bench) {
        let name = file.file_name().unwrap().to_str().unwrap();
        while_changed(
            &bench.step(2, file.to_str().unwrap()),
            |path| fs::remove_file(path).unwrap(),
            || {
                let said = bench.verify("global_step_2");
                assert!([20, 21].contains(&said.code), "{file:?}: {said:#?}");
                assert!(said.out.contains(name), "{file:?} is not named: {said:#?}");
            },
        );
    }
    bench.verify("global_step_2").tells(0, &[]);
}

/// [proof.truncated] Any file of a Megatron step can be cut short, with its times as they were | Each one is found, and it is named
#[test]
fn each_file_truncated_is_named() {
    let bench = Bench::megatron_shards().with(SET);
    for file in files(&bench) {
        let path = bench.step(2, file.to_str().unwrap());
        let length = fs::metadata(&path).unwrap().len();
        let name = file.file_name().unwrap().to_str().unwrap();
        for left in [0, length / 2, length - 1] {
            let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(left).unwrap();
            while_changed(&path, cut, || {
                let said = bench.verify("global_step_2");
                // The last character of a JSON file may be white space.
                assert!([20, 21].contains(&said.code), "{file:?} cut to {left}: {said:#?}");
                assert!(said.out.contains(name), "{file:?} is not named: {said:#?}");
            });
        }
    }
    bench.verify("global_step_2").tells(0, &[]);
}

/// [proof.swapped] Any file of a Megatron step can be another step's, as valid as its own, with its times as they were | The record of the first proof tells, names it, and the run is not resumed from that step
#[test]
fn each_file_of_another_step_is_named() {
    let mut bench = Bench::megatron_shards().with(SET);
    // A run that proves both steps, writes that down, and ends.
    bench.script("exit 1\n").set("supervisor.retries", json!(0));
    std::thread::sleep(std::time::Duration::from_millis(30));
    bench.run(&[]).tells(6, &[]);
    let scrub = || bench.ask(&["verify", bench.step(2, "").to_str().unwrap(), "--scrub"]);
    scrub().tells(0, &["compared with the record"]);
    let mut swapped = 0;
    for file in files(&bench) {
        let relative = file.to_str().unwrap();
        let other = fs::read(bench.step(1, relative)).unwrap();
        let path = bench.step(2, relative);
        if fs::read(&path).unwrap() == other {
            continue;
        }
        swapped += 1;
        while_changed(
            &path,
            |path| fs::write(path, other).unwrap(),
            || {
                let said = scrub();
                assert_eq!(said.code, 21, "{file:?}: {said:#?}");
                assert!(said.out.contains(relative), "{file:?} is not named: {said:#?}");
            },
        );
    }
    assert!(swapped > 8, "{swapped}");
    scrub().tells(0, &[]);
}

/// [proof.copied] A checkpoint that was copied or restored has other times than it was written with | Times alone condemn nothing: a plain copy of every whole step stays whole
#[test]
fn a_copy_of_every_whole_step_is_whole() {
    let mut sets = 0;
    for name in supervise_tests::harness::names(&fixtures()) {
        if !name.starts_with("verl_") || name == "verl_transfer_queue" {
            continue;
        }
        sets += 1;
        let bench = Bench::ppo().with(&name);
        let copied = snapshot(&bench.root());
        let before = snapshot(&fixtures().join(&name));
        assert!(
            copied.iter().map(|f| f.2).min() > before.iter().map(|f| f.2).min(),
            "{name}"
        );
        bench.verify("").tells(0, &[]);
    }
    assert!(sets > 6, "{sets}");
}
