//! The state in which the next start decides.

use crate::event::{Event, EventKind};
use crate::journal::record::{JournalRecord, RunOutcome};
use crate::spec::RunSpec;
use crate::state::RunState;

/// The state that a term would find if it started now with this boot id: a changed configuration or a reboot counts.
#[must_use]
pub fn in_next_term(mut state: RunState, spec: &RunSpec, boot: String) -> RunState {
    if state.outcome.as_ref().is_some_and(RunOutcome::needs_a_person) {
        // A step that failed before would be tried again.
        state.disk.distrusted.clear();
    }
    let begins = EventKind::TermStarted {
        term: state.term.next(),
        boot,
        host: String::new(),
        version: String::new(),
        config: spec.config_hash,
        trainer_version: spec.trainer_version.clone(),
        spread: spec.saves.spread(),
        living: None,
        orphans: Vec::new(),
    };
    state.apply(&JournalRecord::Fact(Event {
        at: state.now,
        wall: state.wall,
        entropy: 0,
        kind: begins,
    }));
    state
}
