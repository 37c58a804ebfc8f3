//! The table of all runs.

use super::progress::ProgressReport;
use super::status::StatusView;
use super::terminal::shown;

/// One line per run, newest first.
#[must_use]
pub fn table(views: &[StatusView]) -> String {
    let mut newest: Vec<&StatusView> = views.iter().collect();
    newest.sort_by_key(|v| std::cmp::Reverse(v.now));
    let head = ["RUN", "STATE", "PROVEN", "LAST EVENT", "WHERE"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(newest.iter().map(|v| row(v))).collect();
    let width = |n: usize| rows.iter().map(|r| r[n].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |[run, state, step, age, place]: &[String; 5]| {
        let [a, b, c, d] = widths;
        format!("{run:<a$}  {state:<b$}  {step:>c$}  {age:>d$}  {place}\n")
    };
    rows.iter().map(line).collect()
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

fn row(view: &StatusView) -> [String; 5] {
    let of = view.last_step.map(|l| format!("/{l}")).unwrap_or_default();
    let step = view.mark.map_or_else(|| "-".to_owned(), |m| format!("{m}{of}"));
    let age = view.now.and_then(|n| view.age(n.0));
    let place = view.root.as_ref().or(view.run_dir.as_ref());
    [
        view.run.clone(),
        state_word(view),
        step,
        age.map_or_else(|| "-".to_owned(), |age| format!("{age} ago")),
        place.map_or_else(|| "-".to_owned(), |p| shown(p)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::status::RunLiveness;
    use supervise_core::id::{Step, WallMs};
    use supervise_core::journal::record::RunOutcome;
    use supervise_core::state::RunState;

    #[test]
    fn the_newest_comes_first_and_an_end_is_no_death() {
        let view = |run: &str, wall: i64, outcome: Option<RunOutcome>| {
            let mut s = RunState {
                wall: WallMs(wall),
                ..RunState::default()
            };
            s.progress.mark = outcome.as_ref().map(|_| Step(10));
            s.outcome = outcome;
            let mut view = StatusView::of(run, &s, None, RunLiveness::default());
            view.looked = Some(WallMs(100_000));
            view.run_dir = Some("/ckpt".to_owned());
            view
        };
        let older = view("0123456789abcdef", 10_000, None);
        let newer = view("fedcba9876543210", 97_000, Some(RunOutcome::Finished { step: None }));
        assert!(!newer.text().contains("dead"), "{}", newer.text());
        assert_eq!(
            table(&[older, newer]),
            "RUN               STATE        PROVEN  LAST EVENT  WHERE\n\
             fedcba9876543210  finished         10     3 s ago  /ckpt\n\
             0123456789abcdef  not running       -  1m 30s ago  /ckpt\n"
        );
    }
}
