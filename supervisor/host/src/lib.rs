//! Every system call of supervise.
