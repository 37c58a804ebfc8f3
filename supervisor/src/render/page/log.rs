//! The end of a worker's output.

use super::super::terminal::shown;
use super::whole;
use maud::html;

/// The end of a worker's output, or the lines that contain a text.
#[derive(Debug)]
pub struct LogView<'a> {
    pub run: &'a str,
    pub attempt: u32,
    pub worker: u32,
    /// The text to find; empty: none.
    pub query: &'a str,
    pub lines: &'a [String],
    /// The file they come from.
    pub about: &'a str,
}

/// The page of a worker's output.
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
