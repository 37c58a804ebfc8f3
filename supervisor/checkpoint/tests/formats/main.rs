//! Formats: real files stay whole, damaged ones are refused, dangerous ones are named, and nothing panics.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so"
)]

mod arbitrary;
mod build;
mod codes;
mod disguises;
mod evasions;
mod malice;
mod mutations;
mod plain;
mod real;
mod sources;
mod strict;
mod torn;
