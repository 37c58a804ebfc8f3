//! The curves of several runs over each other.

use super::super::terminal::shown;
use super::{CHARTS, page_with};
use maud::html;

/// The page with the curves of several runs: their identities and names.
#[must_use]
pub fn compare(runs: &[(String, String)]) -> String {
    let ids: Vec<&str> = runs.iter().map(|(id, _)| id.as_str()).collect();
    let main = html! {
        h1 { "Curves of " (super::super::count(runs.len() as u64, "run")) }
        @if runs.is_empty() { p { "Mark runs in the " a href="/" { "list" } ", then choose Compare." } }
        ul.key { @for (id, name) in runs { li { a href={ "/run/" (id) } { (shown(name)) } } } }
        div #charts data-keep="1" data-runs=(ids.join(" ")) {}
        noscript { p { "Without scripts, the page of each run has its curves, and tables of them." } }
    };
    page_with(&CHARTS, "Curves", Some("/live"), &main)
}
