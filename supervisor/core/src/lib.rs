//! The pure core of supervise: nouns, state, decisions.
//!
//! Nothing here reads a clock, opens a file or starts a process. `decide` holds all policy and mutates
//! nothing; `State::apply` is total and holds none; the journal stores what passes between them.

pub mod action;
pub mod activity;
pub mod backoff;
pub mod broken_nodes;
pub mod checkpoint;
pub mod collapse;
pub mod collectives;
pub mod creep;
pub mod danger;
pub mod decide;
pub mod diagnosis;
pub mod diff;
pub mod durations;
pub mod ending;
pub mod equivalence;
pub mod event;
pub mod evidence;
pub mod exit;
pub mod failure_line;
pub mod finiteness;
pub mod gang;
pub mod generations;
pub mod gpu;
pub mod id;
mod interval;
pub mod journal;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod log_cause;
pub mod machine;
pub mod numbers;
pub mod policy;
pub mod progress;
pub mod reason;
pub mod record;
pub mod rehearsal;
pub mod reshard;
pub mod resume;
pub mod retention;
pub mod scan;
pub mod script;
pub mod seen;
pub mod spec;
pub mod stacks;
pub mod state;
pub mod taxonomy;
