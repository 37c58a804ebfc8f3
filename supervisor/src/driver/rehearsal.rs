//! A relaunch tried in advance while workers run: by a helper that gives way to them, off the loop.

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

/// An answer is some lines of text.
const ANSWER: u64 = 1 << 20;
/// A helper whose input is closed has this long to end what it started.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A rehearsal that is under way. Where this goes, its helper ends: its input closes.
pub(super) struct Rehearsing {
    stop: Option<oneshot::Sender<()>>,
    over: JoinHandle<()>,
}

impl Driver {
    /// Starts one, unless one is under way. What cannot be started is a fact, and keeps nobody.
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
                    // The driver may have ended meanwhile.
                    let _ = tx.send(DriverMessage::Rehearsed(result));
                });
                self.rehearsal = Some(Rehearsing { stop: Some(stop), over });
            }
        }
    }

    /// Its result; `None`: it was ended, and the next launch asks again.
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

    /// Nobody waits for it any more.
    pub(super) async fn end_rehearsal(&mut self) {
        if let Some(mut rehearsing) = self.rehearsal.take() {
            drop(rehearsing.stop.take());
            let _ = tokio::time::timeout(LAST_WORDS, rehearsing.over).await;
        }
    }
}

/// Its answer, as long as somebody waits for it: its input stays open until then, and it ends with that.
async fn follow(mut helper: Child, order: Vec<u8>, stopped: oneshot::Receiver<()>) -> Option<RehearsalResult> {
    let (mut input, output) = (helper.stdin.take()?, helper.stdout.take()?);
    let written = input.write_all(&order).await;
    let holding = tokio::spawn(async move {
        // Asked to stop, or the driver is gone.
        let _ = stopped.await;
        drop(input);
    });
    let mut text = Vec::new();
    let read = output.take(ANSWER).read_to_end(&mut text).await;
    holding.abort();
    // It is reaped here or, after a sweep, there.
    let _ = helper.wait().await;
    written.and(read).ok()?;
    serde_json::from_slice(&text).ok()
}
