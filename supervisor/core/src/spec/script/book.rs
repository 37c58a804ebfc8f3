//! The trainer calls that a script makes in one attempt, and which of them may start.
//!
//! A run is one training, so a second one is held back. A call that failed ends the attempt, whatever the script does
//! next, and a training that succeeded is not started again.

use crate::id::WorkerId;
use crate::observe::exit::ExitStatus;
use serde::{Deserialize, Serialize};

/// Which part of a training a call is, if one call does not start all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallPlace {
    /// Rank of the script, if several run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Rank of the node that the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// A call that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    pub place: CallPlace,
    /// Settings that identify the training, as the script wrote them.
    pub root: String,
    pub what: String,
    /// Equal for a repetition of the call in the same directory with the same settings files.
    pub identity: String,
    pub end: Option<ExitStatus>,
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// It may start.
    Start,
    /// It is not the learned call, or its root differs, and the learned call has not come yet: if two are started at
    /// once, it may be on its way.
    Wait,
    /// The same training after it succeeded, which is over.
    Again,
    /// Another training.
    HoldBack {
        /// Whether the first one is still running.
        at_once: bool,
    },
    /// A call failed before: the attempt is over.
    Over,
}

/// The calls of an attempt, in order.
#[derive(Debug, Default)]
pub struct CallBook {
    calls: Vec<StartedCall>,
}

impl CallBook {
    /// Answers a call. `fits`: our words can be injected into it; `is_learnt`: its root is the learned one.
    #[must_use]
    pub fn answer(&self, call: &StartedCall, fits: bool, is_learnt: bool) -> CallAnswer {
        let (place, root) = (call.place, &call.root);
        if self.calls.is_empty() {
            return match fits && is_learnt {
                true => CallAnswer::Start,
                false => CallAnswer::Wait,
            };
        }
        if self.calls.iter().any(|c| c.end.is_some_and(|end| !end.is_success())) {
            return CallAnswer::Over;
        }
        let is_same = fits && self.calls.iter().all(|c| c.root == *root);
        if is_same && self.calls.iter().all(|c| is_another_part(c.place, place)) {
            return CallAnswer::Start;
        }
        match self.calls.iter().any(|c| c.end.is_none()) {
            true => CallAnswer::HoldBack { at_once: true },
            false if is_same && self.calls.iter().any(|c| c.identity == call.identity) => CallAnswer::Again,
            false => CallAnswer::HoldBack { at_once: false },
        }
    }

    /// Records a call that starts and returns its number.
    pub fn begin(&mut self, call: StartedCall) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Records how a call ended, once.
    pub fn end(&mut self, at: usize, status: ExitStatus) -> Option<&StartedCall> {
        let call = self.calls.get_mut(at).filter(|c| c.end.is_none())?;
        call.end = Some(status);
        Some(call)
    }

    /// The calls, in the order they started.
    #[must_use]
    pub fn calls(&self) -> &[StartedCall] {
        &self.calls
    }

    /// Calls of one of `workers` scripts.
    pub fn of(&self, worker: WorkerId, workers: usize) -> impl Iterator<Item = (usize, &StartedCall)> {
        let all = self.calls.iter().enumerate();
        all.filter(move |(_, c)| worker_of(c.place, workers) == worker)
    }

    /// The exit status that counts for a script that exited, given its calls; `None` while one of them is running.
    #[must_use]
    pub fn status(&self, worker: WorkerId, workers: usize, own: ExitStatus) -> Option<ExitStatus> {
        let ends: Vec<Option<ExitStatus>> = self.of(worker, workers).map(|(_, c)| c.end).collect();
        if let Some(failed) = ends.iter().flatten().find(|end| !end.is_success()) {
            return Some(*failed);
        }
        match ends.as_slice() {
            [] => Some(own),
            ends if ends.iter().all(Option::is_some) => Some(ExitStatus::Code(0)),
            _ => None,
        }
    }
}

/// The worker whose script made the call.
#[must_use]
pub fn worker_of(place: CallPlace, workers: usize) -> WorkerId {
    let rank = place.rank.filter(|r| usize::try_from(*r).is_ok_and(|r| r < workers));
    WorkerId(rank.unwrap_or_default())
}

/// Returns true if the calls are parts of one training: other ranks of the script or of the node.
fn is_another_part(one: CallPlace, other: CallPlace) -> bool {
    let differ = |a: Option<u32>, b: Option<u32>| matches!((a, b), (Some(a), Some(b)) if a != b);
    differ(one.rank, other.rank) || differ(one.node, other.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: CallPlace = CallPlace { rank: None, node: None };

    fn call(place: CallPlace, root: &str, identity: &str) -> StartedCall {
        StartedCall {
            place,
            root: root.to_owned(),
            what: "python3 a".to_owned(),
            identity: identity.to_owned(),
            end: None,
        }
    }

    #[test]
    fn other_words_with_the_same_root_are_another_training() {
        let book = begun(&[(ALONE, Some(ExitStatus::Code(0)))]);
        assert_eq!(book.answer(&call(ALONE, "a", "1"), true, true), CallAnswer::Again);
        let answer = book.answer(&call(ALONE, "a", "2"), true, true);
        assert_eq!(answer, CallAnswer::HoldBack { at_once: false });
    }

    fn node(n: u32) -> CallPlace {
        CallPlace {
            rank: None,
            node: Some(n),
        }
    }

    fn begun(places: &[(CallPlace, Option<ExitStatus>)]) -> CallBook {
        let mut book = CallBook::default();
        for (place, end) in places {
            let call = StartedCall {
                place: *place,
                root: "a".to_owned(),
                what: "python3 a".to_owned(),
                identity: "1".to_owned(),
                end: *end,
            };
            book.begin(call);
        }
        book
    }

    #[test]
    fn one_training_starts_and_a_second_does_not() {
        let (good, bad) = (Some(ExitStatus::Code(0)), Some(ExitStatus::Code(1)));
        let at_once = CallAnswer::HoldBack { at_once: true };
        let later = CallAnswer::HoldBack { at_once: false };
        for (before, place, root, fits, expected) in [
            (vec![], ALONE, "a", true, CallAnswer::Start),
            (vec![], ALONE, "b", false, CallAnswer::Wait),
            (vec![(ALONE, None)], ALONE, "a", true, at_once),
            (vec![(ALONE, None)], ALONE, "b", false, at_once),
            (vec![(ALONE, good)], ALONE, "a", true, CallAnswer::Again),
            (vec![(ALONE, good)], ALONE, "b", true, later),
            (vec![(ALONE, good)], ALONE, "a", false, later),
            (vec![(ALONE, bad)], ALONE, "a", true, CallAnswer::Over),
            (vec![(ALONE, bad)], ALONE, "b", false, CallAnswer::Over),
            (vec![(node(0), None)], node(1), "a", true, CallAnswer::Start),
            (vec![(node(0), good)], node(1), "a", true, CallAnswer::Start),
            (vec![(node(0), None)], node(1), "b", true, at_once),
            (vec![(node(0), None), (node(1), None)], node(1), "a", true, at_once),
            (
                vec![(node(0), good), (node(1), good)],
                node(0),
                "a",
                true,
                CallAnswer::Again,
            ),
        ] {
            let answer = begun(&before).answer(&call(place, root, "1"), fits, root == "a");
            assert_eq!(answer, expected, "{before:?} {place:?} {root} {fits}");
        }
    }

    #[test]
    fn a_call_with_another_root_waits_for_the_one_that_was_learnt() {
        let book = CallBook::default();
        assert_eq!(book.answer(&call(ALONE, "b", "1"), true, false), CallAnswer::Wait);
        assert_eq!(book.answer(&call(ALONE, "a", "1"), true, true), CallAnswer::Start);
    }

    #[test]
    fn a_script_counts_as_its_calls_ended() {
        let status = |ends: &[Option<ExitStatus>], own: i32| {
            let calls: Vec<(CallPlace, Option<ExitStatus>)> = ends.iter().map(|end| (ALONE, *end)).collect();
            begun(&calls).status(WorkerId(0), 1, ExitStatus::Code(own))
        };
        let (good, bad) = (ExitStatus::Code(0), ExitStatus::Signal(9));
        assert_eq!(status(&[], 3), Some(ExitStatus::Code(3)));
        assert_eq!(status(&[Some(bad)], 0), Some(bad));
        assert_eq!(status(&[Some(good)], 3), Some(good));
        assert_eq!(status(&[None], 0), None);
        assert_eq!(status(&[Some(good), None], 0), None);
        assert_eq!(status(&[None, Some(bad)], 0), Some(bad));
    }

    #[test]
    fn scripts_of_several_ranks_count_by_their_own_calls() {
        let rank = |r| CallPlace {
            rank: Some(r),
            node: None,
        };
        let bad = ExitStatus::Code(1);
        let book = begun(&[(rank(0), Some(ExitStatus::Code(0))), (rank(1), Some(bad))]);
        assert_eq!(book.status(WorkerId(0), 2, bad), Some(ExitStatus::Code(0)));
        assert_eq!(book.status(WorkerId(1), 2, ExitStatus::Code(0)), Some(bad));
        // One script that sets a rank of its own.
        assert_eq!(book.status(WorkerId(0), 1, ExitStatus::Code(0)), Some(bad));
    }
}
