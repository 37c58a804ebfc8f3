//! Formats: real files stay whole, damaged ones are refused, dangerous ones are named, and nothing panics.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so"
)]

mod arbitrary;
mod bounds;
mod build;
mod codes;
mod disguises;
mod evasions;
mod flight;
mod header;
mod json;
mod listed;
mod malice;
mod mutations;
mod plain;
mod queue;
mod real;
mod sources;
mod state;
mod strict;
mod torn;
