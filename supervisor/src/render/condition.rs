//! What a run waits for, as text.

use supervise_core::journal::record::WaitCondition;

/// Completes "waiting …" in a timeline.
pub(crate) fn until(what: &WaitCondition) -> &'static str {
    match what {
        WaitCondition::Backoff => "before the next attempt",
        WaitCondition::Readable => "until a newer step can be read,",
        WaitCondition::JournalWritable => "until the journal can be written,",
        WaitCondition::TreeGone => "until processes that cannot be killed are gone,",
        WaitCondition::GpusFree => "until its GPUs are empty,",
        WaitCondition::Space => "until there is room for a save,",
        WaitCondition::ClusterFree => "until the cluster answers and has let go of the attempt before,",
        WaitCondition::Unheld => "until nobody holds the run,",
    }
}

/// Completes "waiting for …" in a headline.
pub(crate) fn thing(what: &WaitCondition) -> &'static str {
    match what {
        WaitCondition::Backoff => "the next attempt",
        WaitCondition::Readable => "a step that cannot be read now",
        WaitCondition::JournalWritable => "a journal that can be written",
        WaitCondition::TreeGone => "processes that cannot be killed",
        WaitCondition::GpusFree => "GPUs that others use",
        WaitCondition::Space => "room for a save on the disk",
        WaitCondition::ClusterFree => "a cluster that does not answer, or still holds the attempt before",
        WaitCondition::Unheld => "`supervise unhold`",
    }
}

/// Completes "has waited 10m …" in a notification.
pub(crate) fn awaited(what: &WaitCondition) -> &'static str {
    match what {
        WaitCondition::Backoff => "for time to pass",
        WaitCondition::Readable => "for a newer step to become readable",
        WaitCondition::JournalWritable => "for the journal to become writable",
        WaitCondition::TreeGone => "for processes that cannot be ended",
        WaitCondition::GpusFree => "for its GPUs to be empty",
        WaitCondition::Space => "for room on the disk",
        // The reason says the rest.
        WaitCondition::ClusterFree => "for the machine",
        WaitCondition::Unheld => "for `supervise unhold`",
    }
}
