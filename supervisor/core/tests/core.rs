//! Tests of the core from outside: a simulated world in virtual time, scenario scripts, tables, real logs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod choose;
mod diff;
mod lease;
mod limits;
mod logs;
mod machine;
mod parts;
mod recorded;
mod retain;
mod scenarios;
mod stops;
mod world;
