//! The table of all runs.

use super::columns::TextTable;
use super::one_line;
use super::progress::ProgressReport;
use super::status::StatusView;
use super::time::span;
use std::cmp::Reverse;
use supervise_core::id::{Ms, WallMs};

const HEAD: [&str; 10] = [
    "NAME", "RUN", "STATE", "STEP", "PROVEN", "AGE", "RESTARTS", "PROGRESS", "ETA", "WHERE",
];
const NUMBERS: [usize; 6] = [3, 4, 5, 6, 7, 8];
/// RUN, AGE, PROVEN, ETA and RESTARTS.
const SPARE: [usize; 5] = [1, 5, 4, 8, 6];
/// Characters of an identity that are shown.
const SHORT: usize = 8;

/// One line per run, the last begun first: the order stays while runs go on. `columns`: the width of the terminal.
#[must_use]
pub fn table(views: &[StatusView], columns: Option<usize>) -> String {
    let mut views: Vec<&StatusView> = views.iter().collect();
    views.sort_by_key(|v| place_in_list(v));
    let rows: Vec<Vec<String>> = views.iter().map(|v| row(v).to_vec()).collect();
    let table = TextTable {
        head: &HEAD,
        rows: &rows,
        numbers: &NUMBERS,
        spare: &SPARE,
        ends_in_path: true,
    };
    table.text(columns)
}

/// Sorts runs by their first launch, the last one first.
#[must_use]
pub fn place_in_list(view: &StatusView) -> (Reverse<Option<WallMs>>, String) {
    (Reverse(view.began()), view.run.clone())
}

pub(super) fn state_word(view: &StatusView) -> String {
    match &view.outcome {
        Some(o) => o.word.replace('_', " "),
        None if view.supervisor.stopped => "supervisor suspended".to_owned(),
        None if view.progress.as_ref().is_some_and(ProgressReport::is_late) => "no progress".to_owned(),
        None if view.lives() => view.mode.to_owned(),
        None if view.guard.alive => "no supervisor, workers held".to_owned(),
        None => "not running".to_owned(),
    }
}

fn row(view: &StatusView) -> [String; 10] {
    let none = || "-".to_owned();
    let progress = view.progress.as_ref();
    let time = |ms: Option<Ms>| ms.map_or_else(none, |ms| span(Ms::secs(ms.0 / 1000)));
    let lives = view.outcome.is_none();
    let since = progress.and_then(|p| p.since_ms).filter(|_| lives);
    let left = progress.zip(view.looked).and_then(|(p, now)| p.left(now));
    [
        one_line(view.name(), 30),
        view.run.chars().take(SHORT).collect(),
        state_word(view),
        progress.map_or_else(none, ProgressReport::step_cell),
        view.mark.map_or_else(none, |m| m.to_string()),
        view.began().and_then(|at| view.age(at.0)).unwrap_or_else(none),
        view.restarts.to_string(),
        since.map_or_else(none, |_| format!("{} ago", time(since))),
        time(left),
        view.place(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::ledger::LedgerView;
    use crate::render::status::RunLiveness;
    use supervise_core::id::Step;
    use supervise_core::journal::record::RunOutcome;
    use supervise_core::state::RunState;

    #[test]
    fn the_last_begun_comes_first_and_an_end_is_no_death() {
        let view = |run: &str, began: i64, outcome: Option<RunOutcome>| {
            let mut s = RunState {
                wall: WallMs(97_000),
                ..RunState::default()
            };
            s.progress.mark = outcome.as_ref().map(|_| Step(10));
            s.outcome = outcome;
            let mut view = StatusView::of(run, &s, None, RunLiveness::default());
            view.looked = Some(WallMs(100_000));
            view.run_dir = Some("/ckpt".to_owned());
            view.ledger = Some(LedgerView::begun(WallMs(began)));
            view
        };
        let older = view("0123456789abcdef", 10_000, None);
        let newer = view("fedcba9876543210", 40_000, Some(RunOutcome::Finished { step: None }));
        assert!(!newer.text().contains("dead"), "{}", newer.text());
        assert_eq!(
            table(&[older, newer], None),
            "NAME              RUN       STATE        STEP  PROVEN     AGE  RESTARTS  PROGRESS  ETA  WHERE\n\
             fedcba9876543210  fedcba98  finished        -      10      1m         0         -    -  /ckpt\n\
             0123456789abcdef  01234567  not running     -       -  1m 30s         0         -    -  /ckpt\n"
        );
    }
}
