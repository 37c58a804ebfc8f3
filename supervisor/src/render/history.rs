//! One line per attempt: start and end step, duration, why it ended, how much time was lost.

use super::columns::TextTable;
use super::explain::{AttemptStory, ExplainView};
use super::ledger::{ComebackView, LedgerView, totals};
use super::one_line;
use super::record::start_point;
use super::terminal::shown;
use super::time::{local_stamp, span};
use serde::Serialize;
use std::collections::BTreeMap;
use supervise_core::id::{AttemptNo, Ms, Step, WallMs};
use supervise_core::ledger::{RecoveryTime, TimeLedger};
use supervise_core::spec::RunSpec;
use supervise_core::state::{RollBack, RunState};

/// The history of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryView {
    pub version: u32,
    pub run: String,
    /// One per attempt, oldest first.
    pub attempts: Vec<AttemptRow>,
    /// Time lost at the ends of all attempts, in ms.
    pub lost_ms: u64,
    /// Wall time by category; `null`: nothing was launched.
    pub ledger: Option<LedgerView>,
    #[serde(skip)]
    totals: Option<String>,
    pub outcome: Option<String>,
    /// The operator rolled the run back: the next start resumes there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<RollBack>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptRow {
    pub attempt: u32,
    pub from: Option<String>,
    /// The step it resumed from; 0 for a fresh start.
    pub from_step: Option<Step>,
    pub to_step: Option<Step>,
    /// When its workers started, in ms since 1970.
    pub launched: Option<WallMs>,
    /// How long it ran, or has been running, in ms.
    pub ran_ms: u64,
    pub class: Option<String>,
    pub cause: Option<String>,
    /// Time its end cost, in ms: training after its last save, which is repeated, and the pause to the next launch
    /// without the operator's time.
    pub lost_ms: Option<u64>,
    /// Recovery time before it.
    pub comeback: Option<ComebackView>,
    /// Who rolled the run back to the step it resumed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_back_by: Option<String>,
}

/// How each attempt came about, collected while reading a journal.
#[derive(Debug, Default)]
pub struct AttemptOrigins {
    by: BTreeMap<AttemptNo, RecoveryTime>,
    /// A requested rollback that no launch has carried out yet.
    roll_back: Option<RollBack>,
    /// Attempts that carried out a rollback, with who requested it.
    sent_back: BTreeMap<AttemptNo, String>,
}

impl AttemptOrigins {
    /// Notes the state and the ledger after each record.
    pub fn note(&mut self, state: &RunState, ledger: &TimeLedger) {
        let before = std::mem::replace(&mut self.roll_back, state.requests.roll_back.clone());
        if let Some(wish) = before.filter(|_| self.roll_back.is_none()) {
            self.sent_back.insert(state.attempts, wish.by);
        }
        let way = ledger.comeback();
        if way.attempt > AttemptNo(0) && self.by.get(&way.attempt).is_none_or(|known| known != way) {
            self.by.insert(way.attempt, way.clone());
        }
    }

    fn of(&self, attempt: u32) -> Option<&RecoveryTime> {
        self.by.get(&AttemptNo(attempt))
    }
}

impl HistoryView {
    /// Builds the history; `until`: end of the ledger if the run is running; `hangs`: it makes no progress.
    #[must_use]
    pub fn of(
        view: &ExplainView,
        ways: &AttemptOrigins,
        ledger: &TimeLedger,
        spec: Option<&RunSpec>,
        until: Option<WallMs>,
        hangs: bool,
    ) -> Self {
        let stories: Vec<&AttemptStory> = view.attempts.iter().filter(|s| s.attempt > 0).collect();
        let next = stories.iter().skip(1).map(Some).chain([None]);
        let attempts: Vec<AttemptRow> = stories
            .iter()
            .zip(next)
            .map(|(s, next)| past(s, next.copied(), ways))
            .collect();
        Self {
            version: 1,
            run: view.run.clone(),
            lost_ms: attempts.iter().filter_map(|a| a.lost_ms).sum(),
            attempts,
            ledger: LedgerView::of(ledger, spec, until, hangs),
            totals: totals(&until.map_or_else(|| ledger.parts(), |at| ledger.parts_at(at, hangs))),
            outcome: view.outcome.clone(),
            roll_back: ways.roll_back.clone(),
        }
    }

    /// The history as a table; `columns`: the width of the terminal.
    #[must_use]
    pub fn text(&self, columns: Option<usize>) -> String {
        let step = |s: Option<Step>| s.map_or_else(|| "-".to_owned(), |s| s.to_string());
        let time = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| span(Ms(ms)));
        let rows: Vec<Vec<String>> = self
            .attempts
            .iter()
            .map(|a| {
                let cause = match (&a.class, &a.cause) {
                    (Some(class), Some(cause)) => format!("{class}: {}", one_line(cause, usize::MAX)),
                    (_, cause) => cause
                        .as_ref()
                        .map_or_else(|| "-".to_owned(), |c| one_line(c, usize::MAX)),
                };
                vec![
                    a.attempt.to_string(),
                    a.launched.map_or_else(|| "-".to_owned(), local_stamp),
                    step(a.from_step),
                    step(a.to_step),
                    time(a.launched.map(|_| a.ran_ms)),
                    time(a.lost_ms),
                    cause,
                ]
            })
            .collect();
        let table = TextTable {
            head: &["ATTEMPT", "LAUNCHED", "FROM", "TO", "RAN", "LOST", "CAUSE"],
            rows: &rows,
            ..TextTable::default()
        };
        let mut out = table.text(columns);
        for a in &self.attempts {
            if let Some(by) = &a.sent_back_by {
                let by = shown(by);
                out.push_str(&format!(
                    "attempt {}: {by} sent the run back to step {}\n",
                    a.attempt,
                    step(a.from_step)
                ));
            }
        }
        if let Some(back) = &self.roll_back {
            let by = shown(&back.by);
            out.push_str(&format!("next start: from step {}: {by} sent the run back\n", back.to));
        }
        if self.lost_ms > 0 {
            out.push_str(&format!("lost in all: {}\n", span(Ms(self.lost_ms))));
        }
        if let Some(totals) = &self.totals {
            out.push_str(&format!("{totals}\n"));
        }
        if let Some(words) = &self.outcome {
            out.push_str(&format!("{}\n", shown(words)));
        }
        out
    }
}

fn past(s: &AttemptStory, next: Option<&AttemptStory>, ways: &AttemptOrigins) -> AttemptRow {
    let (class, cause) = match (&s.diagnosis, &s.ended_by_us, s.exits.first()) {
        (Some(d), ..) => (Some(d.class.to_string()), Some(d.text.clone())),
        (None, Some(why), _) => (None, Some(format!("the supervisor ended it ({why})"))),
        (None, None, Some((worker, exit))) => (None, Some(format!("worker {worker} {}", exit.words()))),
        (None, None, None) => (None, None),
    };
    let ran_ms = s.ran().map_or(0, |ran| ran.0);
    AttemptRow {
        attempt: s.attempt,
        from: s.from.as_ref().map(start_point),
        from_step: s.from.as_ref().map(|f| f.step()),
        to_step: s.step,
        launched: s.launched,
        ran_ms,
        class,
        cause,
        lost_ms: next.and_then(|next| lost(s, next, ran_ms, ways)),
        comeback: ways.of(s.attempt).map(ComebackView::of),
        sent_back_by: ways.sent_back.get(&AttemptNo(s.attempt)).cloned(),
    }
}

/// Training that the next attempt repeats, plus the pause between them without the operator's time.
fn lost(s: &AttemptStory, next: &AttemptStory, ran_ms: u64, ways: &AttemptOrigins) -> Option<u64> {
    let launched = next.launched?;
    let pause = u64::try_from(launched.0.saturating_sub(s.ended().0)).unwrap_or_default();
    let people = ways.of(next.attempt).map_or(0, |way| way.person.0);
    let pause = pause.saturating_sub(people);
    let (from, to, again) = (
        s.from.as_ref()?.step().0,
        s.step.map(|s| s.0),
        next.from.as_ref()?.step().0,
    );
    let done = to.map_or(0, |to| to.saturating_sub(from));
    let kept = again.saturating_sub(from).min(done);
    // Without a step of its own, the whole attempt was lost.
    let share = match done {
        0 => ran_ms,
        done => ran_ms / done * (done - kept),
    };
    Some(share.saturating_add(pause))
}
