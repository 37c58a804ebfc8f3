//! Trainers that a TOML file declares.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

mod bad;
mod root;
mod steps;

use supervise_trainers::declared::{Declaration, DeclarationProblem};
use supervise_trainers::registry::taken_names;

fn declare(text: &str) -> Result<Declaration, Vec<DeclarationProblem>> {
    Declaration::parse(text, &taken_names())
}
