//! Tensors of one model that have to be equal.

use super::Model;
use crate::error::CliError;
use std::ops::ControlFlow;
use supervise_weights::compare::{Side, Tolerance, compare};
use supervise_weights::{OutTensor, Reading};

/// Returns true if the numbers of two tensors of a model, which have one name, are the same.
pub(in crate::cli) fn is_same(model: &Model, [one, other]: [&OutTensor; 2]) -> Result<bool, CliError> {
    let side = |tensor| Side {
        reading: Reading::new(&model.weights, &model.sources),
        tensors: std::slice::from_ref(tensor),
    };
    let exactly = Tolerance::default();
    let compared = compare(
        side(one),
        side(other),
        exactly,
        1,
        &mut |_, _| ControlFlow::Continue(()),
    )
    .map_err(|e| CliError::checkpoint(e.verdict, e.text))?;
    Ok(compared.is_some_and(|c| c.differences.is_empty()))
}
