//! Requests for a save in words.

use supervise_core::journal::record::{SaveOrder, SaveRequestEnd};

pub(super) fn asked(order: &SaveOrder) -> String {
    format!("asked for a save: by {}", order.by.words())
}

/// How a request ended; its reason says the rest.
pub(super) fn ended(how: &SaveRequestEnd) -> &'static str {
    match how {
        SaveRequestEnd::Proven { .. } => "the save that was asked for is proven",
        SaveRequestEnd::Unanswered => "WARNING: the trainer did not answer",
        SaveRequestEnd::Unproven => "WARNING: the save that was asked for was not seen",
        SaveRequestEnd::Failed { .. } => "WARNING: a save could not be asked for",
    }
}
