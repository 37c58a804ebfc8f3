//! Conditions that a run waits for, in words.

use supervise_core::record::Condition;

/// In a line of what happens: waiting ...
pub(crate) fn until(what: &Condition) -> &'static str {
    match what {
        Condition::Backoff => "before the next attempt",
        Condition::Readable => "until a newer step can be read,",
        Condition::JournalWritable => "until the journal can be written,",
        Condition::TreeGone => "until processes that cannot be killed are gone,",
        Condition::GpusFree => "until its GPUs are empty,",
        Condition::Space => "until there is room for a save,",
        Condition::ClusterFree => "until the cluster answers and has let go of the attempt before,",
        Condition::Unheld => "until nobody holds the run,",
    }
}

/// In a headline: waiting for ...
pub(crate) fn thing(what: &Condition) -> &'static str {
    match what {
        Condition::Backoff => "the next attempt",
        Condition::Readable => "a step that cannot be read now",
        Condition::JournalWritable => "a journal that can be written",
        Condition::TreeGone => "processes that cannot be killed",
        Condition::GpusFree => "GPUs that others use",
        Condition::Space => "room for a save on the disk",
        Condition::ClusterFree => "a cluster that does not answer, or still holds the attempt before",
        Condition::Unheld => "`supervise unhold`",
    }
}

/// In a notice: has waited so long ...
pub(crate) fn awaited(what: &Condition) -> &'static str {
    match what {
        Condition::Backoff => "for time to pass",
        Condition::Readable => "for a newer step to become readable",
        Condition::JournalWritable => "for the journal to become writable",
        Condition::TreeGone => "for processes that cannot be ended",
        Condition::GpusFree => "for its GPUs to be empty",
        Condition::Space => "for room on the disk",
        // The reason says the rest.
        Condition::ClusterFree => "for the machine",
        Condition::Unheld => "for `supervise unhold`",
    }
}
