//! Attempts on the page of a run, each with its timeline.

use super::super::explain::AttemptStory;
use super::super::one_line;
use super::super::record::start_point;
use super::super::terminal::{paragraph, shown};
use super::super::time::{span, stamp};
use maud::{Markup, html};

const SHOWN: usize = 100;
const LINES: usize = 120;

pub(super) fn attempts(run: &str, stories: &[AttemptStory]) -> Markup {
    let launched: Vec<&AttemptStory> = stories.iter().rev().filter(|s| s.attempt > 0).collect();
    let more = launched.len().saturating_sub(SHOWN);
    html! {
        @for (n, story) in launched.iter().take(SHOWN).enumerate() { (one(run, story, n == 0)) }
        @if more > 0 { p.soft { (more) " older attempts: " code { "supervise history " (run) } } }
    }
}

fn one(run: &str, s: &AttemptStory, newest: bool) -> Markup {
    let end = match (&s.diagnosis, &s.ended_by_us, s.exits.first()) {
        (Some(d), ..) => Some(format!("{} [{}]", one_line(&d.text, 200), d.class)),
        (None, Some(why), _) => Some(format!("the supervisor ended it ({})", one_line(why, 200))),
        (None, None, Some((worker, exit))) => Some(format!("worker {worker} {}", exit.words())),
        (None, None, None) => None,
    };
    let workers = s.exits.iter().map(|(w, _)| *w).max().unwrap_or_default();
    let lines = s
        .account
        .as_ref()
        .zip(s.diagnosis.as_ref())
        .map(|(a, d)| a.lines(&d.class));
    let left = s.told.len().saturating_sub(LINES);
    html! {
        details id={ "attempt-" (s.attempt) } open[newest] {
            summary {
                b { "Attempt " (s.attempt) }
                @if let Some(from) = &s.from { ": " (shown(&start_point(from))) }
                @if let Some(at) = s.launched { " at " (stamp(at)) }
                @if let Some(step) = s.step { ", to step " (step) }
                @if let Some(ran) = s.ran() { ", ran " (span(ran)) }
                @if let Some(end) = end { "; " span.bad[s.diagnosis.is_some()] { (end) } }
            }
            @if let Some(lines) = lines { pre { @for line in lines { (line) "\n" } } }
            p {
                "Output: "
                @for worker in 0..=workers.min(31) {
                    a href={ "/run/" (run) "/log?attempt=" (s.attempt) "&worker=" (worker) } { "worker " (worker) } " "
                }
            }
            @if !s.told.is_empty() {
                h3.soft { "What was seen and decided" }
                @if left > 0 { p.soft { (left) " earlier lines: " code { "supervise explain " (run) " --attempt " (s.attempt) } } }
                pre { @for told in s.told.iter().skip(left) { (paragraph(&told.text)) "\n" } }
            }
        }
    }
}
