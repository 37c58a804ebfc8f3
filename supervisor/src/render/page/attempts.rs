//! Attempts on the page of a run, each with its timeline.

use super::super::explain::{AttemptStory, TimelineLine};
use super::super::record::start_point;
use super::super::status::StatusView;
use super::super::terminal::shown;
use super::super::time::span;
use super::super::{count, one_line};
use super::when;
use maud::{Markup, html};

const SHOWN: usize = 100;
const LINES: usize = 120;

pub(super) fn attempts(s: &StatusView, stories: &[AttemptStory]) -> Markup {
    let launched: Vec<&AttemptStory> = stories.iter().rev().filter(|s| s.attempt > 0).collect();
    let more = launched.len().saturating_sub(SHOWN);
    html! {
        @if launched.is_empty() { p.soft { "Nothing was launched yet." } }
        @for (n, story) in launched.iter().take(SHOWN).enumerate() { (one(s, story, n == 0)) }
        @if more > 0 { p.soft { (more) " older attempts: " code { "supervise history " (s.run) } } }
    }
}

fn one(status: &StatusView, s: &AttemptStory, newest: bool) -> Markup {
    let run = &status.run;
    let end = match (&s.diagnosis, &s.ended_by_us, s.exits.first()) {
        (Some(d), ..) => Some(format!("{} [{}]", one_line(&d.text, 200), d.class)),
        (None, Some(why), _) => Some(format!("the supervisor ended it ({})", one_line(why, 200))),
        (None, None, Some((worker, exit))) => Some(format!("worker {worker} {}", exit.words())),
        (None, None, None) => None,
    };
    let lines = s
        .account
        .as_ref()
        .zip(s.diagnosis.as_ref())
        .map(|(a, d)| a.lines(&d.class, None));
    html! {
        details.card id={ "attempt-" (s.attempt) } open[newest] {
            summary {
                b { "Attempt " (s.attempt) }
                @if let Some(from) = &s.from { ": " (shown(&start_point(from))) }
                @if let Some(at) = s.launched { " at " (when(at)) }
                @if let Some(step) = s.step { ", to step " (step) }
                @if let Some(ran) = s.ran() { ", ran " (span(ran)) }
                @if let Some(end) = end { "; " span.bad[s.diagnosis.is_some()] { (end) } }
            }
            @if let Some(lines) = lines { pre tabindex="0" { @for line in lines { (line) "\n" } } }
            p { "Output: " (workers(run, s, started(status, s.attempt))) }
            (timeline(run, s))
        }
    }
}

/// Number of workers of an attempt that runs.
pub(super) fn started(s: &StatusView, attempt: u32) -> usize {
    let current = s.attempt.as_ref().filter(|a| a.no == attempt);
    current.map_or(0, |a| a.workers.len())
}

/// Links to the output of the workers of an attempt, of which so many are known to be started.
pub(super) fn workers(run: &str, s: &AttemptStory, started: usize) -> Markup {
    let last = s.exits.iter().map(|(w, _)| *w as usize).max().unwrap_or_default();
    html! {
        @for worker in 0..=last.max(started.saturating_sub(1)).min(31) {
            a href={ "/run/" (run) "/log?attempt=" (s.attempt) "&worker=" (worker) } { "worker " (worker) } " "
        }
    }
}

/// What was seen and decided; steps that were proven or deleted as planned are folded.
fn timeline(run: &str, s: &AttemptStory) -> Markup {
    let (routine, odd): (Vec<&TimelineLine>, Vec<&TimelineLine>) = s.told.iter().partition(|t| t.routine);
    let left_of_odd = odd.len().saturating_sub(LINES);
    html! {
        @if !odd.is_empty() {
            h3.soft { "What was seen and decided" }
            @if left_of_odd > 0 { p.soft { (left_of_odd) " earlier lines: " code { "supervise explain " (run) " --attempt " (s.attempt) } } }
            (told(odd.into_iter().skip(left_of_odd)))
        }
        @if !routine.is_empty() {
            details id={ "routine-" (s.attempt) } {
                summary { "Steps proven and deleted: " (count(routine.len() as u64, "line")) }
                (told(routine.iter().copied().skip(routine.len().saturating_sub(LINES))))
                @if routine.len() > LINES { p.soft { "All of them: " code { "supervise explain " (run) " --attempt " (s.attempt) } } }
            }
        }
    }
}

fn told<'a>(lines: impl Iterator<Item = &'a TimelineLine>) -> Markup {
    html! {
        ol.told {
            @for line in lines {
                li { (when(line.at)) " " span { (line.words()) } }
            }
        }
    }
}
