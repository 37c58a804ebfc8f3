//! Lowers this process's priority below the training's.

/// Lowers the CPU priority of this process and its children and, if the I/O scheduler supports it, their disk
/// priority. Errors are ignored.
pub fn give_way(nice: i32) {
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    #[expect(unsafe_code, reason = "no library offers these two calls; both take numbers only")]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
    }
}
