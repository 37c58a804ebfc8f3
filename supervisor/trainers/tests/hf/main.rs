//! What Hugging Face's `Trainer` leaves on disk and prints, and what is made of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;
mod launch;
mod steps;
