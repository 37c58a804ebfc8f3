//! Tries a relaunch in advance while workers run, in a low-priority helper off the loop.

use super::{Driver, DriverMessage};
use crate::rehearse::{RehearsalJob, command, trial};
use std::time::Duration;
use supervise_core::event::EventKind;
use supervise_core::event::rehearsal::{Rehearsal, RehearsalResult};
use supervise_host::wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest answer, in bytes.
const ANSWER: u64 = 1 << 20;
/// Time for a helper whose input is closed to end its children.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A rehearsal in progress. Dropping it closes the helper's input, which ends it.
pub(super) struct Rehearsing {
    stop: Option<oneshot::Sender<()>>,
    over: JoinHandle<()>,
}

impl Driver {
    /// Starts a rehearsal unless one is in progress. A failure to start is a fact and stops nothing.
    pub(super) fn rehearse(&mut self) {
        if self.rehearsal.is_some() {
            return;
        }
        let started = trial(&self.order).and_then(|trial| {
            let order = wire::encode(&RehearsalJob::TryBeside(trial)).map_err(|e| e.to_string())?;
            let helper = Command::from(command(self.exe.as_std_path()))
                .spawn()
                .map_err(|e| format!("the helper cannot be started: {e}"))?;
            Ok((order, helper))
        });
        match started {
            Err(why) => self.on_rehearsed(Some(RehearsalResult::Unknown { why })),
            Ok((order, helper)) => {
                let (stop, stopped) = oneshot::channel();
                let tx = self.internal.clone();
                let over = tokio::spawn(async move {
                    let result = follow(helper, order, stopped).await;
                    // The driver may have exited meanwhile.
                    let _ = tx.send(DriverMessage::Rehearsed(result));
                });
                self.rehearsal = Some(Rehearsing { stop: Some(stop), over });
            }
        }
    }

    /// Handles the result; `None`: it was interrupted, and the next launch asks again.
    pub(super) fn on_rehearsed(&mut self, result: Option<RehearsalResult>) {
        self.rehearsal = None;
        if let Some(result) = result {
            self.feed(EventKind::Rehearsed(Rehearsal {
                term: self.state.term,
                config: self.spec.config_hash,
                version: self.spec.trainer_version.clone(),
                result,
            }));
        }
    }

    pub(super) async fn end_rehearsal(&mut self) {
        if let Some(mut rehearsing) = self.rehearsal.take() {
            drop(rehearsing.stop.take());
            let _ = tokio::time::timeout(LAST_WORDS, rehearsing.over).await;
        }
    }
}

/// The helper's answer. Its input stays open until then; closing it ends the helper.
async fn follow(mut helper: Child, order: Vec<u8>, stopped: oneshot::Receiver<()>) -> Option<RehearsalResult> {
    let (mut input, output) = (helper.stdin.take()?, helper.stdout.take()?);
    let written = input.write_all(&order).await;
    let holding = tokio::spawn(async move {
        // Asked to stop, or the driver exited.
        let _ = stopped.await;
        drop(input);
    });
    let mut text = Vec::new();
    let read = output.take(ANSWER).read_to_end(&mut text).await;
    holding.abort();
    // Reaped here or, after a sweep, there.
    let _ = helper.wait().await;
    written.and(read).ok()?;
    serde_json::from_slice(&text).ok()
}
