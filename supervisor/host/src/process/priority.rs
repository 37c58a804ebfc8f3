//! Giving way to the training.

/// This process and what it starts give way to others: by processor time and, where the disk's scheduler knows it, by disk
/// time. Neither is worth failing for.
pub fn give_way(nice: i32) {
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    #[expect(unsafe_code, reason = "no library offers these two calls; both take numbers only")]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
    }
}
