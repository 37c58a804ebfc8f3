//! The pure core of supervise: nouns, state, decisions.
//!
//! Nothing here reads a clock, opens a file or starts a process. `decide` contains all policy and mutates nothing;
//! `State::apply` is total and contains none; the journal stores what passes between them.

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
pub mod spec;
pub mod state;
