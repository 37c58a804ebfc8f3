//! The page of all runs.

use super::super::status::StatusView;
use super::super::terminal::shown;
use super::{state, whole};
use maud::{Markup, html};

/// Every run that was found, newest first; `gone`: runs whose directories are gone.
#[must_use]
pub fn list(views: &[StatusView], gone: usize) -> String {
    let mut newest: Vec<&StatusView> = views.iter().collect();
    newest.sort_by_key(|v| std::cmp::Reverse(v.now));
    let main = html! {
        h1 { "Runs" }
        @if newest.is_empty() {
            p { "No run of this user is known on this machine." }
        }
        ul.runs { @for view in newest { li { (entry(view)) } } }
        @if gone > 0 {
            p.soft { (super::super::count(gone as u64, "run")) " not shown: the directories are gone." }
        }
    };
    whole("Runs", Some("/live"), &main)
}

fn entry(v: &StatusView) -> Markup {
    let place = v.root.as_ref().or(v.run_dir.as_ref()).unwrap_or(&v.run);
    html! {
        h2 { a href={ "/run/" (v.run) } { (shown(place)) } }
        p { (state(v)) }
        (facts(v))
        @if let Some(problem) = &v.problem { p.bad { (shown(problem)) } }
        @if let Some(danger) = &v.danger { p.odd { "Next danger: " (shown(&danger.text)) } }
    }
}

/// The figures that are asked for first.
pub(super) fn facts(v: &StatusView) -> Markup {
    let of = v.last_step.map(|l| format!(" of {l}")).unwrap_or_default();
    let step = v.attempt.as_ref().and_then(|a| a.step);
    let goodput = v.ledger.as_ref().and_then(|l| l.goodput);
    html! {
        dl {
            div { dt { "Step" } dd { @match step { Some(s) => { (s) (of) }, None => "–" } } }
            div { dt { "Resume point" } dd { @match v.mark { Some(m) => { "step " (m) }, None => "none is proven" } } }
            @if let Some(age) = v.last_progress.and_then(|at| v.age(at.0)) {
                div { dt { "Last progress" } dd { (age) " ago" } }
            }
            @if let Some(age) = v.now.and_then(|at| v.age(at.0)) {
                div { dt { "Last event" } dd { (age) " ago" } }
            }
            div { dt { "Attempts" } dd { (v.attempts) } }
            @if let Some(g) = goodput { div { dt { "Goodput" } dd { (format!("{:.1} %", 100.0 * g)) } } }
        }
    }
}
