//! The progress of a run: its step, and the time since it last moved.

use super::super::progress::ProgressReport;
use super::super::status::StatusView;
use super::super::time::span;
use super::when;
use maud::{Markup, html};
use supervise_core::id::{Ms, WallMs};

/// The step, with a bar if the last one is known.
pub(super) fn bar(v: &StatusView) -> Markup {
    let steps = v.progress.as_ref().map(|p| (p.step, p.planned));
    html! {
        @match steps {
            Some((Some(step), Some(last))) => {
                span.name { (step) " of " (last) }
                progress value=(step.min(last)) max=(last.max(1)) aria-label={ "Step " (step) " of " (last) } {}
            }
            Some((Some(step), None)) => { (step) }
            _ => { "–" }
        }
    }
}

/// The time since the run last made progress, or since its last event if nothing runs; the script counts on.
pub(super) fn age(v: &StatusView) -> Markup {
    let since = v.progress.as_ref().and_then(|p| p.since_ms);
    html! {
        @match (since, v.now) {
            (Some(since), _) => span.bad[v.progress.as_ref().is_some_and(ProgressReport::is_late)] { (ago(since)) },
            (None, Some(at)) => span.soft { (since_event(v, at)) },
            (None, None) => {},
        }
    }
}

/// The time since an event.
pub(super) fn since_event(v: &StatusView, at: WallMs) -> Markup {
    let ms = v
        .looked
        .map(|now| u64::try_from(now.0.saturating_sub(at.0)).unwrap_or_default());
    html! { @if let Some(ms) = ms { (ago(Ms(ms))) } }
}

fn ago(since: Ms) -> Markup {
    html! { span data-age=(since.0) { (span(since)) } " ago" }
}

/// What a step usually takes, and when the last one is reached, as parts of a list.
pub(super) fn pace(v: &StatusView) -> Markup {
    let report = v.progress.as_ref();
    html! {
        @if let Some(ms) = report.and_then(|p| p.step_ms) { div { dt { "A step" } dd { "usually " (span(ms)) } } }
        @if let Some(at) = report.and_then(|p| p.eta) { div { dt { "Expected end" } dd { (when(at)) } } }
    }
}
