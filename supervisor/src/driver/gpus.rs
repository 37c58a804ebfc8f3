//! Before a launch: are the GPUs of the run present, free and healthy? While it trains: how active are they?

use super::{Driver, DriverMessage};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use supervise_core::event::EventKind;
use supervise_core::event::gpu::{DeviceWindow, GpuIds, in_the_way, looks_again, pulse, remark, spared};
use supervise_core::id::{ActId, AttemptNo, Ms};
use supervise_core::journal::record::LaunchOrder;
use supervise_core::observe::activity::DevicePulse;
use supervise_core::spec::LauncherKind;
use supervise_core::spec::gang::NodesNews;
use supervise_core::state::RunMode;
use supervise_host::gpus::{GpuReport, follow, look};
use supervise_host::guard::protocol::ToGuard;
use supervise_trainers::RayMode;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// The variable that names a worker's GPUs.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// How often the guard receives GPU activity: twice in each of its windows.
const TELL: Duration = Duration::from_secs(5);
/// The program answers every second; if it is silent for this long, it hangs.
const HANGS: Duration = Duration::from_secs(15);
/// Longest answer for one GPU, in bytes.
const LINE: usize = 4096;

/// State of the GPUs in this term.
#[derive(Debug, Default)]
pub(super) struct GpuWatch {
    /// Error counters of each GPU at the first check.
    before: Option<BTreeMap<String, u64>>,
    /// A failure of the query was reported.
    told: bool,
    /// A program reports GPU activity.
    followed: bool,
    /// The last attempt for which that program was started.
    asked: Option<AttemptNo>,
    /// Unfit GPUs, each with the reason; others that the run names replace them.
    left_out: BTreeMap<String, String>,
}

impl Driver {
    /// Checks them off the loop. Returns false if the run names none here.
    pub(super) fn ask_gpus(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let named = self.named_gpus();
        if !self.spec.policy.check_gpus || named.is_empty() || order.nodes > 1 {
            return false;
        }
        self.look_at_gpus(act, order.clone(), named, 1, Ms(0));
        true
    }

    /// Runs the check with this number, after a pause.
    fn look_at_gpus(&self, act: ActId, order: LaunchOrder, named: GpuIds, looks: usize, pause: Ms) {
        let tx = self.internal.clone();
        // Only once a term: remapped rows take as long as everything else.
        let rows = self.gpus.before.is_none();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause.0)).await;
            let Ok(said) = tokio::task::spawn_blocking(move || look(&named, rows)).await else {
                return;
            };
            // The driver may have exited meanwhile.
            let _ = tx.send(DriverMessage::Gpus {
                act,
                order,
                looks,
                said,
            });
        });
    }

    /// The GPUs that the workers' environment will name.
    fn named_gpus(&self) -> GpuIds {
        GpuIds::read(&self.visible().unwrap_or_default()).without(&self.gpus.left_out)
    }

    /// The variable for workers that do not get all GPUs of the run.
    pub(super) fn fewer_gpus(&self) -> Option<(String, String)> {
        let fewer = !self.gpus.left_out.is_empty();
        fewer.then(|| (VISIBLE.to_owned(), self.named_gpus().list()))
    }

    /// Excludes unfit GPUs as long as each worker has one.
    fn leave_out_unfit(&mut self, attempt: AttemptNo, seen: &GpuReport, before: &BTreeMap<String, u64>) {
        let gang = &self.spec.gang;
        if gang.launcher != LauncherKind::Gang {
            return;
        }
        let needed = usize::try_from(gang.per_node()).unwrap_or(usize::MAX);
        let new = spared(&self.named_gpus(), needed, &seen.devices, before);
        if !new.is_empty() {
            self.gpus.left_out.extend(new);
            self.forget_what_is_ready();
        }
        let named = |(word, why): (&String, &String)| match word.starts_with("GPU-") {
            true => (word.clone(), why.clone()),
            false => (format!("GPU {word}"), why.clone()),
        };
        let lost: Vec<(String, String)> = self.gpus.left_out.iter().map(named).collect();
        if !lost.is_empty() {
            let nodes = Vec::new();
            let news = NodesNews::On { nodes, lost };
            self.feed(EventKind::Nodes { attempt, news });
        }
    }

    /// The value for the workers; `None`: it is not set and all GPUs are visible.
    fn visible(&self) -> Option<String> {
        let gang = &self.spec.gang.gpus;
        if !gang.is_empty() {
            let all: Vec<String> = gang.iter().map(u32::to_string).collect();
            return Some(all.join(","));
        }
        let learnt = self.spec.learnt.iter().find_map(|l| l.env.get(VISIBLE));
        let said = learnt.or_else(|| self.spec.env.get(VISIBLE)).cloned();
        said.or_else(|| std::env::var(VISIBLE).ok())
    }

    /// Continues the launch, or delays it. A GPU driver that does not answer is no reason to wait: the trainer would not wait
    /// either.
    pub(super) fn on_gpus(&mut self, act: ActId, order: LaunchOrder, looks: usize, said: Result<GpuReport, String>) {
        let seen = match said {
            Ok(seen) => seen,
            Err(why) => {
                if !std::mem::replace(&mut self.gpus.told, true) {
                    self.printer
                        .note(&format!("the GPUs are not looked at before a launch: {why}"));
                }
                return self.launch_from(act, order);
            }
        };
        let counted = || {
            let errors = seen.devices.iter().filter_map(|d| Some((d.uuid.clone(), d.errors?)));
            errors.collect()
        };
        let named = self.named_gpus();
        // Only the first check says so.
        if let Some(text) = remark(&named, &seen.devices) {
            self.printer.note(&text);
        }
        let before = self.gpus.before.get_or_insert_with(counted).clone();
        self.leave_out_unfit(order.attempt, &seen, &before);
        let named = self.named_gpus();
        let Some(error) = in_the_way(&named, &seen.devices, &seen.owners, &before) else {
            return self.launch_from(act, order);
        };
        let is_wanted = matches!(self.state.mode, RunMode::Launching { .. });
        match looks_again(&error, looks).filter(|_| is_wanted) {
            Some(pause) => self.look_at_gpus(act, order, named, looks + 1, pause),
            None => self.feed(EventKind::ActDone {
                act,
                result: Err(error),
            }),
        }
    }

    /// Starts to follow GPU activity until the term ends, if the run has GPUs and does not share them. If it names none, all are
    /// followed and none counts as its own. If the program hangs or exits, the next attempt starts it again.
    pub(super) fn follow_gpus(&mut self) {
        let named = self.named_gpus();
        let all = self.visible().is_none() && std::path::Path::new("/dev/nvidiactl").exists();
        let own = !named.is_empty();
        let here = self.spec.gang.nodes <= 1 && !matches!(self.order.facts.ray, RayMode::Cluster { .. });
        let attempt = self.state.attempt.as_ref().map(|a| a.no);
        let is_new = !self.gpus.followed && self.gpus.asked != attempt;
        if !is_new || !here || !self.spec.policy.check_gpus || !(own || all) {
            return;
        }
        self.gpus.asked = attempt;
        let Ok(mut program) = Command::from(follow(&named)).kill_on_drop(true).spawn() else {
            return;
        };
        let (Some(mut output), tx) = (program.stdout.take(), self.internal.clone()) else {
            return;
        };
        self.gpus.followed = true;
        tokio::spawn(async move {
            let (mut pulses, mut told) = (DeviceWindow::default(), Instant::now());
            let (mut unread, mut chunk) = (Vec::new(), [0; LINE]);
            while let Ok(Ok(n @ 1..)) = timeout(HANGS, output.read(&mut chunk)).await {
                unread.extend(chunk.iter().take(n));
                while let Some(end) = unread.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = unread.drain(..=end).collect();
                    pulse(&String::from_utf8_lossy(&line))
                        .into_iter()
                        .for_each(|p| pulses.add(DevicePulse { own, ..p }));
                }
                if unread.len() > LINE {
                    break;
                }
                if told.elapsed() >= TELL {
                    told = Instant::now();
                    // The driver may have exited meanwhile.
                    let _ = tx.send(DriverMessage::Devices(Some(pulses.take())));
                }
            }
            let _ = tx.send(DriverMessage::Devices(None));
            let _ = program.start_kill();
            let _ = program.wait().await;
        });
    }

    /// Handles GPU activity; `None`: the program no longer reports any.
    pub(super) fn on_devices(&mut self, pulses: Option<Vec<DevicePulse>>) {
        match pulses {
            None => self.gpus.followed = false,
            Some(pulses) => {
                if let Some(link) = self.guard.as_mut().filter(|l| l.takes_devices && !l.gone) {
                    link.say(&ToGuard::Devices(pulses));
                }
            }
        }
    }
}
