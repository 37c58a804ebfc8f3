//! The output of a worker: its end, the lines that contain a text, or those around a line.

use super::super::terminal::{as_printed, shown};
use super::whole;
use maud::{Markup, html};

/// Workers and attempts with a link each.
const LINKS: usize = 64;

/// A line, and its offset in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractLine {
    pub at: u64,
    pub text: String,
}

/// A part of an output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogExtract {
    pub lines: Vec<ExtractLine>,
    /// The range they come from.
    pub about: String,
    /// Offset behind the last line.
    pub end: u64,
    /// Length of the file, in bytes.
    pub length: u64,
    /// Workers and attempts that have an output.
    pub workers: Vec<u32>,
    pub attempts: Vec<u32>,
}

/// Content of the page of a worker's output.
#[derive(Debug)]
pub struct LogView<'a> {
    pub run: &'a str,
    pub name: &'a str,
    pub attempt: u32,
    pub worker: u32,
    /// The text to find; empty: none.
    pub query: &'a str,
    /// Offset of the line to show.
    pub at: Option<u64>,
    pub extract: &'a LogExtract,
}

impl LogView<'_> {
    fn link(&self, attempt: u32, worker: u32) -> String {
        format!("/run/{}/log?attempt={attempt}&worker={worker}", self.run)
    }

    fn is_end(&self) -> bool {
        self.query.is_empty() && self.at.is_none()
    }
}

/// The page of a worker's output.
#[must_use]
pub fn log(v: &LogView<'_>) -> String {
    let what = format!("Attempt {}, worker {}", v.attempt, v.worker);
    let main = html! {
        h1 { "Output of " (shown(v.name)) }
        p { a href={ "/run/" (v.run) "#output" } { "The run" } }
        (tabs("Attempts", "Attempt", v.attempt, &v.extract.attempts, |n| v.link(n, 0)))
        (tabs("Workers", "Worker", v.worker, &v.extract.workers, |n| v.link(v.attempt, n)))
        form.filter method="get" role="search" {
            input type="hidden" name="attempt" value=(v.attempt);
            input type="hidden" name="worker" value=(v.worker);
            label { "Lines with " input type="search" name="q" value=(shown(v.query)) maxlength="200"; }
            button { "Search" }
            @if v.is_end() { label { input #follow type="checkbox" checked; " Follow" } }
            @else { a href=(v.link(v.attempt, v.worker)) { "The end" } }
            a href={ "/run/" (v.run) "/log/download?attempt=" (v.attempt) "&worker=" (v.worker) } { "Download" }
        }
        p.soft { (what) ": " (shown(&v.extract.about)) }
        @if v.extract.lines.is_empty() { p { "No line." } }
        @else { (turn(v)) (lines(v)) }
    };
    let live = v
        .is_end()
        .then(|| format!("/live?run={}&attempt={}&worker={}", v.run, v.attempt, v.worker));
    whole(&format!("{}: {what}", v.name), live.as_deref(), &main)
}

fn tabs(name: &str, each: &str, current: u32, all: &[u32], link: impl Fn(u32) -> String) -> Markup {
    html! {
        @if all.len() > 1 {
            nav.tabs aria-label=(name) {
                @for n in all.iter().rev().take(LINKS).rev() {
                    a href=(link(*n)) aria-current=[(*n == current).then_some("page")] { (each) " " (n) }
                }
            }
        }
    }
}

/// Links to the parts before and after.
fn turn(v: &LogView<'_>) -> Markup {
    let first = v.extract.lines.first().map_or(0, |line| line.at);
    let here = v.link(v.attempt, v.worker);
    html! {
        @if v.query.is_empty() && (first > 0 || v.extract.end < v.extract.length) {
            p {
                @if first > 0 { a href={ (here) "&at=" (first.saturating_sub(48 << 10)) } rel="prev" { "Earlier" } " " }
                @if v.extract.end < v.extract.length { a href={ (here) "&at=" (v.extract.end) } rel="next" { "Later" } }
            }
        }
    }
}

fn lines(v: &LogView<'_>) -> Markup {
    let here = v.link(v.attempt, v.worker);
    html! {
        pre #log tabindex="0" aria-label="Output" {
            @for line in &v.extract.lines {
                @let is_it = v.at == Some(line.at);
                div.it[is_it] id={ "b" (line.at) } {
                    a href={ (here) "&at=" (line.at) "#b" (line.at) } tabindex="-1" aria-label={ "Link to the line at byte " (line.at) } { "#" }
                    (shown(&as_printed(&line.text))) "\n"
                }
            }
        }
    }
}
