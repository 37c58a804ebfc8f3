//! Measurements taken while an attempt runs, and what they show on their own.

pub mod activity;
pub mod collapse;
pub mod collectives;
pub mod creep;
pub mod durations;
pub mod exception;
pub mod exit;
pub mod line_time;
pub mod machine;
pub mod numbers;
pub mod stacks;
