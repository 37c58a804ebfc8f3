//! Samples resources that can run out: memory and open files at new steps, the checkpoint disk at new saves.

use super::Driver;
use super::io_workers::IoPurpose;
use supervise_core::checkpoint::Verdict;
use supervise_core::event::{ActError, EventKind};
use supervise_core::id::{AttemptNo, Step};
use supervise_core::observe::creep::{ResourceUsage, WatchedResource};
use supervise_core::state::{Attempt, RunMode};
use supervise_host::io_worker::{IoAnswer, IoQuestion, PathAnswer, PathQuery};
use supervise_host::process::usage;
use supervise_trainers::RayMode;

/// Default share of the memory beyond which Ray kills workers.
const RAY_SHARE: f64 = 0.95;

impl Driver {
    /// Samples resource usage now and then, at a new step.
    pub(super) fn sample(&mut self, attempt: AttemptNo, step: Option<Step>, files: Option<ResourceUsage>) {
        let now = self.now();
        let due = |a: &&Attempt| step.is_some_and(|step| a.training.creep.is_due(step, now));
        let live = self.state.live().filter(|a| a.no == attempt).filter(due);
        let pid = live.and_then(|a| a.launch.workers.first()).map(|p| p.pid);
        if let (Some(step), Some(pid), RunMode::Running) = (step, pid, &self.state.mode) {
            let usage = usage(pid, self.ray_share()).into_iter().chain(files).collect();
            self.feed(EventKind::Used { attempt, step, usage });
        }
    }

    /// The share of the memory beyond which Ray kills workers on this machine; `None`: no Ray, or it kills none.
    fn ray_share(&self) -> Option<f64> {
        let set = |name: &str| {
            let ours = self.spec.env.iter().find(|(key, _)| *key == name);
            ours.map(|(_, value)| value.clone())
                .or_else(|| std::env::var(name).ok())
        };
        if matches!(self.order.facts.ray, RayMode::Unused | RayMode::Submitted) {
            return None;
        }
        if set("RAY_memory_monitor_refresh_ms").is_some_and(|ms| ms.trim() == "0") {
            return None;
        }
        let share = set("RAY_memory_usage_threshold").and_then(|share| share.trim().parse::<f64>().ok());
        Some(share.filter(|s| (0.01..=1.0).contains(s)).unwrap_or(RAY_SHARE))
    }

    /// Asks for the disk usage after a scan that found a new save.
    pub(super) fn sample_disk(&mut self) {
        let steps = self.state.disk.scan.iter().flat_map(|scan| &scan.steps);
        let newest = steps.filter(|c| c.verdict == Verdict::Whole).map(|c| c.step).max();
        let due = |a: &&Attempt| {
            newest.is_some_and(|saved| saved > a.order.from.step() && a.training.creep.is_disk_due(saved))
        };
        let attempt = self.state.live().filter(due).map(|a| a.no);
        let is_asked = self.work.asks(|tag| matches!(tag, IoPurpose::Usage(..)));
        if let (Some(attempt), Some(saved), Some(root), RunMode::Running, false) =
            (attempt, newest, self.spec.root.clone(), &self.state.mode, is_asked)
        {
            let now = self.now();
            let look = IoQuestion::Look(PathQuery::Usage(root));
            self.work.ask(IoPurpose::Usage(attempt, saved), look, now);
        }
    }

    pub(super) fn on_disk_usage(&mut self, attempt: AttemptNo, step: Step, answer: Result<IoAnswer, ActError>) {
        if let Ok(IoAnswer::Seen(Ok(PathAnswer::Usage(Some((used, of)))))) = answer {
            let what = WatchedResource::Disk;
            let usage = vec![ResourceUsage { what, used, of }];
            self.feed(EventKind::Used { attempt, step, usage });
        }
    }
}
