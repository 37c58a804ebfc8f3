//! A program under ptrace, with all its threads and helpers: before the n-th call that changes the disk it is killed with
//! SIGKILL, or that call answers that the disk is full.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(unsafe_code, reason = "ptrace has no safe form")]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

/// Fate of the n-th call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The program is killed before it.
    Killed,
    /// The disk is full.
    NoSpace,
    /// The program is killed before it, on a file system that cannot exchange two names.
    KilledWithoutExchange,
}

/// The calls to be disturbed: each in turn with `EVERY_CALL=1`, else every tenth from `first` on.
pub fn calls(first: usize) -> impl Iterator<Item = usize> {
    let all = std::env::var_os("EVERY_CALL").is_some();
    let (first, stride) = if all { (1, 1) } else { (first, 10) };
    (first..).step_by(stride)
}

/// Returns true if a call changes the disk below the root, as far as its number and its flags tell.
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
        | libc::SYS_fallocate
        | libc::SYS_copy_file_range
        | libc::SYS_sendfile
        | libc::SYS_utimensat => true,
        // Standard streams are no files of ours.
        libc::SYS_write | libc::SYS_pwrite64 => is_file(regs.rdi),
        _ => false,
    }
}

/// Returns true if a call exchanges two names.
fn exchanges(regs: &libc::user_regs_struct) -> bool {
    regs.orig_rax as i64 == libc::SYS_renameat2 && regs.r8 & u64::from(libc::RENAME_EXCHANGE) != 0
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

/// Runs a program and disturbs its n-th call; how many there were, and the exit code where it ended by itself. `started`
/// gets the child, to talk to it from another thread: the one that calls this is its tracer.
///
/// # Panics
/// It cannot be started or traced.
pub fn disturbed(mut command: Command, n: usize, fate: Fate, started: impl FnOnce(&mut Child)) -> (usize, Option<i32>) {
    // SAFETY: nothing but system calls between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = command.process_group(0).spawn().unwrap();
    let main = child.id() as i32;
    started(&mut child);
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
            let answer = match fate {
                Fate::NoSpace if seen == n => Some(libc::ENOSPC),
                Fate::KilledWithoutExchange if exchanges(&regs) => Some(libc::EINVAL),
                _ => None,
            };
            if seen == n && fate != Fate::NoSpace {
                // SAFETY: the group is the program's own, and was made for it.
                unsafe { libc::kill(-main, libc::SIGKILL) };
            } else if let Some(answer) = answer {
                // No such call: it changes nothing.
                regs.orig_rax = u64::MAX;
                failing = Some((pid, answer));
                ptrace(libc::PTRACE_SETREGS, pid, 0, (&raw const regs).addr());
            }
        } else if known
            && !entered
            && let Some((_, answer)) = failing.filter(|(who, _)| *who == pid)
        {
            failing = None;
            regs.rax = (-i64::from(answer)) as u64;
            ptrace(libc::PTRACE_SETREGS, pid, 0, (&raw const regs).addr());
        }
        ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
    }
}
