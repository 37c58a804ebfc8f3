//! Names that a step's files import.

use super::required_files;
use super::survey::Survey;
use crate::adapter::Expectation;
use crate::kit::not_trusted;

/// Names in the files beyond what torch needs and nobody trusts, sorted, the first few.
pub(crate) fn unfamiliar(expect: &Expectation, survey: &Survey<'_>) -> Vec<String> {
    let mut facts = Vec::new();
    let _ = required_files::each(survey, &mut |wanted| {
        facts.extend(wanted.file.torch());
        Some(())
    });
    not_trusted(expect, facts.into_iter())
}
