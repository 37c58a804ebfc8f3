//! All runs, one line each, with details of the selected one below.

use super::super::ledger::LedgerView;
use super::super::one_line;
use super::super::progress::ProgressReport;
use super::super::sign::sign;
use super::super::status::StatusView;
use super::super::table::state_word;
use super::super::terminal::shown;
use super::super::time::span;
use super::TopState;
use super::fold::{faint, plain, strong, toned};
use crate::render::columns::{aligned, begin_of, end_of, padded, width as columns_of};
use ratatui::style::Modifier;
use ratatui::text::Line;
use supervise_core::id::Ms;

const ABOUT: usize = 5;
/// Columns needed to show everything.
const WIDE: usize = 120;

pub(super) fn draw(top: &TopState, width: usize, page: usize) -> Vec<Line<'static>> {
    if top.views.is_empty() {
        let words = match top.known {
            true => "no run of this user is known on this machine",
            false => "reading …",
        };
        return vec![Line::default(), Line::from(plain(format!("  {words}")))];
    }
    let wide = width >= WIDE;
    let longest = top.views.iter().map(|v| columns_of(&state_word(v))).max();
    let state = longest.unwrap_or_default().clamp(5, if wide { 28 } else { 16 });
    let cells = |c: &Cells<'_>| {
        let mut out = padded(c.state, state);
        out.push_str(&aligned(c.step, 14));
        out.push_str(&aligned(c.mark, 9));
        out.push_str(&aligned(c.age, 10));
        out.push_str(&aligned(c.left, 9));
        if !wide {
            return out.clone() + "  " + &begin_of(c.name, width.saturating_sub(columns_of(&out) + 6));
        }
        out.push_str(&aligned(c.goodput, 9));
        out.push_str(&aligned(c.attempts, 10));
        out.push_str(&format!("  {}  {}", padded(c.run, 16), padded(c.name, 24)));
        let left = width.saturating_sub(columns_of(&out) + 6);
        out + "  " + &end_of(c.place, left)
    };
    let head = cells(&Cells {
        state: "STATE",
        step: "STEP",
        mark: "PROVEN",
        age: "PROGRESS",
        left: "ETA",
        goodput: "GOODPUT",
        attempts: "ATTEMPTS",
        run: "RUN",
        name: "NAME",
        place: "WHERE",
    });
    let mut out = vec![Line::from(faint(format!("    {head}")))];
    let rows = page.saturating_sub(1 + ABOUT).max(1);
    let chosen = top.views.iter().position(|v| Some(&v.run) == top.chosen.as_ref());
    // The selected run stays on screen, in the middle if not all runs fit.
    let most = top.views.len().saturating_sub(rows);
    let from = chosen.unwrap_or_default().saturating_sub(rows / 2).min(most);
    for (n, view) in top.views.iter().enumerate().skip(from).take(rows) {
        let is_chosen = Some(n) == chosen;
        let (tone, mark) = sign(view);
        let row = RunRow::of(view);
        let mut line = Line::from(vec![
            plain(if is_chosen { "> " } else { "  " }),
            toned(mark, tone),
            plain(format!(" {}", cells(&row.cells(view)))),
        ]);
        if is_chosen {
            line = line.patch_style(Modifier::BOLD);
        }
        out.push(line);
    }
    if let Some(view) = top.view() {
        out.resize(page.saturating_sub(ABOUT), Line::default());
        out.extend(about(view, width, top.curves));
    }
    out
}

struct Cells<'a> {
    state: &'a str,
    step: &'a str,
    mark: &'a str,
    age: &'a str,
    left: &'a str,
    goodput: &'a str,
    attempts: &'a str,
    run: &'a str,
    name: &'a str,
    place: &'a str,
}

struct RunRow {
    state: String,
    step: String,
    mark: String,
    age: String,
    left: String,
    goodput: String,
    attempts: String,
    name: String,
    place: String,
}

impl RunRow {
    fn of(v: &StatusView) -> Self {
        let none = || "-".to_owned();
        let progress = v.progress.as_ref();
        let left = progress.zip(v.looked).and_then(|(p, now)| p.left(now));
        Self {
            state: state_word(v),
            step: progress.map_or_else(none, ProgressReport::step_cell),
            mark: v.mark.map_or_else(none, |m| m.to_string()),
            age: v.last_progress.and_then(|at| v.age(at.0)).unwrap_or_else(none),
            left: left.map_or_else(none, |ms| span(Ms::secs(ms.0 / 1000))),
            goodput: v.ledger.as_ref().map_or_else(none, LedgerView::goodput_cell),
            attempts: v.attempts.to_string(),
            name: one_line(v.name(), 24),
            place: v.place(),
        }
    }

    fn cells<'a>(&'a self, v: &'a StatusView) -> Cells<'a> {
        Cells {
            state: &self.state,
            step: &self.step,
            mark: &self.mark,
            age: &self.age,
            left: &self.left,
            goodput: &self.goodput,
            attempts: &self.attempts,
            run: &v.run,
            name: &self.name,
            place: &self.place,
        }
    }
}

/// Details of one run: name, state, and what needs a look.
fn about(v: &StatusView, width: usize, curves: bool) -> Vec<Line<'static>> {
    let (tone, mark) = sign(v);
    let place = format!("{}  {}", shown(v.name()), v.place());
    let mut out = vec![
        Line::from(faint("─".repeat(width))),
        Line::from(strong(end_of(&place, width))),
        Line::from(toned(
            begin_of(&format!("{mark} {}", shown(&v.headline())), width),
            tone,
        )),
    ];
    let curve = v.trends.first().filter(|_| curves);
    let more = [
        v.problem.as_ref().map(|p| format!("problem: {p}")),
        v.held.as_ref().map(supervise_core::state::RunHold::words),
        v.outcome.as_ref().map(|o| o.why.clone()),
        v.reasons.first().map(|r| format!("because {}", r.text)),
        v.danger.as_ref().map(|d| format!("next danger: {}", d.text)),
        curve.and_then(|c| Some(format!("{} {}", c.name, c.words()?))),
    ];
    let lines = more
        .into_iter()
        .flatten()
        .map(|text| begin_of(&one_line(&text, 600), width));
    out.extend(lines.map(|text| Line::from(plain(text))));
    out.truncate(ABOUT);
    out.resize(ABOUT, Line::default());
    out
}
