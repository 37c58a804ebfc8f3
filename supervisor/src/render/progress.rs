//! Where a run stands: step, pace, time since its last progress, and what happens when. All screens, the page and `--json`
//! show this.

use super::name::run_name;
use super::time::{local_stamp, span};
use serde::Serialize;
use supervise_core::decide::stall_limits::StallLimits;
use supervise_core::event::TrainerPhase;
use supervise_core::id::{Ms, Tick, WallMs};
use supervise_core::journal::record::WaitCondition;
use supervise_core::ledger::{TimeCategory, TimeLedger};
use supervise_core::resume::last_step;
use supervise_core::spec::RunSpec;
use supervise_core::state::{Attempt, RunMode, RunState};

/// Steps that must be trained before an end is predicted.
const ENOUGH: u64 = 3;

/// Whether an attempt makes progress as it did before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressPace {
    OnTime,
    /// The current phase has lasted longer than this run has shown it to need.
    Late,
    /// The soft limit is over: the attempt is ended once its processes are seen to be stuck.
    Overdue,
    /// No line of the command shows a step, so a hang is not noticed.
    Unwatched,
}

/// What the supervisor does next by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextActKind {
    /// It ends the attempt and starts the next one, unless there is progress.
    Restart,
    /// It only reports the hang (`--observe`).
    Report,
    /// It launches the next attempt.
    Launch,
    /// It stops the workers, whether the save has ended or not.
    Stop,
}

/// An act that is due at a known time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextAct {
    pub what: NextActKind,
    /// Time until then; a restart also needs processes that are seen to be stuck.
    pub in_ms: Ms,
    /// Time until it happens in any case; `null`: the same, or never.
    pub latest_ms: Option<Ms>,
}

/// Where a run stands at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgressReport {
    pub name: String,
    /// Newest printed step of the current or last attempt, or else the newest proven one.
    pub step: Option<u64>,
    pub planned: Option<u64>,
    /// What the running attempt is doing.
    pub phase: Option<TrainerPhase>,
    /// Usual time of a step.
    pub step_ms: Option<Ms>,
    /// Usual duration of the current phase.
    pub usual_ms: Option<Ms>,
    /// Time since the running attempt last made progress.
    pub since_ms: Option<Ms>,
    /// From this time on it counts as late, by what the run has shown.
    pub late_ms: Option<Ms>,
    /// `null`: no attempt runs, or nobody watches it.
    pub pace: Option<ProgressPace>,
    pub next: Option<NextAct>,
    /// Time since the first launch, up to the end of the run.
    pub elapsed_ms: Option<Ms>,
    /// When the last planned step is reached at the average pace so far, in ms since 1970.
    pub eta: Option<WallMs>,
}

impl ProgressReport {
    /// Where the run stands at `now`. `watched`: its supervisor is running.
    #[must_use]
    pub fn of(s: &RunState, spec: &RunSpec, ledger: &TimeLedger, watched: bool, now: WallMs) -> Self {
        let clock = ProgressClock::new(s, now);
        let launched = s.live().filter(|a| a.launch.launched.is_some());
        let running = launched.filter(|_| matches!(s.mode, RunMode::Running | RunMode::Draining { .. }));
        let watching = running.filter(|_| watched && s.mode == RunMode::Running && !s.is_held());
        let limits = running.map(|a| StallLimits::new(s, spec, a));
        let pace = watching.and_then(|a| pace(s, &StallLimits::new(s, spec, a), clock.tick));
        let printed = s.attempt.as_ref().and_then(|a| a.training.step);
        let step = printed.or(s.progress.mark);
        let planned = last_step(s, spec);
        let since = launched.map(|a| clock.tick.since(a.training.last_progress));
        let over = s.outcome.is_some();
        Self {
            name: run_name(spec.name.as_deref(), spec.root.as_deref(), &spec.command),
            step: step.map(|n| n.0),
            planned: planned.map(|n| n.0),
            phase: running.map(|a| a.training.phase),
            step_ms: s.clocks.step_time(),
            usual_ms: limits.and_then(|l| l.usual()),
            since_ms: since.filter(|_| clock.known),
            late_ms: limits
                .filter(|_| pace != Some(ProgressPace::Unwatched))
                .map(|l| l.late()),
            pace,
            next: Some(clock)
                .filter(|c| watched && c.known)
                .and_then(|c| next_act(s, spec, pace, c.tick)),
            elapsed_ms: ledger.began().map(|began| {
                let until = if over || !watched { s.wall } else { now };
                between(began, until)
            }),
            eta: watching
                .filter(|_| pace == Some(ProgressPace::OnTime))
                .and_then(|a| eta(a, planned?.0, ledger, &clock, now)),
        }
    }

    /// True if there was no progress for longer than the run has shown to be usual.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self.pace, Some(ProgressPace::Late | ProgressPace::Overdue))
    }

    /// `no step for 2m 10s; usually 200 ms; restart in 1m 10s`; `None`: it is not late.
    #[must_use]
    pub fn late_words(&self) -> Option<String> {
        let since = self.since_ms.filter(|_| self.is_late())?;
        let mut words = format!("{} for {}", missing(self.phase), span(since));
        if let Some(usual) = self.usual_ms {
            words.push_str(&format!("; usually {}", span(usual)));
        }
        if let Some(next) = &self.next {
            words.push_str(&format!("; {}", next.words()));
        }
        Some(words)
    }

    /// `step 8 of 400, usually 200 ms`; `None`: no step is known.
    #[must_use]
    pub fn step_words(&self) -> Option<String> {
        let of = self.planned.map(|n| format!(" of {n}")).unwrap_or_default();
        let usual = self.step_ms.map(|ms| format!(", usually {} a step", span(ms)));
        Some(format!("step {}{of}{}", self.step?, usual.unwrap_or_default()))
    }

    /// The facts about a run that is not over, as rows of a screen. `now`: when it was read.
    pub(super) fn rows(&self, now: Option<WallMs>) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if self.phase.is_some() {
            let since = self.since_ms.map(|ms| format!("last progress {} ago", span(ms)));
            let unwatched = (self.pace == Some(ProgressPace::Unwatched))
                .then(|| "no line shows a step, so a hang is not noticed".to_owned());
            let words: Vec<String> = [self.step_words(), since, unwatched].into_iter().flatten().collect();
            rows.push(("training", words.join("; ")));
        }
        match &self.next {
            Some(next) if !self.is_late() => {
                let unless = match next.what {
                    NextActKind::Restart | NextActKind::Report => " unless it makes progress",
                    NextActKind::Launch | NextActKind::Stop => "",
                };
                rows.push(("next", format!("{}{unless}", next.words())));
            }
            _ => {}
        }
        if let Some(elapsed) = self.elapsed_ms {
            rows.push(("elapsed", span(elapsed)));
        }
        rows.extend(now.and_then(|now| self.eta_words(now)).map(|words| ("ends", words)));
        rows
    }

    /// `8/400`, or `-`.
    #[must_use]
    pub fn step_cell(&self) -> String {
        let of = self.planned.map(|n| format!("/{n}")).unwrap_or_default();
        self.step.map_or_else(|| "-".to_owned(), |n| format!("{n}{of}"))
    }

    /// Time from `now` to the predicted end.
    #[must_use]
    pub fn left(&self, now: WallMs) -> Option<Ms> {
        Some(between(now, self.eta?))
    }

    /// `in about 2h 5m, at 2026-11-21T14:05:00+01:00`.
    #[must_use]
    pub fn eta_words(&self, now: WallMs) -> Option<String> {
        Some(format!(
            "in about {}, at {}",
            span(self.left(now)?),
            local_stamp(self.eta?)
        ))
    }
}

impl NextAct {
    #[must_use]
    pub fn words(&self) -> String {
        let what = match self.what {
            NextActKind::Restart => "restart",
            NextActKind::Report => "reported",
            NextActKind::Launch => "next attempt",
            NextActKind::Stop => "stopped",
        };
        match (self.in_ms, self.latest_ms) {
            (Ms(0), Some(latest)) => format!(
                "{what} once its processes are seen to be stuck, in {} at the latest",
                span(latest)
            ),
            (Ms(0), None) if matches!(self.what, NextActKind::Restart | NextActKind::Report) => {
                format!("{what} once its processes are seen to be stuck")
            }
            (Ms(0), None) => format!("{what} now"),
            (left, _) => format!("{what} in {}", span(left)),
        }
    }
}

/// `now` on the clock of the term.
#[derive(Debug, Clone, Copy)]
struct ProgressClock {
    tick: Tick,
    known: bool,
}

impl ProgressClock {
    fn new(s: &RunState, now: WallMs) -> Self {
        Self {
            tick: s.now.after(between(s.wall, now)),
            known: s.wall != WallMs(0),
        }
    }
}

fn between(from: WallMs, to: WallMs) -> Ms {
    Ms(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or_default())
}

fn pace(s: &RunState, limits: &StallLimits<'_>, now: Tick) -> Option<ProgressPace> {
    if s.wall == WallMs(0) {
        return None;
    }
    Some(match limits {
        l if l.is_over() => ProgressPace::OnTime,
        l if l.is_unwatched() => ProgressPace::Unwatched,
        l if l.is_overdue(now) => ProgressPace::Overdue,
        l if l.is_late(now) => ProgressPace::Late,
        _ => ProgressPace::OnTime,
    })
}

fn next_act(s: &RunState, spec: &RunSpec, pace: Option<ProgressPace>, now: Tick) -> Option<NextAct> {
    let at = |what, until: Tick| NextAct {
        what,
        in_ms: until.since(now),
        latest_ms: None,
    };
    match &s.mode {
        RunMode::Waiting {
            what: WaitCondition::Backoff,
            until,
        } => Some(at(NextActKind::Launch, *until)),
        RunMode::Draining { until, .. } => Some(at(NextActKind::Stop, *until)),
        RunMode::Running => {
            let limits = StallLimits::new(s, spec, s.live()?);
            if !matches!(pace?, ProgressPace::OnTime | ProgressPace::Late | ProgressPace::Overdue) || limits.is_over() {
                return None;
            }
            let waited = limits.waited(now);
            let left = |limit: Ms| Ms(limit.0.saturating_sub(waited.0));
            Some(NextAct {
                what: if spec.policy.start.observe {
                    NextActKind::Report
                } else {
                    NextActKind::Restart
                },
                in_ms: limits
                    .hard()
                    .map_or(left(limits.soft()), |hard| left(limits.soft().min(hard))),
                latest_ms: limits.latest().map(left),
            })
        }
        _ => None,
    }
}

/// When the last planned step is reached, at the average time of a step so far with saves and validations.
fn eta(a: &Attempt, planned: u64, ledger: &TimeLedger, clock: &ProgressClock, now: WallMs) -> Option<WallMs> {
    let left = planned.checked_sub(a.training.step?.0).filter(|left| *left > 0)?;
    let (parts, trained) = (ledger.parts(), ledger.trained());
    let steps = trained.new.saturating_add(trained.again);
    if steps < ENOUGH {
        return None;
    }
    let spent: u64 = [TimeCategory::Productive, TimeCategory::Repeated, TimeCategory::Saving]
        .into_iter()
        .map(|part| parts.of(part).0)
        .sum();
    let all = u128::from(spent) * u128::from(left) / u128::from(steps);
    let since = clock.tick.since(a.training.last_progress).0;
    // Past the predicted end, nothing is known of the real one.
    let more = u64::try_from(all).unwrap_or(u64::MAX).checked_sub(since)?;
    Some(WallMs(now.0.saturating_add(i64::try_from(more).unwrap_or(i64::MAX))))
}

fn missing(phase: Option<TrainerPhase>) -> &'static str {
    match phase {
        Some(TrainerPhase::Startup) => "no first step",
        Some(TrainerPhase::Save) => "saving",
        Some(TrainerPhase::Validate) => "validating",
        Some(TrainerPhase::Exit) => "ending",
        Some(TrainerPhase::Step) | None => "no step",
    }
}
