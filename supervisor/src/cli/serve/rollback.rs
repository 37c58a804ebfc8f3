//! Rolls back a run from its page: previewed, confirmed, and done by `supervise rollback` as a separate process, which may hang on
//! a file system. Once it writes, it continues after the page stopped waiting, as long as it makes progress.

use super::child::{ChildProgress, patiently};
use super::origin::{is_from_elsewhere, not_from_here};
use super::site::{FormFields, ServeState, SiteState, ViewerRights, said, said_of, unknown};
use crate::render::page::{self, RollbackPreview};
use crate::render::rollback::RollbackView;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use camino::Utf8Path;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use supervise_core::id::RunId;
use supervise_host::process::{headway, own_program};
use tokio::process::Command;

/// How long a page waits: the step is proven first.
const WAITS: Duration = Duration::from_secs(45);
/// A proof that neither reads nor computes for this long waits for a file system that does not answer.
const SILENT: Duration = Duration::from_secs(60);
pub(super) async fn confirm(
    State(site): SiteState,
    Extension(entry): Extension<ViewerRights>,
    Path(id): Path<String>,
    Query(asked): Query<FormFields>,
    headers: HeaderMap,
) -> Response {
    if is_from_elsewhere(&headers) {
        return not_from_here();
    }
    if !(site.allow_actions && entry.acts) {
        let text = "Runs go back from pages of `supervise serve --allow-actions`, for whoever has the key.";
        return said(StatusCode::FORBIDDEN, "Not allowed", text);
    }
    let Some(to) = step(&asked) else {
        return no_step(&id);
    };
    let (Some(status), Some(dir)) = (site.runs.one(&id).await, site.runs.dir(&id).await) else {
        return unknown();
    };
    let Ok(_place) = site.plans.try_acquire() else {
        let text = "Other plans are being made: look again in a moment.";
        return said_of(&id, StatusCode::SERVICE_UNAVAILABLE, "Too many", text);
    };
    let looked = tokio::time::timeout(WAITS, ask(&id, &dir, to, false, &|_| ())).await;
    let promise = match &looked {
        Ok(Ok(view)) => RollbackPreview::Made(view),
        Ok(Err(why)) => RollbackPreview::Refused(why),
        Err(_) => RollbackPreview::Late,
    };
    Html(page::rollback(&status, to, promise, &site.access.form_key)).into_response()
}

pub(super) async fn send_back(site: &Arc<ServeState>, id: &str, fields: &FormFields) -> Response {
    let Some(to) = step(fields) else {
        return no_step(id);
    };
    let Some(dir) = site.runs.dir(id).await else {
        return unknown();
    };
    let Some(wish) = site.wishes.begin(id, to) else {
        let text = "It was asked to go back a moment ago: the step is still being proven.";
        return said_of(id, StatusCode::CONFLICT, "Already asked", text);
    };
    let (at, run) = (site.clone(), id.to_owned());
    let doing = tokio::spawn(async move {
        let heard = |far| at.wishes.far(&run, wish, far);
        let done = ask(&run, &dir, to, true, &heard).await;
        match &done {
            Ok(_) => at.wishes.end(&run, wish),
            Err(why) => at.wishes.refuse(&run, wish, why),
        }
        at.runs.forget(&RunId(run));
        done
    });
    match tokio::time::timeout(WAITS, doing).await {
        Ok(Ok(Ok(_))) => (StatusCode::SEE_OTHER, [(LOCATION, format!("/run/{id}"))]).into_response(),
        Ok(Ok(Err(why))) => {
            site.wishes.end(id, wish);
            said_of(id, StatusCode::CONFLICT, "Refused", &why)
        }
        Ok(Err(_)) => {
            site.wishes.end(id, wish);
            let text = "It broke off. The page of the run tells if it was done.";
            said_of(id, StatusCode::SERVICE_UNAVAILABLE, "No answer", text)
        }
        Err(_) => {
            let text =
                "The step is still being proven. The page of the run tells how far that is, and what comes of it.";
            said_of(id, StatusCode::ACCEPTED, "It is being done", text)
        }
    }
}

fn step(fields: &FormFields) -> Option<u64> {
    fields.get("to")?.trim().parse().ok()
}

fn no_step(id: &str) -> Response {
    said_of(id, StatusCode::BAD_REQUEST, "No such step", "A step is a number.")
}

/// Runs `supervise rollback`; `writes`: not only a preview. `heard` receives its progress.
///
/// # Errors
/// Its refusal, or that it was abandoned.
async fn ask(
    id: &str,
    dir: &Utf8Path,
    to: u64,
    writes: bool,
    heard: &(dyn Fn(ChildProgress) + Sync),
) -> Result<RollbackView, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let to = to.to_string();
    let mut command = Command::new(own_program(&exe));
    command.args(["rollback", dir.as_str(), "--json", "--page-of", id, "--to", &to]);
    command.args((!writes).then_some("--dry-run"));
    let ended = patiently(command.kill_on_drop(!writes), SILENT, &headway, heard).await;
    let ended = ended.map_err(|e| format!("nothing can be started: {e}"))?;
    let Some(ended) = ended else {
        let seconds = SILENT.as_secs();
        return Err(format!(
            "a file system that it needs (of the checkpoints, or of {dir}) has not answered for {seconds} s, and it was given up: \
             ask again once `ls` of both answers"
        ));
    };
    if ended.status.success() {
        return serde_json::from_slice(&ended.out).map_err(|e| e.to_string());
    }
    Err(refusal(&String::from_utf8_lossy(&ended.err)))
}

/// The message of a JSON error in the last line.
fn refusal(said: &str) -> String {
    let error = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|v| v.get("error").cloned());
    let Some(error) = error else {
        return format!("it ended without a word that is known: {said}");
    };
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let hints = error.get("hints").and_then(Value::as_array);
    let hints = hints.into_iter().flatten().filter_map(Value::as_str);
    std::iter::once(message).chain(hints).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_what_to_do() {
        let said = "note: x\n{\"error\": {\"message\": \"run a is at work\", \"hints\": [\"stop it\"]}}\n";
        assert_eq!(refusal(said), "run a is at work; stop it");
        assert!(refusal("Killed").contains("Killed"));
    }
}
