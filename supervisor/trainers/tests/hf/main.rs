//! Files and lines that Hugging Face's `Trainer` leaves, and what is made of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;
mod launch;
mod relatives;
mod steps;
