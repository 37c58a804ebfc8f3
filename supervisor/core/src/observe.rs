//! What is measured while an attempt runs, and what follows from the numbers alone.

pub mod activity;
pub mod collapse;
pub mod collectives;
pub mod creep;
pub mod durations;
pub mod exception;
pub mod exit;
pub mod machine;
pub mod numbers;
pub mod stacks;
