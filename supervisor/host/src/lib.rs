//! Every system call of supervise.

pub mod cluster;
pub mod guard;
pub mod interpreter;
pub mod lane;
pub mod migrate;
pub mod process;
pub mod script;
pub mod sink;
