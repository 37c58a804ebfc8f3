//! What a plan says of saves: how often, on request, and what a crash can cost.

use crate::render::status::LossView;
use crate::render::time;
use serde::Serialize;
use supervise_core::id::Ms;
use supervise_core::save_interval::{LossBound, SaveSpans};
use supervise_core::spec::RunSpec;
use supervise_trainers::{SaveDoor, adapter_of};

/// Whether a running attempt can be asked to save.
#[derive(Debug, Serialize)]
pub struct SaveRequestsView {
    pub possible: bool,
    /// What answers in the trainer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl SaveRequestsView {
    pub(super) fn of(door: SaveDoor) -> Self {
        let (how, why) = match door {
            SaveDoor::Open { how, .. } => (Some(how.to_owned()), None),
            SaveDoor::None { why } => (None, Some(why)),
        };
        Self {
            possible: how.is_some(),
            how,
            why,
        }
    }

    pub(super) fn text(&self) -> String {
        let answer = if self.possible { "yes" } else { "no" };
        let because = self.how.as_ref().or(self.why.as_ref());
        format!("saves on request: {answer} ({})", because.map_or("", String::as_str))
    }
}

/// The save interval, and what a crash can cost.
#[derive(Debug, Serialize)]
pub struct SavesView {
    pub every: Option<u64>,
    /// The last step is always saved.
    pub at_end: bool,
    /// Duration of the longest step so far, in ms.
    pub longest_step: Option<Ms>,
    /// Steps that a crash can cost at most; `null`: all of them.
    pub crash_costs_steps: Option<u64>,
    /// The same in ms, if a step was seen.
    pub crash_costs: Option<Ms>,
    /// A save interval with which a crash costs less than ten minutes, if the current one costs more.
    pub proposed_every: Option<u64>,
    /// Whether `max_loss` is kept; absent: nothing is promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossView>,
    #[serde(skip)]
    every_key: &'static str,
}

/// A crash should cost less than this.
const BEARABLE: Ms = Ms::secs(600);

impl SavesView {
    pub(super) fn of(spec: &RunSpec, longest: Option<Ms>) -> Self {
        let every = spec.cadence.every;
        let longest = longest.filter(|ms| ms.0 > 0);
        let crash_costs = every.zip(longest).map(|(n, ms)| Ms(n.saturating_mul(ms.0)));
        let proposed = longest.map(|ms| (BEARABLE.0 / ms.0).max(1));
        Self {
            every,
            at_end: spec.cadence.at_end,
            longest_step: longest,
            crash_costs_steps: every,
            crash_costs,
            loss: LossView::from_bound(LossBound::from_spans(
                SaveSpans {
                    step: longest,
                    ..SaveSpans::default()
                },
                every,
                spec.policy.max_loss,
                spec.no_save_door().is_none(),
                false,
            )),
            every_key: adapter_of(spec).words().every.unwrap_or_default(),
            proposed_every: proposed.filter(|n| spec.root.is_some() && every.is_none_or(|e| *n < e)),
        }
    }

    pub(super) fn text(&self) -> Vec<String> {
        let mut out = Vec::new();
        out.extend(
            self.loss
                .iter()
                .map(|loss| format!("a failure can cost {}", loss.words())),
        );
        let Some(longest) = self.longest_step else {
            return out;
        };
        let step = time::span(longest);
        if let Some(cost) = self.crash_costs {
            let cost = time::span(cost);
            out.push(format!(
                "at {step} a step, the longest one seen, a crash costs up to {cost}"
            ));
        }
        if let Some(n) = self.proposed_every.filter(|_| !self.every_key.is_empty()) {
            out.push(format!("{}={n} would keep that below ten minutes", self.every_key));
        }
        out
    }
}
