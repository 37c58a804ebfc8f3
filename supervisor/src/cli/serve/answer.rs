//! Routes requests and answers them.

use super::act::{act, confirm as confirm_stop};
use super::configuration::{config, plan};
use super::machine::machine;
use super::output::{WorkerOutput, download, length, log};
use super::places::ConnectionPlace;
use super::resume::resume;
use super::rollback::confirm;
use super::site::{FormFields, ServeState, SiteState, ViewerRights, said, unknown};
use crate::environment::wall;
use crate::render::metrics::{Format, metrics};
use crate::render::page::{self, ListQuery, RunView};
use crate::render::status::StatusView;
use axum::body::{Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::future::join;
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Longest body of a request, in bytes: a form with one line of text.
const BODY: usize = 4096;
/// Time for a request to arrive and its answer to begin.
const WHOLE: Duration = Duration::from_secs(60);
/// Maximum number of live pages for readers without the token; further ones get no updates.
pub(super) const FOLLOWERS: usize = 128;
/// Maximum number of concurrent plans: each is a process.
pub(super) const PLANS: usize = 2;
/// Maximum number of runs whose curves are shown together.
const COMPARED: usize = 8;
/// How often a displayed run is read.
const LOOK: Duration = Duration::from_millis(500);

type PageQuery = Query<FormFields>;

/// The pages; `trusted`: every client of this socket is this user.
pub(super) fn router(site: &Arc<ServeState>, trusted: bool) -> Router {
    let door = Door {
        site: site.clone(),
        trusted,
    };
    Router::new()
        .route("/", get(list))
        .route("/run/{id}", get(run))
        .route("/run/{id}/log", get(log))
        .route("/run/{id}/log/download", get(download))
        .route("/run/{id}/config", get(config))
        .route("/run/{id}/plan", get(plan))
        .route("/run/{id}/resume", get(resume))
        .route("/run/{id}/rollback", get(confirm))
        .route("/run/{id}/stop", get(confirm_stop))
        .route("/run/{id}/act/{verb}", post(act))
        .route("/run/{id}/curves.json", get(curves))
        .route("/live", get(live))
        .route("/curves", get(compare))
        .route("/machine", get(machine))
        .route("/metrics", get(numbers))
        .route("/enter", post(by_token))
        .route("/enter/{key}", get(by_link))
        .merge(files())
        .fallback(|| async { said(StatusCode::NOT_FOUND, "Nothing here", "There is no such page.") })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(door, gate))
        .with_state(site.clone())
}

/// Files that are the same for everybody.
const FILES: [(&str, &str, &str); 4] = [
    ("/style.css", "text/css; charset=utf-8", page::STYLE),
    ("/live.js", "text/javascript; charset=utf-8", page::SCRIPT),
    ("/charts.js", "text/javascript; charset=utf-8", page::CHART_SCRIPT),
    ("/uplot.js", "text/javascript; charset=utf-8", page::UPLOT),
];

fn files() -> Router<Arc<ServeState>> {
    FILES.iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(|| async { ([(CONTENT_TYPE, *kind)], *text) }))
    })
}

#[derive(Clone)]
struct Door {
    site: Arc<ServeState>,
    trusted: bool,
}

/// Checks access, and adds security headers to every answer. Clients without the token all get the same answer.
async fn gate(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let acts = door.trusted || door.site.access.bears(request.headers());
    request.extensions_mut().insert(ViewerRights { acts });
    let place = request.extensions().get::<Arc<ConnectionPlace>>().cloned();
    let keyless = place.filter(|place| !(acts && place.show_key()));
    let mut answer = match refused(&door, &request) {
        Some(no) => no,
        None => match whole(request, keyless.as_deref()).await {
            Ok(request) => tokio::time::timeout(WHOLE, next.run(request))
                .await
                .unwrap_or_else(|_| too_late()),
            Err(no) => no,
        },
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, page::POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if keyless.is_some() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Waits for the whole request; a client without the token has limited time.
async fn whole(request: Request, keyless: Option<&ConnectionPlace>) -> Result<Request, Response> {
    let Some(place) = keyless else { return Ok(request) };
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout_at(place.due(), to_bytes(body, BODY))
        .await
        .map_err(|_| too_late())?
        .map_err(|_| {
            let text = format!("A request holds up to {BODY} bytes.");
            said(StatusCode::PAYLOAD_TOO_LARGE, "Too long", &text)
        })?;
    place.has_asked();
    Ok(Request::from_parts(head, body.into()))
}

fn too_late() -> Response {
    said(
        StatusCode::REQUEST_TIMEOUT,
        "Too late",
        "The request did not come to its end.",
    )
}

fn refused(door: &Door, request: &Request) -> Option<Response> {
    let Door { site, trusted } = door;
    let host = match host(request) {
        Ok(host) => host,
        Err(why) => return Some(said(StatusCode::BAD_REQUEST, "Which host?", why)),
    };
    let is_ours = host.is_some_and(|h| site.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(h)));
    // A tunnel to the socket may carry a browser, and a foreign page can resolve its own name to this address.
    let by_tunnel = *trusted && host.is_some_and(is_loopback);
    if !(is_ours || by_tunnel) {
        let text = "This is not the name of this server: `supervise serve --host NAME` makes it one.";
        return Some(said(StatusCode::MISDIRECTED_REQUEST, "Another host", text));
    }
    let path = request.uri().path();
    let open = path.starts_with("/enter") || FILES.iter().any(|(file, ..)| *file == path);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let may = *trusted || open || (reads && site.access.public_read) || site.access.bears(request.headers());
    (!may).then(|| (StatusCode::UNAUTHORIZED, Html(page::door(site.access.file.as_str()))).into_response())
}

/// The only `Host` of a request. With several, a proxy and this server could each use another one.
fn host(request: &Request) -> Result<Option<&str>, &'static str> {
    let mut all = request.headers().get_all(HOST).into_iter();
    let host = match (all.next(), all.next()) {
        (Some(_), Some(_)) => return Err("The request has more than one Host header."),
        (Some(host), None) => Some(host.to_str().map_err(|_| "The Host header is no name.")?),
        (None, _) if request.version() >= Version::HTTP_11 => return Err("The request has no Host header."),
        (None, _) => None,
    };
    match (request.uri().authority(), host) {
        (Some(target), Some(host)) if !target.as_str().eq_ignore_ascii_case(host) => {
            Err("The target of the request names another host than its Host header.")
        }
        _ => Ok(host),
    }
}

/// Returns true for a loopback name, with or without a port, which no name server resolves elsewhere.
fn is_loopback(host: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|name| host.strip_prefix(name).is_some_and(port))
}

async fn by_link(State(site): SiteState, method: Method, Path(key): Path<String>) -> Response {
    // Link previews must not use up the link.
    if method != Method::GET {
        return said(
            StatusCode::METHOD_NOT_ALLOWED,
            "A link to open",
            "The link is opened by GET.",
        );
    }
    match site.access.take(&key) {
        true => enters(&site),
        false => (StatusCode::FORBIDDEN, Html(page::door(site.access.file.as_str()))).into_response(),
    }
}

async fn by_token(State(site): SiteState, body: Bytes) -> Response {
    let given = std::str::from_utf8(&body).ok().and_then(|b| b.strip_prefix("token="));
    match given.is_some_and(|token| site.access.is_token(token)) {
        true => enters(&site),
        false => (StatusCode::FORBIDDEN, Html(page::door(site.access.file.as_str()))).into_response(),
    }
}

/// An answer instead of a redirection: a logged link is useless from now on, and the cookie is sent with later requests.
fn enters(site: &ServeState) -> Response {
    ([(SET_COOKIE, site.access.cookie())], Html(page::entered())).into_response()
}

async fn list(State(site): SiteState, Query(asked): PageQuery) -> Response {
    let (views, gone) = site.runs.all().await;
    let wanted = ListQuery::of(|name| asked.get(name).map(String::as_str));
    Html(page::list(&views, gone, &wanted)).into_response()
}

async fn run(State(site): SiteState, Extension(entry): Extension<ViewerRights>, Path(id): Path<String>) -> Response {
    // A journal that is read for the first time is read twice: by an I/O worker and here.
    let (status, told) = join(site.runs.one(&id), site.runs.story(&id)).await;
    let Some(status) = status else {
        return unknown();
    };
    let (stale, told) = match told {
        Ok(told) => (None, Some(told)),
        Err(why) => (Some(why), None),
    };
    let blank = page::RunView::blank(&id);
    let (story, picture, steps) = match &told {
        Some(t) => (&t.story, &t.picture, t.steps.as_slice()),
        None => (&blank.0, &blank.1, [].as_slice()),
    };
    let next = site.runs.next(&id);
    let sent_back = site.wishes.of(&id);
    let view = RunView {
        status: &status,
        story,
        picture,
        steps,
        next: next.as_deref(),
        plans: entry.acts,
        stale: stale.as_deref(),
        sent_back: sent_back.as_ref(),
        form_key: (site.allow_actions && entry.acts).then_some(site.access.form_key.as_str()),
    };
    Html(page::run(&view)).into_response()
}

/// The data of a run's curves, from a journal record on.
async fn curves(State(site): SiteState, Path(id): Path<String>, Query(asked): PageQuery) -> Response {
    let Some(status) = site.runs.one(&id).await else {
        return unknown();
    };
    let after = asked.get("after").and_then(|n| n.parse().ok()).unwrap_or_default();
    match site.runs.story(&id).await {
        Ok(told) => {
            let data = told.picture.since(after, page::named(&status).0, status.lives());
            match serde_json::to_string(&data) {
                Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
                Err(e) => said(StatusCode::INTERNAL_SERVER_ERROR, "No data", &e.to_string()),
            }
        }
        Err(why) => said(StatusCode::SERVICE_UNAVAILABLE, "No answer", &why),
    }
}

/// The curves of several runs.
async fn compare(State(site): SiteState, Query(asked): Query<Vec<(String, String)>>) -> Response {
    let mut runs: Vec<(String, String)> = Vec::new();
    for (_, id) in asked.into_iter().filter(|(name, _)| name == "run").take(COMPARED) {
        let known = site
            .runs
            .one(&id)
            .await
            .filter(|_| runs.iter().all(|(other, _)| *other != id));
        if let Some(status) = known {
            runs.push((id, page::named(&status).0.to_owned()));
        }
    }
    Html(page::compare(&runs)).into_response()
}

async fn numbers(State(site): SiteState, headers: HeaderMap) -> Response {
    let (views, _) = site.runs.all().await;
    let accepts = headers.get(ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let (format, kind) = match accepts.contains("application/openmetrics-text") {
        true => (
            Format::OpenMetrics,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        false => (Format::Text, "text/plain; version=0.0.4; charset=utf-8"),
    };
    ([(CONTENT_TYPE, kind)], metrics(&views, wall(), format)).into_response()
}

/// Sends an event for each change; the page then fetches what changed. A slow client only misses intermediate states.
async fn live(State(site): SiteState, Extension(entry): Extension<ViewerRights>, Query(asked): PageQuery) -> Response {
    // A client with the token always gets a place.
    let place = site.followers.clone().try_acquire_owned().ok();
    if place.is_none() && !entry.acts {
        return said(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many",
            "Too many pages are followed now.",
        );
    }
    let run = asked.get("run").cloned();
    let output = WorkerOutput::of(&asked).ok().filter(|_| asked.contains_key("worker"));
    let begin = (site, run, None::<String>, place);
    let changes = unfold(begin, move |(site, run, mut last, place)| async move {
        loop {
            let views = match &run {
                Some(run) => site.runs.one(run).await.into_iter().collect(),
                None => site.runs.all().await.0,
            };
            let mut now = views.iter().map(|v| mark(v)).collect::<String>();
            // Progress and refusal of a rollback are shown only on the run's page.
            let wish = run.as_ref().and_then(|run| site.wishes.of(run));
            now.extend(wish.map(|w| format!("{} {} {:?}", w.to, w.seconds / 5, w.refused)));
            if let Some((run, of)) = run.as_ref().zip(output) {
                now.push_str(&format!("{:?}", length(&site, run, of).await));
            }
            // The first look is reported too: the page may be older than it.
            let changed = last.as_ref() != Some(&now);
            last = Some(now);
            if changed {
                // Browsers drop an event without a line of data.
                let event = Event::default().event("change").data("look");
                return Some((Ok::<_, Infallible>(event), (site, run, last, place)));
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    Sse::new(changes).keep_alive(KeepAlive::default()).into_response()
}

/// A value that changes when the page of a run changes.
fn mark(v: &StatusView) -> String {
    let step = v.attempt.as_ref().and_then(|a| a.step);
    let (run, now, lives) = (&v.run, v.now.map(|n| n.0), v.lives());
    let pace = v.progress.as_ref().and_then(|p| p.pace);
    format!(
        "{run} {now:?} {lives} {} {step:?} {pace:?} {:?} {:?};",
        v.mode, v.mark, v.problem
    )
}
