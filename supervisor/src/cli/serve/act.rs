//! Passes an action on a run's page on to its supervisor.

use super::origin::{is_from_here, not_from_here};
use super::rollback::send_back;
use super::site::{FormFields, SiteState, ViewerRights, said, said_of, unknown};
use crate::cli::hold;
use crate::control::{self, ControlReply, ControlRequest};
use crate::environment::user_on_a_page;
use crate::render::page::{self, StopKind};
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Form};
use std::time::Duration;
use supervise_core::id::RunId;

/// How long a supervisor may take to accept a request.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) async fn act(
    State(site): SiteState,
    Path((id, verb)): Path<(String, String)>,
    headers: HeaderMap,
    form: Result<Form<FormFields>, FormRejection>,
) -> Response {
    if !site.allow_actions {
        return only_shows();
    }
    let fields = match form {
        Ok(Form(fields)) => fields,
        // A program may send no form.
        Err(FormRejection::InvalidFormContentType(_)) => FormFields::new(),
        Err(e) => return said(e.status(), "No such form", "A form is a few short fields."),
    };
    let key = fields.get("key").is_some_and(|key| site.access.is_form_key(key));
    // A foreign page can make a browser send its cookie, but neither the bearer token nor the form key.
    if !(site.access.is_bearer(&headers) || (key && is_from_here(&headers))) {
        return not_from_here();
    }
    let wish = wish(&verb, &fields);
    if wish.is_none() && verb != "rollback" {
        return no_action();
    }
    if !site.runs.knows(&id).await {
        return unknown();
    }
    let Some(wish) = wish else {
        return send_back(&site, &id, &fields).await;
    };
    let run = RunId(id.clone());
    let of = run.clone();
    let asked = tokio::task::spawn_blocking(move || control::ask(&of, &wish, ANSWER)).await;
    site.runs.forget(&run);
    match asked {
        Ok(Ok(Some(ControlReply::Done))) => (StatusCode::SEE_OTHER, [(LOCATION, format!("/run/{id}"))]).into_response(),
        Ok(Ok(Some(ControlReply::Refused(why)))) => said_of(&id, StatusCode::CONFLICT, "Refused", &why),
        Ok(Ok(None)) => nobody(&id),
        Ok(Ok(Some(ControlReply::Status { .. })) | Err(_)) | Err(_) => {
            let text = "Its supervisor does not answer. What was asked for may still happen: look at its page again.";
            said_of(&id, StatusCode::SERVICE_UNAVAILABLE, "No answer", text)
        }
    }
}

/// Asks before a stop.
pub(super) async fn confirm(
    State(site): SiteState,
    Extension(entry): Extension<ViewerRights>,
    Path(id): Path<String>,
    Query(asked): Query<FormFields>,
) -> Response {
    if !(site.allow_actions && entry.acts) {
        return only_shows();
    }
    let Some(kind) = asked.get("how").and_then(|how| StopKind::of(how)) else {
        return no_action();
    };
    let Some(status) = site.runs.one(&id).await else {
        return unknown();
    };
    match status.supervisor.alive {
        true => Html(page::stop(&status, kind, &site.access.form_key)).into_response(),
        false => nobody(&id),
    }
}

fn only_shows() -> Response {
    let text = "These pages only show: `supervise serve --allow-actions` lets them act.";
    said(StatusCode::FORBIDDEN, "Not allowed", text)
}

fn no_action() -> Response {
    said(
        StatusCode::NOT_FOUND,
        "No such action",
        "There is nothing of that name to do.",
    )
}

fn nobody(id: &str) -> Response {
    let text = "No supervisor of this run is running on this machine. `supervise stop` stops leftover workers.";
    said_of(id, StatusCode::CONFLICT, "No supervisor", text)
}

fn wish(verb: &str, fields: &FormFields) -> Option<ControlRequest> {
    let by = user_on_a_page();
    let stop = |after_save, now| ControlRequest::Stop {
        after_save,
        now,
        by: Some(by.clone()),
    };
    Some(match verb {
        "stop-after-save" => stop(true, false),
        "stop" => stop(false, false),
        "stop-now" => stop(false, true),
        "save" => ControlRequest::Save { by },
        "hold" => hold::wish(by, fields.get("reason").map(String::as_str)),
        "unhold" => ControlRequest::Unhold { by },
        _ => return None,
    })
}
