//! A conversion that is killed, or refused by a full disk, at each of its system calls that changes the disk: run again, it ends as
//! one that nothing disturbed.
//!
//! The program runs under ptrace with all its threads and helpers. Before the n-th such call it is killed with SIGKILL, or the
//! call answers that the disk is full; then it runs undisturbed, and what is there is compared byte by byte.
//!
//! Each call in turn takes minutes: `EVERY_CALL=1 cargo test -p supervise-tests --test migrate`. Without it every fifth one is
//! taken, another fifth in each test.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(unsafe_code, reason = "ptrace has no safe form")]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_supervise");

/// What happens to the n-th call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Killed,
    NoSpace,
}

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

/// Whether a call changes the disk below the root, as far as its number and its flags tell.
fn changes(regs: &libc::user_regs_struct) -> bool {
    let writes = |flags: u64| flags & (libc::O_CREAT | libc::O_TRUNC) as u64 != 0;
    match regs.orig_rax as i64 {
        libc::SYS_openat => writes(regs.rdx),
        libc::SYS_open => writes(regs.rsi),
        libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_link
        | libc::SYS_linkat
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_rmdir
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_ftruncate
        | libc::SYS_copy_file_range
        | libc::SYS_sendfile
        | libc::SYS_utimensat => true,
        // Standard streams are no files of ours.
        libc::SYS_write | libc::SYS_pwrite64 => is_file(regs.rdi),
        _ => false,
    }
}

thread_local! {
    static ASKING: std::cell::Cell<i32> = const { std::cell::Cell::new(0) };
}

fn is_file(fd: u64) -> bool {
    let link = fs::read_link(format!("/proc/{}/fd/{fd}", ASKING.get()));
    link.is_ok_and(|to| to.starts_with(std::env::temp_dir().canonicalize().unwrap()))
}

fn ptrace(request: libc::c_uint, pid: i32, address: usize, data: usize) -> bool {
    // SAFETY: the requests used here touch no memory of ours but the registers, which outlive the call.
    unsafe { libc::ptrace(request, pid, address, data) == 0 }
}

#[expect(
    clippy::zombie_processes,
    reason = "waitpid reaps it: its stops are what is waited for"
)]
/// Runs the program and disturbs its n-th call; how many there were, and the exit code where it ended by itself.
fn disturbed(root: &Utf8Path, link: &str, n: usize, fate: Fate) -> (usize, Option<i32>) {
    let mut command = command(root, link);
    // SAFETY: nothing but system calls between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.process_group(0).spawn().unwrap();
    let main = child.id() as i32;
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK;
    let (mut seen, mut entering, mut failing, mut first) = (0, BTreeMap::<i32, bool>::new(), None, true);
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call. Only processes of this group are waited for.
        let pid = unsafe { libc::waitpid(-main, &raw mut status, libc::__WALL) };
        if pid < 0 {
            return (seen, None);
        }
        let status = std::process::ExitStatus::from_raw(status);
        if pid == main && (status.code().is_some() || status.signal().is_some()) && status.stopped_signal().is_none() {
            return (seen, status.code());
        }
        let Some(signal) = status.stopped_signal() else {
            continue;
        };
        if first {
            first = false;
            assert!(ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize));
            ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
            continue;
        }
        if signal != libc::SIGTRAP | 0x80 {
            let pass = if matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
                0
            } else {
                signal
            };
            ptrace(libc::PTRACE_SYSCALL, pid, 0, pass as usize);
            continue;
        }
        let enters = entering.entry(pid).or_insert(true);
        // SAFETY: all bit patterns are registers.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let known = ptrace(libc::PTRACE_GETREGS, pid, 0, (&raw mut regs).addr());
        let entered = std::mem::replace(enters, !*enters);
        ASKING.set(pid);
        if known && entered && changes(&regs) {
            seen += 1;
            if seen == n && fate == Fate::Killed {
                // SAFETY: the group is the program's own, and was made for it.
                unsafe { libc::kill(-main, libc::SIGKILL) };
            } else if seen == n {
                // No such call: it changes nothing.
                regs.orig_rax = u64::MAX;
                failing = Some(pid);
                ptrace(libc::PTRACE_SETREGS, pid, 0, (&raw const regs).addr());
            }
        } else if known && !entered && failing == Some(pid) {
            failing = None;
            regs.rax = (-i64::from(libc::ENOSPC)) as u64;
            ptrace(libc::PTRACE_SETREGS, pid, 0, (&raw const regs).addr());
        }
        ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
    }
}

fn verify(root: &Utf8Path) -> i32 {
    let mut command = Command::new(PROGRAM);
    command.args(["verify", root.join("global_step_1/actor").as_str()]);
    command.stdout(Stdio::null()).status().unwrap().code().unwrap()
}

/// Disturbs each call in turn, or every fifth from `first` on.
fn everywhere(set: &str, link: &str, fate: Fate, first: usize) {
    let all = std::env::var_os("EVERY_CALL").is_some();
    let (first, stride) = if all { (1, 1) } else { (first, 5) };
    let (_keep, root) = fresh(set);
    undisturbed(&root, link);
    let expected = tree(&root);
    assert_eq!(verify(&root), 0);
    for n in (first..).step_by(stride) {
        let (_keep, root) = fresh(set);
        let (calls, code) = disturbed(&root, link, n, fate);
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
