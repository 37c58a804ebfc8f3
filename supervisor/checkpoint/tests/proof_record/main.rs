//! Proofs that are kept: every byte summed once, records that come back as they were or not at all, and what they decide.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so"
)]

#[path = "../formats/build.rs"]
#[allow(dead_code, reason = "shared with the tests of formats, which use all of it")]
mod build;
mod contents;
mod fixtures;
mod format;
mod numbers;
mod rules;
mod sums;
mod threads;
