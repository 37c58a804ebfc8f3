//! The command that starts a run again, for the operator: a server has neither the run's environment nor usually its machine.

use super::configuration::started;
use super::site::{SiteState, unknown};
use crate::render::page::{self, ResumePage};
use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Response};
use supervise_host::process::host_name;

pub(super) async fn resume(State(site): SiteState, Path(id): Path<String>) -> Response {
    let Some(status) = site.runs.one(&id).await else {
        return unknown();
    };
    let started = match status.lives() {
        true => Err(String::new()),
        false => started(&site, &id, status.term).await.map(|(started, _)| started),
    };
    let ran_on = match status.lives() {
        true => None,
        false => site.runs.story(&id).await.ok().and_then(|told| told.host),
    };
    let next = site.runs.next(&id);
    let policy = site.runs.spec(&id).map(|spec| spec.policy.clone());
    // Keep options meant for every start, but not the resume point of one start.
    let options = policy.iter().flat_map(|p| {
        let unrecovered = !p.start.recovery && !p.start.off_by_command;
        [
            p.start.observe.then_some("--observe"),
            unrecovered.then_some("--no-recovery"),
        ]
    });
    let options: Vec<&str> = options.flatten().collect();
    let view = ResumePage {
        status: &status,
        next: next.as_deref(),
        options: &options,
        started: started.as_ref().map_err(String::as_str),
        ran_on: ran_on.as_deref(),
        here: &host_name(),
    };
    Html(page::resume(&view)).into_response()
}
