//! The state that answers need, and short answers.

use super::access::Access;
use super::runs::RunCache;
use super::wishes::PendingRollbacks;
use crate::render::page;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The state that answers need.
pub(super) struct ServeState {
    pub(super) runs: Arc<RunCache>,
    pub(super) access: Access,
    pub(super) hosts: Vec<String>,
    pub(super) followers: Arc<Semaphore>,
    pub(super) plans: Semaphore,
    /// Rollback requests that are not in the journal yet.
    pub(super) wishes: PendingRollbacks,
    pub(super) allow_actions: bool,
}

#[derive(Clone, Copy)]
pub(super) struct ViewerRights {
    /// The reader may act on runs.
    pub(super) acts: bool,
}

/// The fields of a form, or of a query.
pub(super) type FormFields = HashMap<String, String>;

pub(super) type SiteState = State<Arc<ServeState>>;

pub(super) fn said(code: StatusCode, title: &str, text: &str) -> Response {
    (code, Html(page::message(title, text))).into_response()
}

/// The same, with a link back to the run.
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
