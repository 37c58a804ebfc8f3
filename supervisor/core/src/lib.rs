//! The pure core of supervise: what a run is, its state, and the decisions about it.
//!
//! Nothing here reads a clock, opens a file or starts a process. `decide` contains all policy and mutates nothing;
//! `RunState::apply` is total and contains none; the journal stores what passes between them.

pub mod checkpoint;
pub mod decide;
pub mod diagnosis;
pub mod event;
pub mod id;
pub mod journal;
pub mod lease;
pub mod ledger;
pub mod observe;
pub mod policy;
pub mod resume;
pub mod rulebook;
pub mod save_interval;
pub mod spec;
pub mod state;
