//! A conversion that is killed, or refused by a full disk, at each of its system calls that changes the disk: run again, it ends as
//! one that nothing disturbed.
//!
//! The program runs under ptrace with all its threads and helpers. Before the n-th such call it is killed with SIGKILL, or the
//! call answers that the disk is full; then it runs undisturbed, and what is there is compared byte by byte.
//!
//! Each call in turn takes minutes: `EVERY_CALL=1 cargo test -p supervise-tests --test migrate`. Without it every tenth one is
//! taken, another tenth in each test.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use supervise_tests::disturb::{Fate, calls, disturbed};

const PROGRAM: &str = env!("CARGO_BIN_EXE_supervise");

/// A copy of a fixture in a directory of its own.
fn fresh(set: &str) -> (tempfile::TempDir, Utf8PathBuf) {
    let keep = tempfile::tempdir().unwrap();
    let root = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap())
        .unwrap()
        .join("ckpt");
    let from = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(set);
    copy(&from, &root);
    (keep, root)
}

fn copy(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap() {
        let (path, to) = {
            let e = entry.unwrap();
            (e.path().to_owned(), to.join(e.file_name()))
        };
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// Everything below the step, with its bytes and how many names it has; what the lease leaves is another matter.
fn tree(root: &Utf8Path) -> BTreeMap<String, (Vec<u8>, u64)> {
    let mut out = BTreeMap::new();
    let mut waiting = vec![root.join("global_step_1")];
    while let Some(dir) = waiting.pop() {
        for entry in dir.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_string();
            if meta.is_dir() {
                waiting.push(path);
                out.insert(name, (Vec::new(), 0));
            } else {
                out.insert(name, (fs::read(&path).unwrap(), meta.nlink()));
            }
        }
    }
    out
}

fn command(root: &Utf8Path, link: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args([
            "migrate",
            "--checkpoint",
            root.join("global_step_1").as_str(),
            "--link",
            link,
        ])
        .env_clear()
        .env("HOME", root.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn undisturbed(root: &Utf8Path, link: &str) {
    let status = command(root, link).status().unwrap();
    assert!(status.success(), "{status}");
}

fn verify(root: &Utf8Path) -> i32 {
    let mut command = Command::new(PROGRAM);
    command.args(["verify", root.join("global_step_1/actor").as_str()]);
    command.stdout(Stdio::null()).status().unwrap().code().unwrap()
}

/// Disturbs each call in turn, or every tenth from `first` on.
fn everywhere(set: &str, link: &str, fate: Fate, first: usize) {
    let (_keep, root) = fresh(set);
    undisturbed(&root, link);
    let expected = tree(&root);
    assert_eq!(verify(&root), 0);
    for n in calls(first) {
        let (_keep, root) = fresh(set);
        let (calls, code) = disturbed(command(&root, link), n, fate, |_| {});
        if calls < n {
            assert!(n > 30, "only {calls} calls were seen");
            assert_eq!(code, Some(0));
            return;
        }
        if fate == Fate::NoSpace {
            // Where something is only tidied up, or the lease is given back, it may have ended well all the same.
            assert!(matches!(code, Some(0 | 69)), "call {n}: {code:?}");
        }
        // Whole in one layout or the other, or not whole; damaged it never is.
        assert!([0, 20].contains(&verify(&root)), "call {n}");
        undisturbed(&root, link);
        assert!(
            tree(&root) == expected,
            "call {n} of {calls}, {link}, {fate:?}: another result"
        );
        assert_eq!(verify(&root), 0, "call {n}");
    }
}

#[test]
fn killed_at_each_change_of_the_disk_and_run_again_it_ends_as_if_undisturbed() {
    everywhere("verl_megatron_v1_hf", "hard", Fate::Killed, 1);
}

#[test]
fn killed_at_each_change_of_a_conversion_by_copies_too() {
    everywhere("verl_megatron_v1_tp2", "copy", Fate::Killed, 2);
}

#[test]
fn a_disk_that_is_full_at_each_change_costs_nothing_and_it_goes_on_when_there_is_space() {
    everywhere("verl_megatron_v1_hf", "copy", Fate::NoSpace, 3);
}
