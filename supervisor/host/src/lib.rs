//! Every system call of supervise.

pub mod guard;
pub mod lane;
pub mod process;
pub mod sink;
