//! The pure core of supervise: nouns, state, decisions.
//!
//! Nothing here reads a clock, opens a file or starts a process. `decide` holds all policy and mutates
//! nothing; `State::apply` is total and holds none; the journal stores what passes between them.

pub mod checkpoint;
pub mod event;
pub mod id;
pub mod reason;
pub mod record;
pub mod scan;
pub mod spec;
