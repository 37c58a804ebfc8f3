//! The output of a worker: its end, a part of it, and all of it.

use super::log_tail::{LogPart, extract};
use super::runs::RunCache;
use super::site::{FormFields, ServeState, SiteState, said, unknown};
use crate::cli::logs::SafePieces;
use crate::render::page::{self, LogExtract, LogView};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use camino::{Utf8Path, Utf8PathBuf};
use futures_util::stream::unfold;
use std::io;
use std::sync::Arc;
use supervise_host::hidden_places::HiddenLog;

/// Bytes of a download that are read at once.
const PIECE: usize = 1 << 20;

/// Which output is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerOutput {
    attempt: u32,
    worker: u32,
}

impl WorkerOutput {
    /// # Errors
    /// An answer that says what is expected.
    pub(super) fn of(asked: &FormFields) -> Result<Self, &'static str> {
        let number = |name: &str| asked.get(name).map_or(Ok(0), |n| n.parse::<u32>());
        match (number("attempt"), number("worker")) {
            (Ok(attempt), Ok(worker)) => Ok(Self { attempt, worker }),
            _ => Err("attempt and worker are numbers."),
        }
    }

    fn path(self, run_dir: &Utf8Path) -> Utf8PathBuf {
        let Self { attempt, worker } = self;
        run_dir.join(format!("attempts/{attempt:04}/worker-{worker}.log"))
    }
}

/// Its current length; `None`: it cannot be read now.
pub(super) async fn length(site: &ServeState, run: &str, of: WorkerOutput) -> Option<u64> {
    let path = of.path(&site.runs.dir(run).await?);
    let read = site.runs.output(run, move || std::fs::metadata(path).map(|m| m.len()));
    read.await.ok()?.ok()
}

fn no_such(why: &str) -> Response {
    said(StatusCode::BAD_REQUEST, "No such output", why)
}

fn no_answer(why: &str) -> Response {
    said(StatusCode::SERVICE_UNAVAILABLE, "No answer", why)
}

pub(super) async fn log(State(site): SiteState, Path(id): Path<String>, Query(asked): Query<FormFields>) -> Response {
    let Some(dir) = site.runs.dir(&id).await else {
        return unknown();
    };
    let of = match WorkerOutput::of(&asked) {
        Ok(of) => of,
        Err(why) => return no_such(why),
    };
    let query = asked.get("q").cloned().unwrap_or_default();
    let at = match asked.get("at").map(|at| at.parse::<u64>()) {
        None => None,
        Some(Ok(at)) => Some(at),
        Some(Err(_)) => return no_such("at is a number of bytes."),
    };
    let part = match at {
        Some(at) => LogPart::At(at),
        None if query.is_empty() => LogPart::End,
        None => LogPart::With(query.clone()),
    };
    let read = site
        .runs
        .output(&id, move || extract(&dir, of.attempt, of.worker, &part))
        .await;
    let status = site.runs.one(&id).await;
    let extract: LogExtract = match read {
        Err(why) => return no_answer(why),
        Ok(Err(why)) => return said(StatusCode::NOT_FOUND, "No output", &why),
        Ok(Ok(extract)) => extract,
    };
    let view = LogView {
        run: &id,
        name: status.as_deref().map_or(id.as_str(), |s| page::named(s).0),
        attempt: of.attempt,
        worker: of.worker,
        query: &query,
        at,
        extract: &extract,
    };
    Html(page::log(&view)).into_response()
}

/// A download, from its beginning to where the output ended when it was asked for.
struct LogDownload {
    log: HiddenLog,
    left: u64,
    pieces: SafePieces,
}

impl LogDownload {
    fn open(path: &Utf8Path) -> Result<Self, String> {
        let opened = HiddenLog::open(path).and_then(|log| {
            let left = log.file().metadata()?.len();
            Ok(Self {
                log,
                left,
                pieces: SafePieces::default(),
            })
        });
        opened.map_err(|e| format!("{path}: {e}"))
    }

    /// The next bytes, without secrets; `None`: it ends here.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let before = self.log.at();
        let bytes = match limit {
            0 => None,
            _ => self.log.read(limit)?,
        };
        let Some(bytes) = bytes else {
            self.left = 0;
            let rest = self.pieces.rest();
            return Ok((!rest.is_empty()).then_some(rest));
        };
        self.left = self.left.saturating_sub(self.log.at() - before);
        Ok(Some(self.pieces.pass(&bytes)))
    }
}

pub(super) async fn download(
    State(site): SiteState,
    Path(id): Path<String>,
    Query(asked): Query<FormFields>,
) -> Response {
    let Some(dir) = site.runs.dir(&id).await else {
        return unknown();
    };
    let of = match WorkerOutput::of(&asked) {
        Ok(of) => of,
        Err(why) => return no_such(why),
    };
    let path = of.path(&dir);
    let opened = site.runs.output(&id, move || LogDownload::open(&path)).await;
    let begun = match opened {
        Err(why) => return no_answer(why),
        Ok(Err(why)) => return said(StatusCode::NOT_FOUND, "No output", &why),
        Ok(Ok(begun)) => begun,
    };
    let name = format!("{id}-attempt-{}-worker-{}.log", of.attempt, of.worker);
    let pieces = unfold(Some((site.runs.clone(), id, begun)), |left| async move {
        let (runs, id, begun) = left?;
        next(runs, id, begun).await
    });
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

type Left = Option<(Arc<RunCache>, String, LogDownload)>;

async fn next(runs: Arc<RunCache>, id: String, mut begun: LogDownload) -> Option<(io::Result<Vec<u8>>, Left)> {
    let read = move || {
        let piece = begun.next();
        (begun, piece)
    };
    match runs.output(&id, read).await {
        Ok((begun, Ok(Some(bytes)))) => Some((Ok(bytes), Some((runs, id, begun)))),
        Ok((_, Ok(None))) => None,
        Ok((_, Err(e))) => Some((Err(e), None)),
        Err(why) => Some((Err(io::Error::other(why)), None)),
    }
}
