//! End to end tests, fake programs, scenarios, real trainers.
//!
//! The library holds what the programs under `src/bin` share, the demo trainer aside. The
//! harness runs `supervise` on the demo trainer for the tests.

pub use supervise_demo_trainer::{demo, escape, torch_file};

pub mod areal_set;
pub mod asked_helper;
pub mod bare_spec;
pub mod disturb;
pub mod harness;
pub mod hoppers;
