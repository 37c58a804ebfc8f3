//! Tests of the core from outside: a simulated world in virtual time, tables, real logs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod choose;
mod collectives;
mod creep;
mod degraded;
mod diff;
mod lease;
mod lease_machines;
mod ledger;
mod limits;
mod logs;
mod machine;
mod recorded;
mod retain;
mod stalls;
mod stalls_of_areal;
mod stalls_of_cuda;
mod stalls_of_ray;
mod stops;
mod traces;
#[expect(dead_code, reason = "the scenarios use the rest of it")]
mod world;
