//! A wish of a person who reads a run's page, passed on to its supervisor.

use super::site::{Here, said, unknown};
use crate::cli::hold;
use crate::control::{self, ControlReply, ControlRequest};
use crate::environment::user;
use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, State};
use axum::http::header::{HOST, LOCATION, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::time::Duration;
use supervise_core::id::RunId;

/// A supervisor takes a wish within this.
const ANSWER: Duration = Duration::from_secs(10);

type Fields = HashMap<String, String>;

pub(super) async fn act(
    State(site): Here,
    Path((id, verb)): Path<(String, String)>,
    headers: HeaderMap,
    form: Result<Form<Fields>, FormRejection>,
) -> Response {
    if !site.allow_actions {
        let text = "These pages only show: `supervise serve --allow-actions` lets them act.";
        return said(StatusCode::FORBIDDEN, "Not allowed", text);
    }
    let fields = match form {
        Ok(Form(fields)) => fields,
        // A program that has nothing to add sends none.
        Err(FormRejection::InvalidFormContentType(_)) => Fields::new(),
        Err(e) => return said(e.status(), "No such form", "A form is a few short fields."),
    };
    let key = fields.get("key").is_some_and(|key| site.access.is_form_key(key));
    // A browser sends its cookie with what a page elsewhere makes it send; no page makes it send the other two.
    if !(site.access.is_bearer(&headers) || (key && is_from_here(&headers))) {
        let text = "This did not come from a page of this server: open the run's page anew and try again.";
        return said(StatusCode::FORBIDDEN, "Not from here", text);
    }
    let Some(wish) = wish(&verb, &fields) else {
        return said(
            StatusCode::NOT_FOUND,
            "No such action",
            "There is nothing of that name to do.",
        );
    };
    if !site.runs.knows(&id).await {
        return unknown();
    }
    let run = RunId(id.clone());
    let of = run.clone();
    let asked = tokio::task::spawn_blocking(move || control::ask(&of, &wish, ANSWER)).await;
    site.runs.forget(&run);
    match asked {
        Ok(Ok(Some(ControlReply::Done))) => (StatusCode::SEE_OTHER, [(LOCATION, format!("/run/{id}"))]).into_response(),
        Ok(Ok(Some(ControlReply::Refused(why)))) => said(StatusCode::CONFLICT, "Refused", &why),
        Ok(Ok(None)) => {
            let text = "No supervisor of this run lives on this machine. `supervise stop` ends what may be left of it.";
            said(StatusCode::CONFLICT, "Nobody to ask", text)
        }
        Ok(Ok(Some(ControlReply::Status { .. })) | Err(_)) | Err(_) => {
            let text = "Its supervisor does not answer. What was asked for may still happen: look at its page again.";
            said(StatusCode::SERVICE_UNAVAILABLE, "No answer", text)
        }
    }
}

/// The request was made by a page of this server. Browsers say so with each POST; programs say nothing.
fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    let host = text(HOST.as_str()).unwrap_or_default();
    let origin = text(ORIGIN.as_str()).is_none_or(|o| {
        o.split_once("://")
            .is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
    });
    origin && text("sec-fetch-site").is_none_or(|site| site == "same-origin")
}

fn wish(verb: &str, fields: &Fields) -> Option<ControlRequest> {
    let by = format!("{} on a page", user());
    let stop = |after_save, now| ControlRequest::Stop {
        after_save,
        now,
        by: Some(by.clone()),
    };
    Some(match verb {
        "stop-after-save" => stop(true, false),
        "stop" => stop(false, false),
        "stop-now" => stop(false, true),
        "hold" => hold::wish(by, fields.get("reason").map(String::as_str)),
        "unhold" => ControlRequest::Unhold { by },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_elsewhere_is_not_here() {
        let from = |pairs: &[(&'static str, &'static str)]| {
            let all = pairs.iter().chain(&[("host", "127.0.0.1:8617")]);
            is_from_here(&all.map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect())
        };
        assert!(from(&[]), "a program says nothing");
        assert!(from(&[
            ("origin", "http://127.0.0.1:8617"),
            ("sec-fetch-site", "same-origin")
        ]));
        for other in [
            "null",
            "http://127.0.0.1:8618",
            "http://evil.example",
            "127.0.0.1:8617",
            "",
        ] {
            assert!(!from(&[("origin", other)]), "{other}");
        }
        for site in ["same-site", "cross-site", "none"] {
            assert!(!from(&[("sec-fetch-site", site)]), "{site}");
        }
    }
}
