//! The progress of a run: its step, and the time since it last moved.

use super::super::status::StatusView;
use super::super::time::span;
use maud::{Markup, html};
use supervise_core::id::{Ms, WallMs};

/// The step, with a bar if the last one is known.
pub(super) fn bar(v: &StatusView) -> Markup {
    let step = v.attempt.as_ref().and_then(|a| a.step);
    html! {
        @match (step, v.last_step) {
            (Some(step), Some(last)) => {
                span.name { (step) " of " (last) }
                progress value=(step.min(last)) max=(last.max(1)) aria-label={ "Step " (step) " of " (last) } {}
            }
            (Some(step), None) => { (step) }
            (None, _) => { "–" }
        }
    }
}

/// The time since the run last made progress, or since its last event if nothing runs; the script counts on.
pub(super) fn age(v: &StatusView) -> Markup {
    html! {
        @match (v.last_progress, v.now) {
            (Some(at), _) => { (ago(v, at)) }
            (None, Some(at)) => span.soft { (ago(v, at)) },
            (None, None) => {},
        }
    }
}

/// The time since a moment.
pub(super) fn ago(v: &StatusView, at: WallMs) -> Markup {
    let ms = v
        .looked
        .map(|now| u64::try_from(now.0.saturating_sub(at.0)).unwrap_or_default());
    html! { @if let Some(ms) = ms { span data-age=(ms) { (span(Ms(ms))) } " ago" } }
}
