//! What is known of failures: their classes, the lines that show them, and the answers.

pub mod action;
pub mod failure_line;
pub mod log_cause;
pub mod taxonomy;
