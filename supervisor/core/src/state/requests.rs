//! Operator requests: adopt the run, stop it, hold it, roll it back.

use super::{AdoptionPoint, LetGo, RollBack, RunHold, RunState, StopWish};
use crate::checkpoint::Depth;
use crate::event::OperatorRequest;
use crate::id::Tick;
use crate::journal::record::{DiskEdit, LaunchOrder, StartPoint};
use crate::spec::ResumeIntent;

impl RunState {
    pub(super) fn on_request(&mut self, request: &OperatorRequest, at: Tick) {
        let before = self.requests.stop.as_ref();
        let wish = |after_save, by: &str| StopWish {
            after_save,
            by: by.to_owned(),
            mark: self.progress.mark,
            at,
            hand_back: false,
            until: None,
        };
        let new = match request {
            OperatorRequest::Stop { after_save, by, left } => StopWish {
                // A scheduler sends this after its own notice, too; from an operator it means a stop.
                hand_back: left.is_some() && before.is_some_and(|w| w.hand_back),
                until: sooner(left.map(|left| at.after(left)), before),
                ..wish(*after_save, by)
            },
            OperatorRequest::StopNow { by } => wish(false, by),
            // It counts once it is decided upon.
            OperatorRequest::HandBack { .. } => return,
            OperatorRequest::Save { by } => return self.on_save_wished(by),
            OperatorRequest::Resume { by, was } => {
                self.requests.let_go = Some(LetGo {
                    by: by.clone(),
                    was: was.clone(),
                    since: self.wall,
                });
                return;
            }
            OperatorRequest::Hold { by, why } => {
                self.requests.held = Some(RunHold {
                    by: by.clone(),
                    why: why.clone(),
                    since: self.wall,
                });
                return;
            }
            OperatorRequest::RollBack { by, to } => {
                self.requests.roll_back = Some(RollBack {
                    to: *to,
                    by: by.clone(),
                    since: self.wall,
                });
                return;
            }
            OperatorRequest::Unhold { .. } => {
                self.requests.held = None;
                if let Some(a) = self.attempt.as_mut() {
                    a.excuse(at);
                }
                return;
            }
        };
        self.requests.stop = Some(new);
    }

    /// Returns true if an operator holds the run and nobody asked to stop it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.requests.held.is_some() && self.requests.stop.is_none()
    }

    pub(super) fn take_into_care(&mut self, order: &LaunchOrder, edits: &[DiskEdit], intent: &ResumeIntent) {
        let step = matches!(order.from, StartPoint::Step { .. }).then(|| order.from.step());
        self.requests.care = Some(AdoptionPoint {
            step,
            intent: intent.clone(),
            term: self.term,
            attempt: order.attempt,
            cleared: edits
                .iter()
                .any(|e| matches!(e, DiskEdit::MoveAside { foreign: true, .. })),
        });
        self.progress.mark = step;
        let steps = || self.disk.scan.iter().flat_map(|scan| &scan.steps);
        self.disk.read = step.filter(|step| steps().any(|c| c.step == *step && c.is_proven(Depth::Full)));
        self.requests.wish_done = false;
        self.disk.distrusted.clear();
        self.disk.extra.clear();
    }

    /// Takes in a preemption. An operator's earlier request to stop still ends the run for good.
    pub(super) fn on_hand_back(&mut self, by: &str, until: Option<Tick>, at: Tick) {
        let before = self.requests.stop.as_ref();
        self.requests.stop = Some(StopWish {
            after_save: false,
            by: before.map_or(by, |w| &w.by).to_owned(),
            mark: self.progress.mark,
            at,
            hand_back: before.is_none_or(|w| w.hand_back),
            until: sooner(until, before),
        });
    }
}

fn sooner(until: Option<Tick>, before: Option<&StopWish>) -> Option<Tick> {
    until.into_iter().chain(before.and_then(|w| w.until)).min()
}
