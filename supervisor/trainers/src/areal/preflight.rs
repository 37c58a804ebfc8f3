//! What a person should know before a launch.

use crate::adapter::TrainerFacts;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::RunSpec;

/// What is worth knowing.
pub(super) fn preflight(_spec: &RunSpec, _facts: &TrainerFacts) -> Vec<Finding> {
    Vec::new()
}
