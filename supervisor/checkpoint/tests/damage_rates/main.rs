//! The rate at which changed files are caught, over thousands of changes to real ones: by kind of change, by what stood
//! there, and by how deep a proof goes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so"
)]

#[path = "../proof_record/fixtures.rs"]
mod fixtures;
mod mutate;
mod prove;
mod random;
mod rates;
mod table;
