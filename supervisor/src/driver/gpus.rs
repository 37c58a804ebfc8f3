//! Before a launch: are the GPUs that the run names there, empty and sound? While it trains: what do they do?

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

/// The variable that names a worker's devices.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The guard is told of the devices' work so often: twice in each of its windows.
const TELL: Duration = Duration::from_secs(5);
/// An answer comes each second; a program that gives none for so long hangs.
const HANGS: Duration = Duration::from_secs(15);
/// Longest answer for one device.
const LINE: usize = 4096;

/// Facts about the devices in this term.
#[derive(Debug, Default)]
pub(super) struct GpuWatch {
    /// Errors that each had counted at the first look.
    before: Option<BTreeMap<String, u64>>,
    /// That nobody answers was told.
    told: bool,
    /// Somebody says what they do.
    followed: bool,
    /// The last attempt for which somebody was asked to.
    asked: Option<AttemptNo>,
    /// Those that are not fit, each with the reason: others that the run names take their place.
    left_out: BTreeMap<String, String>,
}

impl Driver {
    /// Looks at them, off the loop; `false`: none is named here.
    pub(super) fn ask_gpus(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let named = self.named_gpus();
        if !self.spec.policy.check_gpus || named.is_empty() || order.nodes > 1 {
            return false;
        }
        self.look_at_gpus(act, order.clone(), named, 1, Ms(0));
        true
    }

    /// The look of this number, after a pause.
    fn look_at_gpus(&self, act: ActId, order: LaunchOrder, named: GpuIds, looks: usize, pause: Ms) {
        let tx = self.internal.clone();
        // Once a term: it takes as long as all else.
        let rows = self.gpus.before.is_none();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause.0)).await;
            let Ok(said) = tokio::task::spawn_blocking(move || look(&named, rows)).await else {
                return;
            };
            // The driver may have ended meanwhile.
            let _ = tx.send(DriverMessage::Gpus {
                act,
                order,
                looks,
                said,
            });
        });
    }

    /// As the workers' environment will name them.
    fn named_gpus(&self) -> GpuIds {
        GpuIds::read(&self.visible().unwrap_or_default()).without(&self.gpus.left_out)
    }

    /// The variable for workers that do not get all that the run names.
    pub(super) fn fewer_gpus(&self) -> Option<(String, String)> {
        let fewer = !self.gpus.left_out.is_empty();
        fewer.then(|| (VISIBLE.to_owned(), self.named_gpus().list()))
    }

    /// Leaves those out that are not fit, as long as each worker has one.
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

    /// `None`: nothing is said, and all can be seen.
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

    /// The launch goes on, or waits. A driver that does not answer is no reason to wait: the trainer would not either.
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
        // Known by the first look alone.
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

    /// Begins to ask what they do, until the term ends, where there are any and the run does not share them. Where it names none, all are
    /// asked, and none is called its own. A program that hangs or ends leaves us without: the next attempt asks again.
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
                    // The driver may have ended meanwhile.
                    let _ = tx.send(DriverMessage::Devices(Some(pulses.take())));
                }
            }
            let _ = tx.send(DriverMessage::Devices(None));
            let _ = program.start_kill();
            let _ = program.wait().await;
        });
    }

    /// They did this, or nobody says any more.
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
