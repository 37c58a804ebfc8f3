//! The page of a run.

use super::super::checkpoints::{proof_word, resume_words};
use super::super::explain::{ExplainView, StoryBuilder};
use super::super::ledger::{CostView, LedgerView};
use super::super::next::NextView;
use super::super::status::StatusView;
use super::super::terminal::shown;
use super::super::time::span;
use super::super::{bytes, one_line};
use super::acts::{self, SentBack};
use super::attempts::{attempts, started, workers};
use super::picture::RunChart;
use super::progress;
use super::table::{Cell, wide};
use super::{CHARTS, named, page_with, state};
use maud::{Markup, html};
use supervise_core::checkpoint::{CheckpointSummary, Verdict};
use supervise_core::id::Ms;

/// Steps on disk shown, newest first, and how many of them are not folded.
const STEPS: usize = 50;
const FIRST: usize = 8;
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
    let (name, place) = named(s);
    let main = html! {
        h1 { (shown(name)) }
        p.place { (shown(place)) }
        p { (state(s)) }
        @for problem in v.stale.into_iter().chain(s.problem.as_deref()) { p.bad { (shown(problem)) } }
        @if let Some(held) = &s.held { p.odd { (shown(&held.words())) } }
        @if let Some(danger) = &s.danger { p.odd { "Next danger: " (shown(&danger.text)) } }
        nav.sections aria-label="Sections" {
            @for (id, title) in SECTIONS { a href={ "#" (id) } { (title) } }
        }
        (section(0, &overview(v)))
        (section(1, &curves(v)))
        (section(2, &attempts(s, &v.story.attempts)))
        (section(3, &steps(v)))
        (section(4, &output(v)))
        (section(5, &configuration(v)))
        p.soft { "Run " code { (s.run) } ", term " (s.term) @if let Some(t) = &s.trainer { ", " (shown(t)) } ". " (super::zone()) }
    };
    let title = format!("{name}: {}", s.headline());
    page_with(&CHARTS, &title, Some(&format!("/live?run={}", s.run)), &main)
}

const SECTIONS: [(&str, &str); 6] = [
    ("overview", "Overview"),
    ("progress", "Progress"),
    ("attempts", "Attempts"),
    ("checkpoints", "Checkpoints"),
    ("output", "Output"),
    ("configuration", "Configuration"),
];

fn section(n: usize, content: &Markup) -> Markup {
    let (id, title) = SECTIONS[n];
    html! { section id=(id) aria-labelledby={ "h-" (id) } { h2 id={ "h-" (id) } { (title) } (content) } }
}

fn overview(v: &RunView<'_>) -> Markup {
    let s = v.status;
    html! {
        (facts(s))
        @if let Some(o) = &s.outcome { p { (shown(&o.why)) } }
        @for reason in s.because() { p.soft { "because " (one_line(&reason, 600)) } }
        (acts::sent_back(s, v.sent_back))
        @if let Some(key) = v.form_key { (acts::forms(s, key, goes_back(v.steps))) }
        h3 { "What comes next" }
        (next(v))
    }
}

fn facts(v: &StatusView) -> Markup {
    let goodput = v.ledger.as_ref().and_then(|l| l.goodput);
    let gpus = v.ledger.as_ref().and_then(|l| l.devices);
    html! {
        dl {
            div { dt { "Step" } dd { (progress::bar(v)) } }
            div { dt { "Last progress" } dd { (progress::age(v)) } }
            (progress::pace(v))
            div { dt { "Resume point" } dd { @match v.mark { Some(m) => { "step " (m) }, None => "none is proven" } } }
            div { dt { "Restarts" } dd { (v.restarts) } }
            @if let Some(g) = goodput { div { dt { "Goodput" } dd { (format!("{:.1} %", 100.0 * g)) } } }
            @if let Some(n) = gpus { div { dt { "GPUs" } dd { (n) } } }
            @if let Some(at) = v.now.filter(|_| v.outcome.is_some() || !v.lives()) { div { dt { "Last event" } dd { (progress::since_event(v, at)) } } }
        }
    }
}

fn curves(v: &RunView<'_>) -> Markup {
    let picture = v.picture;
    html! {
        @match picture.drawn() {
            None => p.soft { "Nothing was launched yet." },
            Some(drawn) => {
                div #charts data-keep="1" data-runs=(v.status.run) {}
                p.soft { "Dashes: restarts. Shaded: steps that were trained twice." }
                noscript {
                    (drawn)
                    @if let Some(curves) = picture.curves().drawn() { h3 { "What the trainer says" } (curves) }
                }
                @if let Some(tables) = picture.curves().tables() { h3 { "As tables" } (tables) }
            }
        }
        @if let Some(l) = &v.status.ledger { h3 { "Where the time went" } (bar(l)) }
    }
}

fn output(v: &RunView<'_>) -> Markup {
    let newest = v.story.attempts.iter().rev().find(|s| s.attempt > 0);
    html! {
        @match newest {
            None => p.soft { "Nothing was launched yet." },
            Some(s) => p { "Of attempt " (s.attempt) ": " (workers(&v.status.run, s, started(v.status, s.attempt))) },
        }
        @if v.story.attempts.len() > 1 { p.soft { "Earlier attempts have theirs in their own parts above." } }
    }
}

fn configuration(v: &RunView<'_>) -> Markup {
    let run = &v.status.run;
    html! {
        @if let Some(n) = v.next { dl.long { div { dt { "Command" } dd.mono { (shown(&n.command)) } } } }
        p {
            a href={ "/run/" (run) "/config" } { "Every value, and where it came from" }
            @if v.plans { " · " a href={ "/run/" (run) "/plan" } { "Plan with today's files" } }
        }
    }
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
                }
                @for edit in &n.edits { p { "Before it: " (shown(edit)) } }
                @for reason in &n.reasons { p.soft { "because " (shown(reason)) } }
                p.soft { "According to the journal; nothing was checked again." }
            },
        }
        @if !v.status.lives() { p { a href={ "/run/" (run) "/resume" } { "How to start it again" } } }
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
            (None, html! { (proof_word(c)) }),
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
            (wide("Checkpoints", &CHECKPOINTS, all.iter().take(FIRST).map(cells)))
            @if all.len() > FIRST {
                details #older-checkpoints {
                    summary { "Older ones: " (all.len() - FIRST) }
                    (wide("Older checkpoints", &CHECKPOINTS, all.iter().take(STEPS).skip(FIRST).map(cells)))
                    @if more > 0 { p.soft { (more) " more" } }
                }
            }
        }
    }
}
