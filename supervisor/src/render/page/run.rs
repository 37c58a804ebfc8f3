//! The page of a run.

use super::super::checkpoints::resume_words;
use super::super::explain::{ExplainView, StoryBuilder};
use super::super::ledger::{CostView, LedgerView};
use super::super::next::NextView;
use super::super::status::StatusView;
use super::super::terminal::shown;
use super::super::time::span;
use super::super::{bytes, one_line};
use super::acts::{self, SentBack};
use super::attempts::attempts;
use super::list::facts;
use super::picture::RunChart;
use super::table::{Cell, wide};
use super::{state, whole};
use maud::{Markup, html};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::id::Ms;

/// Steps on disk shown, newest first.
const STEPS: usize = 50;
const BAR: f64 = 900.0;

/// Content of a run's page.
#[derive(Debug)]
pub struct RunView<'a> {
    pub status: &'a StatusView,
    pub story: &'a ExplainView,
    pub picture: &'a RunChart,
    pub steps: &'a [CheckpointSummary],
    pub next: Option<&'a NextView>,
    /// The user may request a plan.
    pub plans: bool,
    /// Why the page may be older than the run.
    pub stale: Option<&'a str>,
    /// A requested rollback that is not in the journal.
    pub sent_back: Option<&'a SentBack>,
    /// Key of the action forms; `None`: read-only.
    pub form_key: Option<&'a str>,
}

impl RunView<'_> {
    /// An empty timeline.
    #[must_use]
    pub fn blank(run: &str) -> (ExplainView, RunChart) {
        (StoryBuilder::default().finish(run, None), RunChart::default())
    }
}

/// The page of a run.
#[must_use]
pub fn run(v: &RunView<'_>) -> String {
    let s = v.status;
    let name = s.root.as_ref().or(s.run_dir.as_ref()).unwrap_or(&s.run);
    let main = html! {
        h1 { (shown(name)) }
        p { (state(s)) }
        @for problem in v.stale.into_iter().chain(s.problem.as_deref()) { p.bad { (shown(problem)) } }
        @if let Some(held) = &s.held { p.odd { (shown(&held.words())) } }
        @if let Some(danger) = &s.danger { p.odd { "Next danger: " (shown(&danger.text)) } }
        @if let Some(o) = &s.outcome { p { (shown(&o.why)) } }
        (facts(s))
        (acts::sent_back(s, v.sent_back))
        @if let Some(key) = v.form_key { (acts::forms(s, key, goes_back(v.steps))) }
        @for reason in s.because() { p.soft { "because " (one_line(&reason.text, 600)) } }
        @if let Some(picture) = v.picture.drawn() { section aria-labelledby="h-picture" { h2 #h-picture { "Progress" } (picture) } }
        @if let Some(curves) = v.picture.curves() { section aria-labelledby="h-curves" { h2 #h-curves { "What the trainer says" } (curves) } }
        @if let Some(l) = &s.ledger { section aria-labelledby="h-time" { h2 #h-time { "Where the time went" } (bar(l)) } }
        section aria-labelledby="h-next" { h2 #h-next { "What comes next" } (next(v)) }
        section aria-labelledby="h-attempts" { h2 #h-attempts { "Attempts" } (attempts(&s.run, &v.story.attempts)) }
        section aria-labelledby="h-steps" { h2 #h-steps { "Checkpoints" } (steps(v)) }
        p.soft { "Run " code { (s.run) } ", term " (s.term) @if let Some(t) = &s.trainer { ", " (shown(t)) } ". Times with a Z are UTC." }
    };
    whole(name, Some(&format!("/live?run={}", s.run)), &main)
}

fn is_whole(c: &CheckpointSummary) -> bool {
    c.verdict == Verdict::Whole && !c.husk
}

fn goes_back(steps: &[CheckpointSummary]) -> bool {
    steps.iter().any(is_whole)
}

fn bar(l: &LedgerView) -> Markup {
    const ORDER: [&str; 10] = [
        "productive",
        "repeated",
        "saving",
        "noticing",
        "ending",
        "proving",
        "launching",
        "waiting",
        "stopped",
        "unknown",
    ];
    let waits = Ms(l.waiting_ms.values().map(|ms| ms.0).sum());
    let of = |part: &str| {
        if part == "waiting" {
            waits
        } else {
            l.parts_ms.get(part).copied().unwrap_or_default()
        }
    };
    let parts: Vec<(usize, &str, Ms)> = ORDER
        .iter()
        .enumerate()
        .map(|(n, p)| (n, *p, of(p)))
        .filter(|(.., ms)| ms.0 > 0)
        .collect();
    let whole = l.whole_ms.0.max(1) as f64;
    let mut x = 0.0;
    let mut rects = Vec::new();
    for (n, part, ms) in &parts {
        let width = BAR * ms.0 as f64 / whole;
        rects.push((*n, *part, x, width));
        x += width;
    }
    let share = |ms: &Ms| format!("{:.1} %", 100.0 * ms.0 as f64 / whole);
    html! {
        @if let Some(words) = l.brief() { p { "Goodput " (words) } }
        svg viewBox={ "0 0 " (BAR) " 26" } role="img" aria-label="Wall time by part; the list below says the same" {
            @for (n, part, x, width) in rects {
                rect class={ "p" (n) } x=(format!("{x:.1}")) y="0" width=(format!("{width:.1}")) height="26" { title { (part) } }
            }
        }
        ul.key {
            @for (n, part, ms) in &parts {
                li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class={ "p" (n) } width="10" height="10" {} } " " (part) " " (span(*ms)) " (" (share(ms)) ")" }
            }
        }
        @if !l.costs.is_empty() {
            (wide("What each class of failures cost", &COSTS, l.costs.iter().map(cost)))
        }
    }
}

const COSTS: [&str; 5] = ["Failure", "Ends", "Steps lost", "Time lost", "GPU hours"];

fn cost(c: &CostView) -> Vec<Cell> {
    let hours = c.gpu_hours.map(|h| format!("{h:.2}"));
    vec![
        (Some("mono name"), html! { (one_line(&c.class, 100)) }),
        (None, html! { (c.ends) }),
        (None, html! { (c.lost_steps) }),
        (None, html! { (span(c.lost_ms)) }),
        (None, html! { (hours.unwrap_or_default()) }),
    ]
}

fn next(v: &RunView<'_>) -> Markup {
    let run = &v.status.run;
    html! {
        @match v.next {
            None => p.soft { "It cannot be told: its journal was not read." },
            Some(n) => {
                dl.long {
                    div { dt { "The next launch" } dd { (shown(&n.would)) } }
                    @if v.status.outcome.is_none() { div { dt { "At a failure" } dd { (shown(&n.failure)) } } }
                    @if !n.lost.is_empty() { div { dt { "It would not bring back" } dd { (n.lost.join(", ")) } } }
                    div { dt { "Command" } dd.mono { (shown(&n.command)) } }
                }
                @for edit in &n.edits { p { "Before it: " (shown(edit)) } }
                @for reason in &n.reasons { p.soft { "because " (shown(reason)) } }
                p.soft { "As the journal tells; nothing was looked at anew." }
            },
        }
        p {
            a href={ "/run/" (run) "/config" } { "Configuration, with where each value came from" }
            @if v.plans { " · " a href={ "/run/" (run) "/plan" } { "Plan with today's files" } }
            @if !v.status.lives() { " · " a href={ "/run/" (run) "/resume" } { "How to start it again" } }
        }
    }
}

const CHECKPOINTS: [&str; 7] = [
    "Step",
    "Verdict",
    "Is it needed?",
    "A resume from it",
    "Proven",
    "Size",
    "Findings",
];

fn steps(v: &RunView<'_>) -> Markup {
    let (all, next, run) = (v.steps, v.next, &v.status.run);
    let acts = v.form_key.is_some() && !v.status.lives();
    let more = all.len().saturating_sub(STEPS);
    let cells = |c: &CheckpointSummary| {
        let verdict = c.verdict.word();
        let resume = html! {
            (shown(&resume_words(&c.resume)))
            @if acts && is_whole(c) { " " a href={ "/run/" (run) "/rollback?to=" (c.step) } { "Go back to step " (c.step) } }
        };
        vec![
            (None, html! { (c.step) }),
            (
                Some(if verdict == "whole" { "good" } else { "bad" }),
                html! { (verdict) },
            ),
            (
                Some("words"),
                html! { @if let Some(next) = next { (next.needs(c, all)) } },
            ),
            (Some("words"), resume),
            (None, html! { (c.proven.map_or("no", Depth::word)) }),
            (Some("name"), html! { (bytes(c.bytes)) }),
            (
                None,
                html! { @if let Some(f) = c.findings.first() { (one_line(&f.detail, 200)) } },
            ),
        ]
    };
    html! {
        @if all.is_empty() { p.soft { "No step was found at the last look." } }
        @else {
            (wide("Checkpoints", &CHECKPOINTS, all.iter().take(STEPS).map(cells)))
            @if more > 0 { p.soft { (more) " more" } }
        }
    }
}
