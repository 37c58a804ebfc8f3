//! End to end tests, fake programs, scenarios, real trainers.
//!
//! The library holds what the programs under `src/bin` share: the demo trainer, a
//! writer of torch files, and the ways in which a process can slip away.

pub mod demo;
pub mod escape;
pub mod torch_file;
