//! The configuration with which a run was started, from its directory, and the plan of its next start.
//!
//! An I/O worker reads the file and a separate process plans, so that only they can hang.

use super::origin::{is_from_elsewhere, not_from_here};
use super::site::{ServeState, SiteState, ViewerRights, said, unknown};
use crate::cli::target;
use crate::render::config::{ConfigView, StartCommand};
use crate::render::page::{self, ConfigPage};
use crate::render::policy::PolicyView;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use camino::{Utf8Path, Utf8PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use supervise_config::redact_text;
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, IoWorkerError, PathAnswer, PathQuery};
use supervise_host::ownership::PathDistrust;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// Maximum size of a configuration file that we wrote, in bytes.
const LARGE: u64 = 8 << 20;
/// Number of earlier terms to search.
const BACK: u32 = 20;
/// Time to read it, for all terms together; a page waits only little longer.
const READ: Duration = Duration::from_secs(3);
/// Time for a plan, which may ask the trainer's interpreter for its version.
const PLAN: Duration = Duration::from_secs(45);
/// Maximum number of bytes of a plan that are shown.
const SHOWN: u64 = 256 << 10;

pub(super) async fn config(
    State(site): SiteState,
    Extension(entry): Extension<ViewerRights>,
    Path(id): Path<String>,
) -> Response {
    let Some(status) = site.runs.one(&id).await else {
        return unknown();
    };
    let term = status.term;
    let config = match status.problem.as_ref().filter(|_| term == 0) {
        Some(problem) => Err(problem.clone()),
        None => match site.runs.dir(&id).await {
            Some(dir) => site
                .runs
                .output(&id, move || read(&dir, term))
                .await
                .map_err(str::to_owned)
                .and_then(|read| read),
            None => Err("its run directory is not known here".to_owned()),
        },
    };
    let spec = site.runs.spec(&id);
    let policy = spec.map(|spec| {
        let p = &spec.policy;
        PolicyView::of(
            &p.failure.rules,
            &p.failure.lines,
            p.failure.retries,
            p.failure.step_backs,
        )
    });
    let view = ConfigPage {
        run: &id,
        config: config.as_ref().map(|c| (c.term, &c.view)).map_err(String::as_str),
        policy: policy.as_ref(),
        plans: entry.acts,
    };
    Html(page::config(&view)).into_response()
}

/// The configuration of a term, from the run directory.
struct TermConfig {
    term: u32,
    view: ConfigView,
    /// Why nothing may be started from it.
    distrust: Option<PathDistrust>,
}

/// The newest configuration up to a term. Blocks until the timeout at most.
fn read(dir: &Utf8Path, term: u32) -> Result<TermConfig, String> {
    let mut helper = target::io_worker().map_err(|e| e.to_string())?;
    let until = Instant::now() + READ;
    // `stop` and `rollback` start terms without one.
    for of in (term.saturating_sub(BACK)..=term).rev() {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(config) = read_one(&mut helper, dir, of, left)? {
            return Ok(config);
        }
    }
    Err(format!(
        "what term {term} was configured to do is not written down in {dir}/spec: an older version began it, or it begins just now. \
         `supervise config show` reads the configuration of today"
    ))
}

/// `None`: this term has none.
fn read_one(helper: &mut IoClient, dir: &Utf8Path, term: u32, left: Duration) -> Result<Option<TermConfig>, String> {
    let file = dir.join(format!("spec/{term}.config.json"));
    let ask = IoQuestion::Look(PathQuery::ReadJudged(file.clone(), LARGE));
    match helper.ask(ask, left) {
        Ok(IoAnswer::Seen(Ok(PathAnswer::Judged(trust, text, _)))) => serde_json::from_slice(text.as_bytes())
            .map(|view| {
                Some(TermConfig {
                    term,
                    view,
                    distrust: trust.refusal(),
                })
            })
            .map_err(|e| format!("{file} is damaged, so what the term was configured to do cannot be told: {e}")),
        Ok(IoAnswer::Seen(Err(e))) => match std::io::Error::from(e) {
            e if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            e => Err(format!("{file}: {e}")),
        },
        Err(IoWorkerError::Stalled(_)) => {
            let seconds = READ.as_secs();
            Err(format!(
                "the file system under {dir} does not answer, or not within {seconds} s"
            ))
        }
        Ok(_) => Err("I/O worker: unexpected answer".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

pub(super) async fn plan(
    State(site): SiteState,
    Extension(entry): Extension<ViewerRights>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if is_from_elsewhere(&headers) {
        return not_from_here();
    }
    if !entry.acts {
        let text = "A plan reads the run's files and asks its interpreter: that is for whoever has the key.";
        return said(StatusCode::FORBIDDEN, "Not allowed", text);
    }
    let Some(status) = site.runs.one(&id).await else {
        return unknown();
    };
    let Ok(_place) = site.plans.try_acquire() else {
        let text = "Other plans are being made: look again in a moment.";
        return said(StatusCode::SERVICE_UNAVAILABLE, "Too many", text);
    };
    let planned = match started(&site, &id, status.term).await {
        Ok((_, Some(distrust))) => Err(format!(
            "no plan is made: {distrust}, and a plan starts the interpreter that it names. In a terminal, `supervise plan` with words of \
             your own makes one"
        )),
        Ok((started, None)) => planned(&started).await,
        Err(why) => Err(why),
    };
    let page = match &planned {
        Ok((text, code)) => page::plan(&id, Ok((text, *code))),
        Err(why) => page::plan(&id, Err(why)),
    };
    Html(page).into_response()
}

/// The command that started a term, and why nothing may be started from it.
///
/// # Errors
/// Why it is unknown.
pub(super) async fn started(
    site: &ServeState,
    id: &str,
    term: u32,
) -> Result<(StartCommand, Option<PathDistrust>), String> {
    let dir = site.runs.dir(id).await.ok_or("its run directory is not known here")?;
    let config = site.runs.output(id, move || read(&dir, term)).await??;
    let started = config.view.started;
    let started = started.ok_or_else(|| "the words by which it was started are not written down".to_owned())?;
    Ok((started, config.distrust))
}

async fn planned(started: &StartCommand) -> Result<(String, Option<i32>), String> {
    if started.hidden {
        return Err(
            "the words by which it was started hold a secret, which is not kept: in a terminal, `supervise plan` with \
             the words of the start tells"
                .to_owned(),
        );
    }
    let exe: Utf8PathBuf = std::env::current_exe()
        .map_err(|e| e.to_string())?
        .try_into()
        .map_err(|_| "the path of this program is no text".to_owned())?;
    // A working directory that hangs must not block this process: change it in the child.
    let script = "exec 2>&1; cd -- \"$0\" && exec \"$@\"";
    let mut child = Command::new("/bin/sh")
        .args(["-c", script, &started.cwd, exe.as_str(), "plan"])
        .args(started.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("no plan can be made: {e}"))?;
    let mut bytes = Vec::new();
    let ends = async {
        if let Some(out) = child.stdout.take() {
            let _ = out.take(SHOWN).read_to_end(&mut bytes).await;
        }
        child.wait().await
    };
    let late = |_| {
        let seconds = PLAN.as_secs();
        format!("the plan was not made within {seconds} s: a file system does not answer, or the trainer's interpreter")
    };
    let status = tokio::time::timeout(PLAN, ends).await.map_err(late)?;
    let status = status.map_err(|e| e.to_string())?;
    let text = redact_text(&String::from_utf8_lossy(&bytes));
    Ok((text, status.code()))
}
