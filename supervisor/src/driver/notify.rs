//! Sends notifications while the run continues: by a helper process, off the loop, never waited for.

use super::{Driver, DriverMessage};
use crate::notify::send::{NotifyJob, command};
use crate::notify::{EventRun, Notification, NotifyResult, NotifyTargets, NotifyThrottle, long_wait, notice};
use std::time::Duration;
use supervise_config::settings::{EventChoice, OnEvent};
use supervise_core::event::EventKind;
use supervise_core::id::Tick;
use supervise_core::journal::record::JournalRecord;
use supervise_core::state::RunMode;
use supervise_host::process::host_name;
use supervise_host::wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// Longest answer, in bytes.
const ANSWER: u64 = 64 << 10;
/// How long to wait for answers at the end; the helpers continue on their own.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The notification channels, and how much was sent.
pub(super) struct Notifier {
    ways: NotifyTargets,
    /// Empty: all events.
    events: Vec<EventChoice>,
    pace: NotifyThrottle,
    host: String,
    /// This wait was reported.
    waited: bool,
    tasks: JoinSet<(String, Vec<NotifyResult>)>,
}

impl Notifier {
    pub(super) fn new(settings: &OnEvent) -> Self {
        Self {
            ways: NotifyTargets::of(settings),
            events: settings.events.clone(),
            pace: NotifyThrottle::default(),
            host: host_name(),
            waited: false,
            tasks: JoinSet::new(),
        }
    }
}

impl Driver {
    /// Sends a notification if the applied record is an event.
    pub(super) fn tell(&mut self, record: &JournalRecord) {
        if self.notifier.ways.is_none() {
            return;
        }
        if let Some(notice) = notice(record, &self.state, self.whose()) {
            self.send(notice);
        }
    }

    pub(super) fn tell_of_a_wait(&mut self, now: Tick) {
        if self.notifier.ways.is_none() {
            return;
        }
        let waits = matches!(
            self.state.mode,
            RunMode::Waiting { .. } | RunMode::Choosing | RunMode::Fencing
        );
        if !waits {
            self.notifier.waited &= self.state.context.held_since.is_some();
        } else if !self.notifier.waited
            && let Some(notice) = long_wait(&self.state, now, self.whose())
        {
            self.notifier.waited = true;
            self.send(notice);
        }
    }

    fn whose(&self) -> EventRun<'_> {
        EventRun {
            run: &self.spec.run.0,
            root: self.spec.root.as_ref().map(|r| r.as_str()),
            host: &self.notifier.host,
        }
    }

    fn send(&mut self, mut notice: Notification) {
        let wanted = self.notifier.events.is_empty() || self.notifier.events.contains(&notice.event);
        let now = self.now();
        let Some(left_out) = wanted.then(|| self.notifier.pace.tell(notice.event, now)).flatten() else {
            return;
        };
        notice.left_out = left_out;
        let event = notice.event.word().to_owned();
        let job = NotifyJob {
            ways: self.notifier.ways.clone(),
            notice,
        };
        let helper = wire::encode(&job).map_err(|e| e.to_string()).and_then(|order| {
            let helper = Command::from(command(self.exe.as_std_path().as_os_str())).spawn();
            Ok((helper.map_err(|e| format!("the helper cannot be started: {e}"))?, order))
        });
        match helper {
            Err(why) => {
                // Delayed, so that the records of this moment come first.
                let _ = self
                    .internal
                    .send(DriverMessage::Told(event, vec![job.ways.failed(why)]));
            }
            Ok((helper, order)) => {
                let tx = self.internal.clone();
                self.notifier.tasks.spawn(async move {
                    let came = follow(helper, order).await.unwrap_or_default();
                    // The driver may have exited meanwhile.
                    let _ = tx.send(DriverMessage::Told(event.clone(), came.clone()));
                    (event, came)
                });
            }
        }
    }

    pub(super) fn on_told(&mut self, event: &str, came: Vec<NotifyResult>) {
        while self.notifier.tasks.try_join_next().is_some() {}
        for NotifyResult { to, arrived, note } in came {
            self.feed(EventKind::Told {
                event: event.to_owned(),
                to,
                arrived,
                note,
            });
        }
    }

    /// Prints failures after the journal was closed.
    pub(super) async fn last_telling(&mut self) {
        let tasks = &mut self.notifier.tasks;
        let mut failed = Vec::new();
        let _ = tokio::time::timeout(LAST_WORDS, async {
            while let Some(done) = tasks.join_next().await {
                failed.extend(done.ok());
            }
        })
        .await;
        for (event, came) in failed {
            for c in came.iter().filter(|c| !c.arrived) {
                let text = format!("nobody could be told of {event} by on_event.{}: {}", c.to, c.note);
                crate::printer::last_note(&text);
            }
        }
    }
}

/// The helper's answer; `None` if it gave none.
async fn follow(mut helper: Child, order: Vec<u8>) -> Option<Vec<NotifyResult>> {
    let (mut input, output) = (helper.stdin.take()?, helper.stdout.take()?);
    input.write_all(&order).await.ok()?;
    drop(input);
    let mut text = Vec::new();
    let read = output.take(ANSWER).read_to_end(&mut text).await;
    // Reaped here or, after a sweep, there.
    let _ = helper.wait().await;
    read.ok()?;
    serde_json::from_slice(&text).ok()
}
