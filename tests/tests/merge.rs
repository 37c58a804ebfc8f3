//! A merge or a conversion that is killed, or refused by a full disk, at each of its system calls that changes the disk: nothing stands
//! under the target's name then, and run again it ends as one that nothing disturbed.
//!
//! As in `migrate.rs`: `EVERY_CALL=1 cargo test -p supervise-tests --test merge` takes each call in turn, else every tenth is taken.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use supervise_tests::disturb::{Fate, calls, disturbed};

const INDEX: &str = "model.safetensors.index.json";
const TABLE: &str = ".metadata";

/// The command that makes a directory.
type Make = fn(&Utf8Path) -> Command;

fn merge(target: &Utf8Path) -> Command {
    let source = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/verl_ppo_fsdp2_w2/global_step_2/actor");
    supervise(&["merge", source.as_str(), "--max-shard-size", "2KB"], target)
}

/// Of the model that stands beside the target.
fn convert(target: &Utf8Path) -> Command {
    let model = target.with_file_name("source");
    if !model.exists() {
        assert!(merge(&model).status().unwrap().success());
    }
    supervise(
        &["convert", "hf-to-megatron", model.as_str(), "--chunk-size", "2KB"],
        target,
    )
}

/// Of a model that the trainer wrote itself: its files are linked, or copied where they cannot be.
fn link(target: &Utf8Path) -> Command {
    let actor = target.with_file_name("global_step_1").join("actor");
    if !actor.exists() {
        let model = actor.join("huggingface");
        fs::create_dir_all(actor.join("dist_ckpt")).unwrap();
        assert!(merge(&target.with_file_name("source")).status().unwrap().success());
        fs::rename(target.with_file_name("source"), model).unwrap();
    }
    supervise(&["merge", actor.as_str()], target)
}

fn supervise(words: &[&str], target: &Utf8Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_supervise"));
    command
        .args(words)
        .args(["--target", target.as_str()])
        .env_clear()
        .env("HOME", target.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Every file of a model with its bytes.
fn tree(target: &Utf8Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in target.read_dir_utf8().unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        match entry.file_type().unwrap().is_dir() {
            true => out.extend(tree(entry.path()).into_iter().map(|(n, b)| (format!("{name}/{n}"), b))),
            false => drop(out.insert(name.to_owned(), fs::read(entry.path()).unwrap())),
        }
    }
    out
}

fn everywhere(command: Make, holds: &str, fate: Fate, first: usize) {
    let keep = tempfile::tempdir().unwrap();
    let dir = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
    let whole = dir.join("whole");
    assert!(command(&whole).status().unwrap().success());
    let expected = tree(&whole);
    assert!(expected.len() > 6 && expected.contains_key(holds));
    for n in calls(first) {
        let target = dir.join(format!("model-{n}"));
        let (calls, code) = disturbed(command(&target), n, fate, |_| {});
        if calls < n {
            assert!(n > 30, "only {calls} calls were seen");
            assert_eq!(code, Some(0));
            return;
        }
        if fate == Fate::NoSpace {
            assert!(matches!(code, Some(0 | 69)), "call {n}: {code:?}");
        }
        match target.exists() {
            // It had its name already: nothing is left to be done.
            true => assert!(
                tree(&target) == expected,
                "call {n} of {calls}: half a model has its name"
            ),
            false => {
                let again = command(&target).status().unwrap();
                assert!(again.success(), "call {n} of {calls}: {again}");
                assert!(
                    tree(&target) == expected,
                    "call {n} of {calls}, {fate:?}: another result"
                );
            }
        }
        let left = dir.join(format!(".model-{n}.unfinished"));
        assert!(!left.exists(), "call {n} of {calls}: {left} is left");
    }
}

#[test]
fn killed_at_each_change_of_the_disk_and_run_again_it_ends_as_if_undisturbed() {
    everywhere(merge, INDEX, Fate::Killed, 1);
    everywhere(convert, TABLE, Fate::Killed, 1);
    everywhere(link, INDEX, Fate::Killed, 1);
}

#[test]
fn a_disk_that_is_full_at_each_change_leaves_no_half_model() {
    everywhere(merge, INDEX, Fate::NoSpace, 2);
    everywhere(convert, TABLE, Fate::NoSpace, 2);
    everywhere(link, INDEX, Fate::NoSpace, 2);
}
