//! The end of a worker's output.

use super::super::terminal::shown;
use super::whole;
use maud::html;

/// The end of a worker's output, or the lines of it that hold a text.
#[derive(Debug)]
pub struct LogView<'a> {
    /// The run.
    pub run: &'a str,
    /// The attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: u32,
    /// The text that is looked for; empty: none.
    pub query: &'a str,
    /// Lines, oldest first.
    pub lines: &'a [String],
    /// Place from which they were read.
    pub about: &'a str,
}

/// The page.
#[must_use]
pub fn log(v: &LogView<'_>) -> String {
    let title = format!("Attempt {}, worker {}", v.attempt, v.worker);
    let main = html! {
        h1 { (title) }
        p { a href={ "/run/" (v.run) } { "The run" } }
        form method="get" role="search" {
            input type="hidden" name="attempt" value=(v.attempt);
            input type="hidden" name="worker" value=(v.worker);
            label { "Lines with " input name="q" value=(shown(v.query)) maxlength="200"; }
            " " button { "Search" }
        }
        p.soft { (shown(v.about)) }
        @if v.lines.is_empty() { p { "No line." } } @else { pre { @for line in v.lines { (shown(line)) "\n" } } }
    };
    whole(&title, None, &main)
}
