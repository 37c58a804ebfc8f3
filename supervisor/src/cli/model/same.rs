//! Checks that tensors of one model are equal.

use super::{FoundModel, OpenModel, WeightFiles};
use crate::error::CliError;
use std::ops::ControlFlow;
use supervise_weights::compare::{ComparedModel, Tolerance, compare};
use supervise_weights::{ModelReader, OutTensor};

/// Returns true if the numbers of two tensors with one name are equal.
pub(in crate::cli) fn is_same(model: &OpenModel, [one, other]: [&OutTensor; 2]) -> Result<bool, CliError> {
    let side = |tensor| ComparedModel {
        reading: ModelReader::new(&model.weights, &model.sources),
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

/// Refuses a model without FSDP ranks; returns a note if every tensor is stored once.
pub(in crate::cli) fn replicas(found: &FoundModel, model: &OpenModel) -> Result<Option<String>, CliError> {
    if !matches!(found.files, WeightFiles::Fsdp(_)) {
        let text = format!("--check-replicas: {} is not made of shards of FSDP", found.dir);
        return Err(CliError::usage(text));
    }
    let once = model.weights.tensors.iter().all(|t| t.copies.is_empty());
    Ok(once.then(|| "no rank holds what another one holds too: there are no replicas to compare".to_owned()))
}
