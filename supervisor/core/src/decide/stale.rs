//! Events that come too late.

use super::words::event_word;
use crate::event::EventKind;
use crate::state::{RunMode, RunState};

/// Detects an event of an older attempt, or the answer to an act of an older term.
pub(super) fn stale(s: &RunState, kind: &EventKind) -> Option<(String, String)> {
    let (attempt, what) = match kind {
        EventKind::WorkerExited {
            attempt,
            worker,
            status,
            ..
        } => (*attempt, format!("worker {worker} ended with {status}")),
        EventKind::TreeGone { .. } if s.mode == RunMode::Fencing => return None,
        EventKind::TreeGone { attempt, .. } => (*attempt, "tree gone".to_owned()),
        EventKind::GuardLost { attempt } => (*attempt, "guard lost".to_owned()),
        EventKind::Progress { attempt, .. } => (*attempt, "progress".to_owned()),
        EventKind::Sighted { attempt, sighting, .. } => (*attempt, format!("sighting {}", sighting.rule)),
        EventKind::Evidence { attempt, .. } => (*attempt, "evidence".to_owned()),
        EventKind::Used { attempt, .. } | EventKind::Finite { attempt, .. } | EventKind::Nodes { attempt, .. } => {
            (*attempt, event_word(kind).into())
        }
        EventKind::Script { attempt, .. } => (*attempt, "news of the script".to_owned()),
        EventKind::SaveAnswered { attempt, .. } => (*attempt, "answer to a request for a save".to_owned()),
        EventKind::Numbers { attempt, .. } => (*attempt, "numbers".to_owned()),
        EventKind::ActDone { act, .. } if !s.pending.contains_key(act) => {
            return Some((format!("result of act {act}"), "no such act is pending".into()));
        }
        _ => return None,
    };
    match &s.attempt {
        Some(a) if a.no == attempt => None,
        Some(a) => Some((
            what,
            format!("it belongs to attempt {attempt}, the present one is {}", a.no),
        )),
        None => Some((what, format!("attempt {attempt} is unknown"))),
    }
}
