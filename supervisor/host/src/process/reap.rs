//! Reaping: which child exited, and how, for a process that owns all of its children.
//!
//! Only guard and keeper use this: they are single-threaded, and no other code in them waits for children. The
//! kernel's signal numbers are kept, because a wrapper that knows only the classic signals would lose the status of a
//! process killed by a real-time signal.

use std::io;
use supervise_core::event::ExitStatus;

const AT_ONCE: usize = 4096;

/// Reaps children that have exited, up to a limit: if they exit faster than that, the caller must continue killing.
pub(crate) fn reap_some(mut tell: impl FnMut(i32, ExitStatus)) {
    for _ in 0..AT_ONCE {
        let Ok(Some((pid, status))) = reap_one() else { return };
        tell(pid, status);
    }
}

/// Reaps one child that has exited.
///
/// `Ok(None)`: none has exited; an error of kind ECHILD: there are no children at all.
///
/// # Errors
/// The error of `waitid`.
#[expect(unsafe_code, reason = "waitid has no safe form that keeps every signal number")]
pub fn reap_one() -> io::Result<Option<(i32, ExitStatus)>> {
    loop {
        // SAFETY: siginfo_t is plain data for which all zeroes is valid, and waitid writes to it alone.
        let (rc, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let rc = libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG);
            (rc, info)
        };
        if rc == 0 {
            // SAFETY: after a successful waitid these two fields are the ones that are filled in.
            let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
            return Ok((pid != 0).then(|| (pid, exit_status(info.si_code, status))));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn exit_status(code: i32, status: i32) -> ExitStatus {
    match code {
        libc::CLD_EXITED => ExitStatus::Code(status),
        libc::CLD_KILLED | libc::CLD_DUMPED => ExitStatus::Signal(status),
        _ => ExitStatus::Unknown,
    }
}
