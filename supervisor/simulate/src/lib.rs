//! A run in virtual time: `decide` and `apply` of the core, with simulated workers, failures and checkpoints.
//!
//! [`run::simulate`] is a pure function of the plan and a seed. It feeds an event for each save and each failure, not
//! for each step, and books the time with the core's own ledger.

pub mod band;
mod core_driver;
mod disk;
mod draws;
pub mod expected;
pub mod failures;
pub mod plan;
pub mod run;
pub mod trace;
