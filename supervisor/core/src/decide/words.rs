//! Text for decisions: names of ignored events, spans of time, why a step counts.

use crate::event::EventKind;
use crate::id::Ms;
use crate::journal::reason::Reason;
use crate::journal::record::REPORTED;

pub(super) fn event_word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::TermStarted { .. } => "term started",
        EventKind::ActDone { .. } => "result of an act",
        EventKind::WorkerExited { .. } => "a worker ended",
        EventKind::TreeGone { .. } => "tree gone",
        EventKind::GuardLost { .. } => "guard lost",
        EventKind::Nodes { .. } => "news of the nodes",
        EventKind::Progress { .. } => "progress",
        EventKind::Looked { .. } => "a look at the ranks",
        EventKind::Sighted { .. } => "sighting",
        EventKind::Evidence { .. } => "evidence",
        EventKind::Used { .. } => "what is used",
        EventKind::Finite { .. } => "numbers of a step",
        EventKind::Numbers { .. } => "numbers",
        EventKind::SaveAnswered { .. } => "answer to a request for a save",
        EventKind::Script { .. } => "news of the script",
        EventKind::Checkpoints(_) | EventKind::CheckpointsChanged(_) => "scan",
        EventKind::Rehearsed(_) => "rehearsal",
        EventKind::TrainerSeen(_) => "a trainer seen",
        EventKind::Timer(_) => "timer",
        EventKind::Space { .. } => "free space",
        EventKind::TimeGap { .. } => "time gap",
        EventKind::IoStalled { .. } => "I/O worker stalled",
        EventKind::IoRecovered => "I/O worker recovered",
        EventKind::JournalStalled { .. } => "journal stalled",
        EventKind::JournalRecovered => "journal recovered",
        EventKind::LeaseLost { .. } => "lease lost",
        EventKind::LeaseSilent { .. } => "lease not renewed",
        EventKind::Displaced { .. } => "run directory displaced",
        EventKind::Told { .. } => "somebody told",
        EventKind::Allocation { .. } => "the scheduler's job",
        EventKind::Operator(_) => "operator's request",
        EventKind::Collected { .. } => "leftovers deleted",
    }
}

pub(super) fn span_words(span: Ms) -> String {
    match span.0 / 60_000 {
        0..3 => format!("{} seconds", span.0 / 1000),
        minutes => format!("{minutes} minutes"),
    }
}

/// Why a step counts: it was read, or the training loop reported it.
pub(super) fn mark_reason(is_reported: bool, proven: String) -> Reason {
    match is_reported {
        true => Reason::new(REPORTED, "as many files and bytes as the loop reported"),
        false => Reason::new("proven", proven),
    }
}
