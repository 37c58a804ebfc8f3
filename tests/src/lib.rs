//! End to end tests, fake programs, scenarios, real trainers.
//!
//! The library holds what the programs under `src/bin` share: the demo trainer, a
//! writer of torch files, the ways in which a process can slip away, and the demo. The
//! harness runs `supervise` on the demo trainer for the tests.

pub mod areal_set;
pub mod asked_helper;
pub mod bare_spec;
pub mod demo;
pub mod disturb;
pub mod escape;
pub mod harness;
pub mod hoppers;
pub mod showcase;
pub mod torch_file;
