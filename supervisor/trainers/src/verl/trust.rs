//! Names that a step's files import.

use super::evidence::StepFile;
use super::queue;
use super::required_files;
use super::step_files::StepFiles;
use crate::adapter::ExpectedLayout;
use crate::kit::not_trusted;

/// Imported names beyond torch's own and the trusted ones: sorted, the first few.
pub(crate) fn unfamiliar(expect: &ExpectedLayout, survey: &StepFiles<'_>) -> Vec<String> {
    let mut facts = Vec::new();
    let _ = required_files::each(survey, &mut |wanted| {
        facts.extend(wanted.file.torch());
        Some(())
    });
    let mut out = not_trusted(expect, facts.into_iter());
    let is_unread = |file: &&StepFile<'_>| queue::is_too_large(expect, file);
    let all = expect.trust_globals.iter().any(|pattern| pattern == "*");
    out.extend(
        survey
            .queue
            .values()
            .filter(is_unread)
            .filter(|_| !all)
            .take(1)
            .map(|file| {
                format!(
                    "{}, which is too large to be looked into with this proof.memory",
                    file.path
                )
            }),
    );
    out
}
