//! Saves on request: how a running trainer can be asked to save at its next step boundary.
//!
//! Our Python runs first in the trainer's interpreter and looks at a file of the attempt at each step boundary. All
//! ranks act on rank 0's answer.

use super::InjectedSetting;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{RunSpec, SAVE_REQUEST, SAVE_VARIABLE};

/// Python that every door needs; a trainer's own part comes after it.
const COMMON: [&str; 2] = [
    include_str!("../../../../python/supervise/_door.py"),
    include_str!("save_door/open.py"),
];

/// Whether a running trainer can be asked to save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveDoor {
    Open {
        /// What answers in the trainer.
        how: &'static str,
        /// The trainer's own part of the Python that runs first in its interpreters; empty: it asks by itself.
        python: &'static [&'static str],
    },
    None {
        why: String,
    },
}

impl SaveDoor {
    pub(crate) fn none(why: impl Into<String>) -> Self {
        Self::None { why: why.into() }
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// The Python that must run first in the trainer's interpreters, if it does not ask by itself.
    #[must_use]
    pub fn python(&self) -> Option<String> {
        match self {
            Self::Open { python, .. } if !python.is_empty() => Some([&COMMON, *python].concat().concat()),
            _ => None,
        }
    }
}

/// The setting that opens the door, if there is one.
pub(crate) fn setting(spec: &RunSpec, order: &LaunchOrder) -> Option<InjectedSetting> {
    let opens = spec.save_door && order.from != StartPoint::AsIs;
    opens.then(|| {
        let mut help = InjectedSetting::new(
            "assist.save_requests",
            "a save can be asked for, and is made at the next step boundary",
        );
        let attempt = spec.run_dir.join(format!("attempts/{:04}", order.attempt.0));
        help.set(SAVE_VARIABLE, attempt.join(SAVE_REQUEST).as_str());
        help
    })
}
