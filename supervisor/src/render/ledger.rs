//! The time ledger of a run, as a line of text and as JSON.

use super::time::span;
use serde::Serialize;
use std::collections::BTreeMap;
use supervise_core::id::{Ms, WallMs};
use supervise_core::ledger::{RecoveryTime, TimeBreakdown, TimeCategory, TimeLedger, WaitFor, devices};
use supervise_core::spec::RunSpec;

const MOST: usize = 3;
/// A run shorter than this has no goodput to show.
const SHORT: Ms = Ms::secs(60);

/// The wall time of a run since its first attempt. The categories add up to the total.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LedgerView {
    /// When the first attempt was launched, in ms since 1970.
    pub began: WallMs,
    /// Total, in ms.
    pub whole_ms: Ms,
    /// Productive share of the total, 0 to 1; time the operator stopped the run does not count.
    pub goodput: Option<f64>,
    /// Each category in ms, except waiting.
    pub parts_ms: BTreeMap<&'static str, Ms>,
    pub waiting_ms: BTreeMap<&'static str, Ms>,
    pub steps: StepsView,
    /// Number of GPUs, or of workers if unknown, used for the costs.
    pub devices: Option<u32>,
    pub costs: Vec<CostView>,
}

/// Steps trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StepsView {
    pub new: u64,
    pub again: u64,
    pub lost: u64,
}

/// What the failures of one class cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostView {
    /// The failure class, or the reason code with which the supervisor stopped an attempt.
    pub class: String,
    pub ends: u64,
    pub lost_steps: u64,
    pub lost_ms: Ms,
    /// Wall time times the number of devices, in hours.
    pub gpu_hours: Option<f64>,
}

/// Recovery time of an attempt: from the end of the previous one to its first step, in ms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComebackView {
    pub after: Option<String>,
    /// Total, without the operator's time.
    pub took_ms: Ms,
    /// Until the failure was detected.
    pub notice_ms: Ms,
    /// Until all processes had exited.
    pub end_ms: Ms,
    /// Until a resume point was chosen.
    pub prove_ms: Ms,
    /// Waiting, but not for the operator.
    pub wait_ms: Ms,
    /// Until its workers started.
    pub launch_ms: Ms,
    /// Until it printed its first step.
    pub first_step_ms: Ms,
    /// Waiting for the operator, or stopped by the operator.
    pub person_ms: Ms,
    /// Time that no supervisor observed.
    pub unknown_ms: Ms,
    /// It printed a step, so the times are final.
    pub complete: bool,
}

impl LedgerView {
    /// The ledger up to `until`, counting current activities up to then; without it, up to the newest record. `None`:
    /// nothing was launched. `hangs`: there was no progress for too long.
    #[must_use]
    pub fn of(ledger: &TimeLedger, spec: Option<&RunSpec>, until: Option<WallMs>, hangs: bool) -> Option<Self> {
        let began = ledger.began()?;
        let parts = until.map_or_else(|| ledger.parts(), |at| ledger.parts_at(at, hangs));
        let devices = spec.map(devices);
        let mut costs: Vec<CostView> = ledger
            .costs()
            .iter()
            .map(|(class, cost)| CostView {
                class: class.clone(),
                ends: cost.ends,
                lost_steps: cost.lost_steps,
                lost_ms: cost.lost,
                gpu_hours: devices.map(|n| cost.lost.0 as f64 * f64::from(n) / 3_600_000.0),
            })
            .collect();
        costs.sort_by_key(|c| std::cmp::Reverse(c.lost_ms));
        let waits = |p: &TimeCategory| matches!(p, TimeCategory::Waiting(_));
        let trained = ledger.trained();
        Some(Self {
            began,
            whole_ms: parts.whole(),
            goodput: parts.goodput(),
            parts_ms: TimeCategory::all()
                .filter(|p| !waits(p))
                .map(|p| (p.code(), parts.of(p)))
                .collect(),
            waiting_ms: WaitFor::ALL
                .into_iter()
                .map(|w| (w.code(), parts.of(TimeCategory::Waiting(w))))
                .collect(),
            steps: StepsView {
                new: trained.new,
                again: trained.again,
                lost: trained.lost,
            },
            devices,
            costs,
        })
    }
}

#[cfg(test)]
impl LedgerView {
    pub(crate) fn begun(began: WallMs) -> Self {
        Self {
            began,
            whole_ms: Ms(0),
            goodput: None,
            parts_ms: BTreeMap::new(),
            waiting_ms: BTreeMap::new(),
            steps: StepsView {
                new: 0,
                again: 0,
                lost: 0,
            },
            devices: None,
            costs: Vec::new(),
        }
    }
}

impl LedgerView {
    /// Goodput and the largest categories, as text.
    #[must_use]
    pub fn brief(&self) -> Option<String> {
        self.goodput?;
        let rest = self
            .parts_ms
            .iter()
            .filter(|(part, _)| **part != TimeCategory::Productive.code());
        let waits = self.waiting_ms.values().map(|ms| ms.0).sum();
        let mut rest: Vec<(&str, Ms)> = rest.map(|(part, ms)| (*part, *ms)).collect();
        rest.push(("waiting", Ms(waits)));
        rest.retain(|(_, ms)| ms.0 > 0);
        rest.sort_by_key(|(_, ms)| std::cmp::Reverse(*ms));
        let most: Vec<String> = rest
            .iter()
            .take(MOST)
            .map(|(part, ms)| format!("{part} {}", span(*ms)))
            .collect();
        let of = span(self.whole_ms);
        if self.whole_ms < SHORT {
            return Some(format!("{of} is too short to tell"));
        }
        let goodput = self.goodput_cell();
        Some(match most.is_empty() {
            true => format!("{goodput} of {of}"),
            false => format!("{goodput} of {of}; most of the rest: {}", most.join(", ")),
        })
    }

    /// Goodput in percent; of less than a minute it says nothing, because steps are reported in groups.
    #[must_use]
    pub fn goodput_cell(&self) -> String {
        match self.goodput {
            Some(goodput) if self.whole_ms >= SHORT => format!("{:.1} %", 100.0 * goodput),
            _ => "-".to_owned(),
        }
    }
}

impl ComebackView {
    /// The view of a recovery time.
    #[must_use]
    pub fn of(c: &RecoveryTime) -> Self {
        Self {
            after: c.after.clone(),
            took_ms: c.took(),
            notice_ms: c.notice,
            end_ms: c.end,
            prove_ms: c.prove,
            wait_ms: c.wait,
            launch_ms: c.launch,
            first_step_ms: c.first_step,
            person_ms: c.person,
            unknown_ms: c.unknown,
            complete: c.complete,
        }
    }
}

/// One line: goodput, and where the time went.
#[must_use]
pub fn totals(parts: &TimeBreakdown) -> Option<String> {
    let goodput = parts.goodput()?;
    let mut told = Vec::new();
    let mut waits = Vec::new();
    for (part, ms) in parts.iter() {
        match part {
            TimeCategory::Waiting(what) => waits.push(format!("{} {}", what.code(), span(ms))),
            TimeCategory::Stopped | TimeCategory::Unknown => {}
            part => told.push(format!("{} {}", part.code(), span(ms))),
        }
    }
    if !waits.is_empty() {
        told.push(format!("waiting {} ({})", span(parts.waiting()), waits.join(", ")));
    }
    for part in [TimeCategory::Unknown, TimeCategory::Stopped] {
        let ms = parts.of(part);
        if ms.0 > 0 {
            told.push(format!("{} {}", part.code(), span(ms)));
        }
    }
    let whole = span(parts.whole());
    Some(format!(
        "goodput {:.1} % of {whole}: {}",
        100.0 * goodput,
        told.join(", ")
    ))
}
