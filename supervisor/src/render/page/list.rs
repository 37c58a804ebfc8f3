//! The page of all runs.

use super::super::one_line;
use super::super::sign::{StatusTone, sign};
use super::super::status::StatusView;
use super::super::terminal::shown;
use super::{state, whole};
use maud::{Markup, html};
use std::borrow::Borrow;

/// Runs per page: it must load on a phone.
const PAGE: usize = 100;

/// The requested part of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Text to find in location, identity, trainer or state of a run; empty: all runs.
    pub query: String,
    pub page: usize,
}

impl ListQuery {
    fn is_in(&self, v: &StatusView) -> bool {
        let wanted = self.query.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let texts = [
            v.root.as_deref(),
            v.run_dir.as_deref(),
            v.trainer.as_deref(),
            Some(&v.run),
        ];
        wanted.is_empty() || texts.into_iter().flatten().any(has) || has(&v.headline())
    }

    fn link(&self, page: usize) -> String {
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
        format!("/?page={page}&q={query}")
    }
}

/// The runs found, newest first; `gone`: number of runs whose directories no longer exist.
#[must_use]
pub fn list(views: &[impl Borrow<StatusView>], gone: usize, wanted: &ListQuery) -> String {
    let views: Vec<&StatusView> = views.iter().map(Borrow::borrow).collect();
    let mut newest: Vec<&StatusView> = views.iter().copied().filter(|v| wanted.is_in(v)).collect();
    newest.sort_by_key(|v| std::cmp::Reverse(v.now));
    let pages = newest.len().div_ceil(PAGE).max(1);
    let page = wanted.page.min(pages - 1);
    let living = views.iter().filter(|v| v.lives()).count();
    let main = html! {
        h1 { "Runs" }
        @if views.len() > PAGE || !wanted.query.is_empty() {
            form method="get" action="/" role="search" {
                label { "Runs with " input name="q" value=(shown(&wanted.query)) maxlength="200"; } " " button { "Show" }
            }
            p { (newest.len()) " of " (super::super::count(views.len() as u64, "run")) ", " (living) " with a living supervisor" }
        }
        @if newest.is_empty() {
            p { @if views.is_empty() { "No run of this user is known on this machine." } @else { "None of them." } }
        }
        ul.runs { @for view in newest.iter().skip(page * PAGE).take(PAGE) { li { (entry(view)) } } }
        @if pages > 1 {
            nav aria-label="Pages of the list" { p {
                @if page > 0 { a href=(wanted.link(page - 1)) rel="prev" { "Newer" } " · " }
                "Page " (page + 1) " of " (pages)
                @if page + 1 < pages { " · " a href=(wanted.link(page + 1)) rel="next" { "Older" } }
            } }
        }
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
        @if let Some(o) = v.outcome.as_ref().filter(|_| sign(v).0 == StatusTone::Bad) { p { (one_line(&o.why, 200)) } }
        (facts(v))
        @if let Some(problem) = &v.problem { p.bad { (shown(problem)) } }
        @if let Some(danger) = &v.danger { p.odd { "Next danger: " (shown(&danger.text)) } }
    }
}

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
