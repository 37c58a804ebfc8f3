//! The machine of the server: `supervise doctor` in a process of its own, and the GPUs.

use super::child::patiently;
use super::origin::{is_from_elsewhere, not_from_here};
use super::site::{SiteState, ViewerRights, said};
use crate::render::page::{self, DoctorCheck, MachinePage};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use futures_util::future::join;
use std::time::Duration;
use supervise_core::event::gpu::{Device, GpuIds};
use supervise_host::process::{headway, host_name, own_program};
use tokio::process::Command;

/// A check that neither reads nor computes for this long waits for a device or a file system.
const SILENT: Duration = Duration::from_secs(10);
/// Time for the driver's answer.
const GPUS: Duration = Duration::from_secs(15);

pub(super) async fn machine(
    State(site): SiteState,
    Extension(entry): Extension<ViewerRights>,
    headers: HeaderMap,
) -> Response {
    if is_from_elsewhere(&headers) {
        return not_from_here();
    }
    if !entry.acts {
        let text = "The checks start processes on the server's machine: this needs the key.";
        return said(StatusCode::FORBIDDEN, "Not allowed", text);
    }
    let Ok(_place) = site.plans.try_acquire() else {
        let text = "Other checks and plans are being made: look again in a moment.";
        return said(StatusCode::SERVICE_UNAVAILABLE, "Too many", text);
    };
    let (checks, gpus) = join(checks(), gpus()).await;
    let host = host_name();
    let view = MachinePage {
        host: &host,
        checks: checks.as_deref().map_err(String::as_str),
        gpus: gpus.as_deref().map_err(String::as_str),
    };
    Html(page::machine(&view)).into_response()
}

async fn checks() -> Result<Vec<DoctorCheck>, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own_program(&exe));
    command.args(["doctor", "--json"]).kill_on_drop(true);
    let ended = patiently(&mut command, SILENT, &headway, &|_| ()).await;
    let ended = ended.map_err(|e| format!("`supervise doctor` cannot be started: {e}"))?;
    let Some(ended) = ended else {
        let seconds = SILENT.as_secs();
        return Err(format!(
            "`supervise doctor` has not moved for {seconds} s: run it in a terminal"
        ));
    };
    serde_json::from_slice(&ended.out).map_err(|e| format!("`supervise doctor --json`: {e}"))
}

async fn gpus() -> Result<Vec<Device>, String> {
    let asked = tokio::task::spawn_blocking(|| supervise_host::gpus::look(&GpuIds::default(), true));
    let late = |_| {
        let seconds = GPUS.as_secs();
        format!("the driver of the GPUs has not answered for {seconds} s: try nvidia-smi in a terminal")
    };
    let asked = tokio::time::timeout(GPUS, asked).await.map_err(late)?;
    Ok(asked.map_err(|e| e.to_string())??.devices)
}
