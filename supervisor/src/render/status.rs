//! The status of a run, as text and as stable JSON.

mod attempt;
mod job;
mod kept;
mod loss;
mod trend;

pub use attempt::{AttemptView, SaveRequestView, phase_word};
pub use job::JobView;
pub use kept::KeptView;
pub use loss::LossView;
pub use trend::MetricTrend;
pub(super) use trend::short;

use super::condition;
use super::danger::DangerView;
use super::elsewhere::RemoteSupervisor;
use super::ledger::LedgerView;
use super::outcome::{outcome_in, proven_word, reason_words};
use super::progress::ProgressReport;
use super::record::rehearsed;
use super::terminal::shown;
use super::time::{local_stamp, span};
use super::{count, one_line, shown_command};
use serde::Serialize;
use std::collections::BTreeMap;
use supervise_core::checkpoint::tally;
use supervise_core::decide::save_requests::cannot_save;
use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::id::WallMs;
use supervise_core::journal::reason::Reason;
use supervise_core::spec::RunSpec;
use supervise_core::spec::gang::lost_words;
use supervise_core::state::{LetGo, RollBack, RunHold, RunMode, RunState};
use supervise_host::process::LeftoverProcess;

/// Whether a process is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Liveness {
    pub alive: bool,
    pub pid: Option<i32>,
    /// Suspended by `^Z` or SIGSTOP.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeView {
    pub word: &'static str,
    pub exit_code: u8,
    pub why: String,
}

/// The state of a run. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusView {
    pub version: u32,
    pub run: String,
    /// Canonical checkpoint root.
    pub root: Option<String>,
    pub run_dir: Option<String>,
    /// `verl-ppo`, `verl-sft`, `plain`.
    pub trainer: Option<String>,
    pub term: u32,
    /// What the supervisor did last.
    pub mode: &'static str,
    pub supervisor: Liveness,
    /// The supervisor, if it runs on another machine or in another container and cannot be reached from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<RemoteSupervisor>,
    pub guard: Liveness,
    /// Attempts launched over the whole run.
    pub attempts: u32,
    /// Launches after the end of an attempt, without those that began with a start of the run.
    pub restarts: u32,
    pub attempt: Option<AttemptView>,
    /// The highest step ever proven.
    pub mark: Option<u64>,
    /// Attempts without progress since then.
    pub charged: u32,
    /// How many of those are allowed.
    pub retries: Option<u32>,
    pub outcome: Option<OutcomeView>,
    pub reasons: Vec<Reason>,
    pub last_step: Option<u64>,
    /// Steps on disk by verdict, as last scanned.
    pub checkpoints: BTreeMap<&'static str, u32>,
    /// Copies of the only checkpoint, if the trainer overwrites it; `null`: the trainer keeps each step itself.
    pub kept: Option<KeptView>,
    /// When the mode began, in ms since 1970.
    pub since: Option<i64>,
    /// When the current attempt last made progress; `null`: none is running.
    pub last_progress: Option<WallMs>,
    /// Why something could not be determined.
    pub problem: Option<String>,
    /// Result of the last relaunch rehearsal; `null`: there was none.
    pub rehearsal: Option<RehearsalResult>,
    pub scheduler: Option<JobView>,
    /// The next forecast shortage; `null`: none known.
    pub danger: Option<DangerView>,
    /// What a failure can cost, if `max_loss` promises something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossView>,
    /// Running processes that SIGKILL did not end.
    pub undead: Vec<LeftoverProcess>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<RunHold>,
    /// The operator cleared a final failure: the next start resumes the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub let_go: Option<LetGo>,
    /// The operator rolled the run back: the next start resumes there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roll_back: Option<RollBack>,
    /// Wall time by category; `null`: nothing was launched, or nothing is known.
    pub ledger: Option<LedgerView>,
    /// Where the run stands; `null`: its specification is not known.
    pub progress: Option<ProgressReport>,
    /// Whether a save can be asked for.
    #[serde(skip)]
    pub takes_saves: bool,
    #[serde(skip)]
    pub trends: Vec<MetricTrend>,
    /// The command of a run without a checkpoint root.
    #[serde(skip)]
    command: Option<String>,
    #[serde(skip)]
    proven_word: &'static str,
    #[serde(skip)]
    waits_for: Option<&'static str>,
    #[serde(skip)]
    pub(crate) now: Option<WallMs>,
    /// When the state was read; ages count from it.
    #[serde(skip)]
    pub looked: Option<WallMs>,
}

/// Which processes of a run are running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunLiveness {
    pub supervisor: Liveness,
    pub guard: Liveness,
}

impl StatusView {
    /// A run of which only its processes are known.
    #[must_use]
    pub fn unknown(run: &str, alive: RunLiveness, problem: String) -> Self {
        let mut view = Self::of(run, &RunState::default(), None, alive);
        view.mode = "unknown";
        view.since = None;
        view.problem = Some(problem);
        view
    }

    /// The status from the run's state.
    #[must_use]
    pub fn of(run: &str, s: &RunState, spec: Option<&RunSpec>, alive: RunLiveness) -> Self {
        let ago = i64::try_from(s.now.since(s.since).0).unwrap_or(i64::MAX);
        let known = s.wall != WallMs(0);
        Self {
            version: 1,
            run: run.to_owned(),
            root: spec.and_then(|p| p.root.as_ref()).map(ToString::to_string),
            run_dir: spec.map(|p| p.run_dir.to_string()),
            trainer: spec.map(|p| p.trainer.to_string()),
            term: s.term.0,
            mode: s.mode.word(),
            supervisor: alive.supervisor,
            elsewhere: None,
            guard: alive.guard,
            attempts: s.attempts.0,
            restarts: s.restarts,
            attempt: s.attempt.as_ref().map(AttemptView::of),
            mark: s.progress.mark.map(|m| m.0),
            charged: s.budget.charged,
            retries: spec.map(|p| p.policy.failure.retries),
            outcome: s.outcome.as_ref().map(|o| OutcomeView {
                word: o.word(),
                exit_code: s.exit_code().unwrap_or_else(|| o.exit_code()),
                why: outcome_in(o, s),
            }),
            reasons: s.why.clone(),
            last_step: spec.and_then(|p| p.last_step).or(s.progress.total).map(|l| l.0),
            checkpoints: s.disk.scan.as_ref().map(|c| tally(&c.steps)).unwrap_or_default(),
            kept: spec.and_then(|p| KeptView::of(s, p)),
            last_progress: s.live().filter(|a| a.launch.launched.is_some() && known).map(|a| {
                let ago = i64::try_from(s.now.since(a.training.last_progress).0).unwrap_or(i64::MAX);
                WallMs(s.wall.0.saturating_sub(ago))
            }),
            since: known.then(|| s.wall.0.saturating_sub(ago)),
            rehearsal: s.rehearsal.as_ref().map(|r| r.result.clone()),
            scheduler: s.context.allocation.as_ref().map(|a| JobView {
                name: "slurm",
                job: a.job.clone(),
                restarts: a.restarts,
                ends: a.ends.map(|at| at.0),
            }),
            problem: if alive.supervisor.alive { trouble(s) } else { None },
            danger: spec.and_then(|p| DangerView::of(s, p)),
            loss: spec.and_then(|p| LossView::of(s, p)),
            undead: Vec::new(),
            ledger: None,
            progress: None,
            takes_saves: spec.is_some_and(|p| cannot_save(s, p).is_none()),
            trends: MetricTrend::of(s),
            command: spec.filter(|p| p.root.is_none()).map(|p| shown_command(&p.command)),
            proven_word: proven_word(s),
            waits_for: match &s.mode {
                RunMode::Waiting { what, .. } => Some(condition::thing(what)),
                _ => None,
            },
            held: s.requests.held.clone(),
            let_go: s.requests.let_go.clone(),
            roll_back: s.requests.roll_back.clone(),
            now: known.then_some(s.wall),
            looked: None,
        }
    }

    pub(super) fn because(&self) -> impl Iterator<Item = String> {
        let told = self.outcome.as_ref().map(|o| o.why.as_str()).unwrap_or_default();
        let new = self.reasons.iter().filter(move |r| !told.contains(r.text.trim()));
        new.map(|r| reason_words(r, self.mark))
    }

    /// Returns true if its supervisor is running, here or on another machine.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.supervisor.alive || self.elsewhere.is_some()
    }

    /// Name of the run.
    #[must_use]
    pub fn name(&self) -> &str {
        self.progress.as_ref().map_or(&self.run, |p| &p.name)
    }

    /// Its checkpoint root, or its command, or its run directory.
    #[must_use]
    pub fn place(&self) -> String {
        let place = self.root.as_ref().or(self.command.as_ref()).or(self.run_dir.as_ref());
        shown(place.unwrap_or(&self.run))
    }

    /// When it was first launched, for an order that stays.
    #[must_use]
    pub fn began(&self) -> Option<WallMs> {
        self.ledger.as_ref().map(|l| l.began)
    }

    /// The first line: what the run is doing.
    #[must_use]
    pub fn headline(&self) -> String {
        if let Some(o) = &self.outcome {
            return format!("{} (exit code {})", o.word.replace('_', " "), o.exit_code);
        }
        if let (true, Some(pid)) = (self.supervisor.stopped, self.supervisor.pid) {
            return format!("its supervisor is suspended: nothing is watched until `fg` or `kill -CONT {pid}`");
        }
        let late = self.progress.as_ref().and_then(ProgressReport::late_words);
        let mode = match (self.waits_for, late) {
            (Some(what), _) => format!("{} for {what}", self.mode),
            (None, Some(late)) => format!("{}, but {late}", self.mode),
            (None, None) => self.mode.to_owned(),
        };
        match (self.supervisor.alive, self.guard.alive) {
            (true, _) => mode,
            (false, false) if let Some(e) = &self.elsewhere => format!("{mode}, on {}", e.host),
            (false, true) => format!("no supervisor; workers still running under the guard (was: {mode})"),
            (false, false) if self.problem.is_some() => "no supervisor and no guard of this user's".to_owned(),
            (false, false) => format!("not running (was: {mode})"),
        }
    }

    /// The status as text, one fact per line.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_with(false)
    }

    /// The same, with curves of loss and reward if asked for.
    #[must_use]
    pub fn text_with(&self, curves: bool) -> String {
        let mut out = format!("run {}: {}\n", self.run, self.headline());
        let mut row = |name: &str, value: String| out.push_str(&format!("  {name:<12} {}\n", shown(&value)));
        if let Some(progress) = &self.progress {
            row("name", progress.name.clone());
        }
        if let Some(problem) = &self.problem {
            row("problem", problem.clone());
        }
        if let Some(held) = self.held.as_ref() {
            let ages = self
                .age(held.since.0)
                .map_or_else(String::new, |age| format!(" ({age})"));
            // After an outcome the hold keeps the next start from launching.
            let after = if self.outcome.is_some() {
                "; its next start waits"
            } else {
                ""
            };
            row("held", one_line(&format!("{}{ages}{after}", held.words()), 600));
        }
        if let Some(let_go) = &self.let_go {
            row("next start", one_line(&let_go.words(), 600));
        }
        if let Some(back) = &self.roll_back {
            row(
                "next start",
                format!("from step {}: {} sent the run back", back.to, back.by),
            );
        }
        if let Some(trainer) = &self.trainer {
            row("trainer", trainer.clone());
        }
        if let Some(command) = &self.command {
            row("command", one_line(command, 600));
        }
        if let Some(place) = self.root.as_ref().or(self.run_dir.as_ref()) {
            row(if self.root.is_some() { "root" } else { "run dir" }, place.clone());
        }
        // After the outcome no supervisor or guard is expected.
        if self.outcome.is_none() || self.supervisor.alive || self.guard.alive {
            match &self.elsewhere {
                Some(e) => row("supervisor", format!("{} (unreachable from this machine)", e.words())),
                None => {
                    row("supervisor", liveness(self.supervisor));
                    row("guard", liveness(self.guard));
                }
            }
        }
        if self.term > 0 {
            row("term", self.term.to_string());
        }
        if let Some(job) = &self.scheduler {
            row("scheduler", job.words());
        }
        if let Some(a) = &self.attempt {
            row("attempt", a.text());
            for warning in &a.warnings {
                row("warning", one_line(warning, 600));
            }
        }
        if let Some(nodes) = self.attempt.as_ref().and_then(|a| a.nodes.as_ref()) {
            let lost = match nodes.lost.as_slice() {
                [] => String::new(),
                lost => format!("; lost: {}", lost_words(lost)),
            };
            match nodes.on.is_empty() {
                true if lost.is_empty() => {}
                true => row("without", one_line(&lost_words(&nodes.lost), 600)),
                false => row("nodes", one_line(&format!("{}{lost}", nodes.on.join(", ")), 600)),
            }
            if let Some(what) = &nodes.wait {
                row("waits for", one_line(what, 600));
            }
        }
        if let Some(progress) = self.progress.as_ref().filter(|_| self.outcome.is_none()) {
            for (name, value) in progress.rows(self.looked) {
                row(name, value);
            }
        }
        for trend in self.trends.iter().filter(|_| curves) {
            row(trend.name, trend.words().unwrap_or_default());
        }
        if self.term > 0 {
            row("progress", self.proven());
        }
        if let Some(kept) = &self.kept {
            row("kept", one_line(&kept.words(), 600));
        }
        if let Some(result) = &self.rehearsal {
            row("relaunch", one_line(&rehearsed(result), 600));
        }
        if let Some(loss) = &self.loss {
            row("may lose", one_line(&loss.words(), 600));
        }
        if let Some(danger) = &self.danger {
            row("next danger", one_line(&danger.text, 600));
        }
        if let Some(goodput) = self.ledger.as_ref().and_then(LedgerView::brief) {
            row("goodput", goodput);
        }
        if let Some(o) = &self.outcome {
            row("outcome", o.why.clone());
        }
        if let Some(since) = self.since {
            let ages = match (self.age(since), self.now.and_then(|last| self.age(last.0))) {
                (Some(age), _) if self.outcome.is_some() => format!(" (ended {age} ago)"),
                (Some(age), Some(last)) => format!(" ({} for {age}, last event {last} ago)", self.mode),
                _ => String::new(),
            };
            row("since", format!("{}{ages}", local_stamp(WallMs(since))));
        }
        for (at, reason) in self.because().enumerate() {
            row(if at == 0 { "because" } else { "" }, one_line(&reason, 600));
        }
        for (at, process) in self.undead.iter().enumerate() {
            row(if at == 0 { "still lives" } else { "" }, process.to_string());
        }
        for (at, line) in self.attempt.iter().flat_map(|a| &a.lines).enumerate() {
            row(if at == 0 { "last output" } else { "" }, one_line(line, 300));
        }
        out
    }

    /// The time since a moment; `None` if it is unknown when the state was read.
    pub(super) fn age(&self, at: i64) -> Option<String> {
        let ms = self.looked?.0.saturating_sub(at);
        Some(span(supervise_core::id::Ms(u64::try_from(ms).unwrap_or_default())))
    }

    fn proven(&self) -> String {
        let of = self.last_step.map(|l| format!(" of {l}")).unwrap_or_default();
        let mark = match self.mark {
            Some(m) => format!("step {m}{of} is {}", self.proven_word),
            None => "no step is proven yet".to_owned(),
        };
        let steps: Vec<String> = self.checkpoints.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let steps = if steps.is_empty() {
            String::new()
        } else {
            format!("; on disk: {}", steps.join(", "))
        };
        let used = |of| format!(", {} of {of} retries used", self.charged.min(of));
        let charged = match (self.charged, self.retries.map(used).unwrap_or_default()) {
            (0, _) => String::new(),
            (n, used) => format!("; {} without progress{used}", count(n.into(), "attempt")),
        };
        format!("{mark}{steps}{charged}")
    }
}

/// What happens to a run whose journal cannot be written.
pub(crate) fn without_a_journal(s: &RunState) -> &'static str {
    match s.live().is_some_and(|a| a.launch.launched.is_some()) {
        true => "training continues; no restart until the journal is writable",
        false => "no worker lives, and nothing is started before it can be written",
    }
}

/// What a running supervisor cannot do now.
fn trouble(s: &RunState) -> Option<String> {
    let journal = format!("the journal cannot be written: {}", without_a_journal(s));
    match (&s.context.io_stalled, s.context.journal_stalled) {
        (Some(what), true) => Some(format!("{what}; {journal}")),
        (Some(what), false) => Some(what.clone()),
        (None, true) => Some(journal),
        (None, false) => None,
    }
}

fn liveness(l: Liveness) -> String {
    match (l.alive, l.pid) {
        (true, Some(pid)) => format!("alive, pid {pid}"),
        (true, None) => "alive".to_owned(),
        (false, _) => "dead".to_owned(),
    }
}
