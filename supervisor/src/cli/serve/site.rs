//! Everything that answers need, and the short ones.

use super::access::Access;
use super::runs::Runs;
use crate::render::page;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Everything that answers need.
pub(super) struct Site {
    pub(super) runs: Arc<Runs>,
    pub(super) access: Access,
    pub(super) hosts: Vec<String>,
    /// Places of pages that follow their runs.
    pub(super) followers: Arc<Semaphore>,
    /// Runs may be stopped and held.
    pub(super) allow_actions: bool,
}

pub(super) type Here = State<Arc<Site>>;

pub(super) fn said(code: StatusCode, title: &str, text: &str) -> Response {
    (code, Html(page::message(title, text))).into_response()
}

pub(super) fn unknown() -> Response {
    said(
        StatusCode::NOT_FOUND,
        "No such run",
        "No run of this identity is known here.",
    )
}
