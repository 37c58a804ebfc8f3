//! The page of all runs.

use super::super::sign::{StatusTone, sign};
use super::super::status::StatusView;
use super::super::terminal::shown;
use super::super::{count, one_line};
use super::progress::{age, bar};
use super::{named, state, whole};
use maud::{Markup, html};
use std::borrow::Borrow;
use std::cmp::Reverse;

/// Runs per page: it must load on a phone.
const PAGE: usize = 100;

/// Which runs are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateFilter {
    #[default]
    All,
    Active,
    Ended,
    Failed,
}

impl StateFilter {
    const EACH: [(Self, &'static str, &'static str); 4] = [
        (Self::All, "", "All"),
        (Self::Active, "active", "Active"),
        (Self::Ended, "ended", "Ended"),
        (Self::Failed, "failed", "In need of attention"),
    ];

    fn word(self) -> &'static str {
        Self::EACH.iter().find(|e| e.0 == self).map_or("", |e| e.1)
    }

    fn has(self, v: &StatusView) -> bool {
        match self {
            Self::All => true,
            Self::Active => v.lives(),
            Self::Ended => !v.lives(),
            Self::Failed => matches!(sign(v).0, StatusTone::Bad),
        }
    }
}

/// The column by which runs are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunColumn {
    Name,
    State,
    Step,
    /// The newest first.
    #[default]
    Progress,
    Goodput,
    Restarts,
    Gpus,
}

impl RunColumn {
    const EACH: [(Self, &'static str, &'static str); 7] = [
        (Self::Name, "name", "Run"),
        (Self::State, "state", "State"),
        (Self::Step, "step", "Step"),
        (Self::Progress, "progress", "Last progress"),
        (Self::Goodput, "goodput", "Goodput"),
        (Self::Restarts, "restarts", "Restarts"),
        (Self::Gpus, "gpus", "GPUs"),
    ];

    fn word(self) -> &'static str {
        Self::EACH.iter().find(|e| e.0 == self).map_or("", |e| e.1)
    }

    fn sort(self, runs: &mut [&StatusView]) {
        match self {
            Self::Name => runs.sort_by_cached_key(|v| named(v).0.to_lowercase()),
            Self::State => runs.sort_by_cached_key(|v| (tone(v), v.headline())),
            Self::Step => runs.sort_by_key(|v| Reverse(v.progress.as_ref().and_then(|p| p.step))),
            Self::Progress => runs.sort_by_key(|v| Reverse(v.now)),
            Self::Goodput => runs.sort_by(|a, b| goodput(b).total_cmp(&goodput(a))),
            Self::Restarts => runs.sort_by_key(|v| Reverse(v.restarts)),
            Self::Gpus => runs.sort_by_key(|v| Reverse(gpus(v))),
        }
    }
}

/// The worst first.
fn tone(v: &StatusView) -> u8 {
    match sign(v).0 {
        StatusTone::Bad => 0,
        StatusTone::Odd => 1,
        StatusTone::Good => 2,
        StatusTone::Calm => 3,
    }
}

fn goodput(v: &StatusView) -> f64 {
    v.ledger.as_ref().and_then(|l| l.goodput).unwrap_or(-1.0)
}

fn gpus(v: &StatusView) -> Option<u32> {
    v.ledger.as_ref().and_then(|l| l.devices)
}

/// The requested part of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Text to find in location, identity, trainer or state of a run; empty: all runs.
    pub query: String,
    pub page: usize,
    pub state: StateFilter,
    pub sort: RunColumn,
    pub reverse: bool,
}

impl ListQuery {
    /// The query of a request; unknown words are as if they were not there.
    #[must_use]
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let state = get("state").and_then(|word| StateFilter::EACH.iter().find(|e| e.1 == word));
        let sort = get("sort").and_then(|word| RunColumn::EACH.iter().find(|e| e.1 == word));
        Self {
            query: get("q").unwrap_or_default().to_owned(),
            page: get("page").and_then(|n| n.parse().ok()).unwrap_or_default(),
            state: state.map(|e| e.0).unwrap_or_default(),
            sort: sort.map(|e| e.0).unwrap_or_default(),
            reverse: get("reverse").is_some(),
        }
    }

    fn is_in(&self, v: &StatusView) -> bool {
        let wanted = self.query.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let texts = [
            v.root.as_deref(),
            v.run_dir.as_deref(),
            v.trainer.as_deref(),
            Some(&v.run),
        ];
        self.state.has(v) && (wanted.is_empty() || texts.into_iter().flatten().any(has) || has(&v.headline()))
    }

    fn link(&self, page: usize, sort: RunColumn, reverse: bool) -> String {
        let safe = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
        let query: String = self
            .query
            .bytes()
            .map(|b| {
                if safe(b) {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02X}")
                }
            })
            .collect();
        let mut link = format!("/?page={page}&q={query}");
        for (name, value, is_default) in [
            ("state", self.state.word(), self.state == StateFilter::All),
            ("sort", sort.word(), sort == RunColumn::Progress),
            ("reverse", "1", !reverse),
        ] {
            if !is_default {
                link.push_str(&format!("&{name}={value}"));
            }
        }
        link
    }

    fn turned(&self, page: usize) -> String {
        self.link(page, self.sort, self.reverse)
    }
}

/// The runs found; `gone`: number of runs whose directories no longer exist.
#[must_use]
pub fn list(views: &[impl Borrow<StatusView>], gone: usize, wanted: &ListQuery) -> String {
    let views: Vec<&StatusView> = views.iter().map(Borrow::borrow).collect();
    let mut found: Vec<&StatusView> = views.iter().copied().filter(|v| wanted.is_in(v)).collect();
    wanted.sort.sort(&mut found);
    if wanted.reverse {
        found.reverse();
    }
    let pages = found.len().div_ceil(PAGE).max(1);
    let page = wanted.page.min(pages - 1);
    let active = views.iter().filter(|v| v.lives()).count();
    let main = html! {
        h1 { "Runs" }
        form.filter method="get" action="/" role="search" {
            label { "Filter " input type="search" name="q" value=(shown(&wanted.query)) maxlength="200"; }
            label { "State " select name="state" {
                @for (state, word, name) in StateFilter::EACH { option value=(word) selected[state == wanted.state] { (name) } }
            } }
            @if wanted.sort != RunColumn::Progress { input type="hidden" name="sort" value=(wanted.sort.word()); }
            button { "Show" }
            span.soft { (found.len()) " of " (count(views.len() as u64, "run")) ", " (active) " active" }
        }
        @if found.is_empty() {
            p { @if views.is_empty() { "No run of this user is known on this machine." } @else { "None of them." } }
        } @else {
            form method="get" action="/curves" { div.wide tabindex="0" role="region" aria-label="Runs" {
                table.stack.runs role="table" {
                    thead role="rowgroup" { tr role="row" { @for (column, _, title) in RunColumn::EACH { (head(wanted, column, title)) } } }
                    tbody role="rowgroup" { @for v in found.iter().skip(page * PAGE).take(PAGE) { (row(v)) } }
                }
            }
            @if found.len() > 1 { p { button { "Compare the curves of marked runs" } } } }
        }
        @if pages > 1 {
            nav aria-label="Pages of the list" { p {
                @if page > 0 { a href=(wanted.turned(page - 1)) rel="prev" { "Previous" } " · " }
                "Page " (page + 1) " of " (pages)
                @if page + 1 < pages { " · " a href=(wanted.turned(page + 1)) rel="next" { "Next" } }
            } }
        }
        @if gone > 0 {
            p.soft { (count(gone as u64, "run")) " not shown: the directories are gone." }
        }
    };
    whole("Runs", Some("/live"), &main)
}

fn head(wanted: &ListQuery, column: RunColumn, title: &str) -> Markup {
    let is_sorted = wanted.sort == column;
    let goes_up = matches!(column, RunColumn::Name | RunColumn::State) != wanted.reverse;
    let direction = if goes_up { "ascending" } else { "descending" };
    html! {
        th scope="col" role="columnheader" aria-sort=[is_sorted.then_some(direction)] {
            a href=(wanted.link(0, column, is_sorted && !wanted.reverse)) { (title) }
            @if is_sorted { span aria-hidden="true" { @if goes_up { " ▲" } @else { " ▼" } } }
        }
    }
}

fn row(v: &StatusView) -> Markup {
    let (name, place) = named(v);
    let why = v.outcome.as_ref().filter(|_| sign(v).0 == StatusTone::Bad);
    html! {
        tr role="row" id={ "run-" (v.run) } {
            td role="cell" {
                label { input type="checkbox" name="run" value=(v.run) aria-label={ "Compare " (shown(name)) }; }
                " " a href={ "/run/" (v.run) } { (shown(name)) }
                div.place { (shown(place)) }
            }
            td role="cell" data-head="State" {
                (state(v))
                @if let Some(o) = why { div.soft { (one_line(&o.why, 120)) } }
                @if let Some(problem) = &v.problem { div.bad { (one_line(problem, 200)) } }
                @if let Some(danger) = &v.danger { div.odd { "Next danger: " (one_line(&danger.text, 120)) } }
            }
            td role="cell" data-head="Step" { (bar(v)) }
            td.name role="cell" data-head="Last progress" { (age(v)) }
            td role="cell" data-head="Goodput" { @if let Some(g) = v.ledger.as_ref().and_then(|l| l.goodput) { (format!("{:.0} %", 100.0 * g)) } }
            td role="cell" data-head="Restarts" { (v.restarts) }
            td role="cell" data-head="GPUs" { @if let Some(n) = gpus(v) { (n) } }
        }
    }
}
