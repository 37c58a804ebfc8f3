//! What will next run out and end the run, and when.

use crate::checkpoint::{CheckpointSummary, Verdict};
use crate::id::{Ms, Step};
use crate::observe::creep::{Creep, Forecast, WatchedResource};
use crate::resume::last_step;
use crate::resume::save_interval;
use crate::spec::RunSpec;
use crate::state::RunState;

/// A shortage that ends the run before its planned end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunDanger {
    /// The resource, and the last step it lasts for.
    pub forecast: Forecast,
    /// For a disk, the first save that no longer fits.
    pub save: Option<Step>,
    /// Time left at the current pace, if known.
    pub left: Option<Ms>,
}

impl RunDanger {
    /// A sentence for display.
    #[must_use]
    pub fn words(&self) -> String {
        let f = &self.forecast;
        let when = self
            .left
            .map(|ms| format!(", in about {}", about(ms)))
            .unwrap_or_default();
        match (f.what, self.save) {
            (WatchedResource::Files, _) => format!(
                "open files: one process has {} of {}, {:.1} more a step, which lasts until step {}{when}",
                f.used, f.of, f.per_step, f.until
            ),
            (WatchedResource::Disk, Some(save)) => format!(
                "the disk of the checkpoints: {} are free, {} less each step; the save of step {save} will not fit{when}",
                amount(f.left()),
                amount(f.per_step as u64)
            ),
            _ => format!(
                "{} shrinks by {} a step; {} are left, which lasts until step {}{when}",
                f.what.words(),
                amount(f.per_step as u64),
                amount(f.left()),
                f.until
            ),
        }
    }
}

/// Bytes of the largest whole save; 0 if there is none.
#[must_use]
pub fn largest_save(s: &RunState) -> u64 {
    let steps = s.disk.scan.iter().flat_map(|scan| &scan.steps);
    let whole = steps.filter(|c| c.verdict == Verdict::Whole && !c.id.0.is_absolute());
    whole.map(|c| c.bytes).max().unwrap_or_default()
}

/// Space that the next save needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveRoom {
    pub bytes: u64,
    /// Files and directories; 0 if no save was seen yet.
    pub files: u64,
}

/// Space for a save if none was seen yet: the most that a disk check tries to allocate.
const UNSEEN: u64 = 1 << 20;

/// Space for the next save: as much as the largest whole one needs, and a little more.
#[must_use]
pub fn save_room(s: &RunState) -> SaveRoom {
    let largest = largest_save(s);
    let steps = s.disk.scan.iter().flat_map(|scan| &scan.steps);
    let whole = steps.filter(|c| c.verdict == Verdict::Whole && !c.id.0.is_absolute());
    // Its own directory, and one per role.
    let of = |c: &CheckpointSummary| u64::from(c.files).saturating_add(1 + c.roles.len() as u64);
    SaveRoom {
        bytes: match largest {
            0 => UNSEEN,
            n => n.saturating_add(n / 20),
        },
        files: whole.map(of).max().unwrap_or_default(),
    }
}

/// Shortages for the current attempt, soonest first. A resource that outlasts the run is none.
#[must_use]
pub fn dangers(s: &RunState, spec: &RunSpec) -> Vec<RunDanger> {
    let Some(a) = s.live() else {
        return Vec::new();
    };
    let last = last_step(s, spec);
    let all = a.training.creep.forecasts(largest_save(s)).into_iter();
    let before = all.filter(|f| last.is_none_or(|last| f.until < last));
    before
        .map(|forecast| {
            let every = save_interval(s, spec).filter(|every| *every > 0 && forecast.what == WatchedResource::Disk);
            RunDanger {
                save: every.map(|every| Step((forecast.until.0 / every).saturating_add(1).saturating_mul(every))),
                left: left(&a.training.creep, forecast.until, a.training.step),
                forecast,
            }
        })
        .collect()
}

/// The next shortage for the current attempt.
#[must_use]
pub fn next_danger(s: &RunState, spec: &RunSpec) -> Option<RunDanger> {
    dangers(s, spec).into_iter().next()
}

fn left(creep: &Creep, until: Step, now: Option<Step>) -> Option<Ms> {
    let steps = until.0.saturating_sub(now?.0);
    Some(Ms(creep.step_time()?.0.saturating_mul(steps)))
}

fn about(ms: Ms) -> String {
    match ms.0 / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

pub(crate) fn amount(bytes: u64) -> String {
    match bytes {
        n if n >= 10 << 30 => format!("{} GiB", n >> 30),
        n if n >= 10 << 20 => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}
