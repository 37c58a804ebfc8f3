//! Distributed checkpoints and sets: real ones stay whole, damaged ones are refused, hostile ones are bounded.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so"
)]

#[path = "../formats/build.rs"]
#[expect(dead_code, reason = "the archives of the other tests, of which some are used here")]
mod archive;
mod beside;
mod build;
mod damage;
mod malice;
mod megatron;
mod names;
mod reading;
mod real;
mod sets;
mod tiling;
mod tree;
