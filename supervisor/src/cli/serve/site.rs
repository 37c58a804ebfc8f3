//! Everything that answers need, and the short ones.

use super::access::Access;
use super::runs::RunCache;
use super::wishes::PendingRollbacks;
use crate::render::page;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Everything that answers need.
pub(super) struct ServeState {
    pub(super) runs: Arc<RunCache>,
    pub(super) access: Access,
    pub(super) hosts: Vec<String>,
    /// Places of pages that follow their runs.
    pub(super) followers: Arc<Semaphore>,
    /// Plans that are made at once.
    pub(super) plans: Semaphore,
    /// Wishes to go back that are not in the journal.
    pub(super) wishes: PendingRollbacks,
    /// Runs may be stopped, held and sent back.
    pub(super) allow_actions: bool,
}

/// Whoever reads a page.
#[derive(Clone, Copy)]
pub(super) struct ViewerRights {
    /// They may act, and do not only read.
    pub(super) acts: bool,
}

pub(super) type SiteState = State<Arc<ServeState>>;

pub(super) fn said(code: StatusCode, title: &str, text: &str) -> Response {
    (code, Html(page::message(title, text))).into_response()
}

/// The same, with the way back to the run that it is about.
pub(super) fn said_of(run: &str, code: StatusCode, title: &str, text: &str) -> Response {
    (code, Html(page::answer(run, title, text))).into_response()
}

pub(super) fn unknown() -> Response {
    said(
        StatusCode::NOT_FOUND,
        "No such run",
        "No run of this identity is known here.",
    )
}
