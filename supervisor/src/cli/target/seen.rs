//! What is known about a run, and which of its processes are running.

use super::peek;
use crate::environment::wall;
use crate::error::CliError;
use crate::newer_journal::newer_journal;
use crate::render::elsewhere::RemoteSupervisor;
use crate::render::ledger::LedgerView;
use crate::render::progress::ProgressReport;
use crate::render::shown_command;
use crate::render::status::{RunLiveness, StatusView};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::id::{ProcRef, RunId, Term, WallMs};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::io_worker::{AttemptStart, NewerLine};
use supervise_host::ownership::{DistrustReason, PathDistrust};
use supervise_host::process::{LeftoverProcess, find_attempt_processes, remains};
use supervise_host::system::{effective_user, user_of};

/// What is known about a run.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct RunInfo {
    pub(in crate::cli) run: RunId,
    pub(in crate::cli) run_dir: Option<Utf8PathBuf>,
    pub(in crate::cli) state: Option<RunState>,
    pub(in crate::cli) ledger: TimeLedger,
    pub(in crate::cli) spec: Option<RunSpec>,
    pub(in crate::cli) alive: RunLiveness,
    /// Set if its supervisor is running but unreachable from here.
    pub(in crate::cli) elsewhere: Option<RemoteSupervisor>,
    /// Whether its supervisor answered; otherwise the state comes from the journal.
    pub(in crate::cli) answered: bool,
    /// Where the last attempts begin in the journals, if those were read.
    pub(in crate::cli) began: Vec<AttemptStart>,
    /// Processes that the guard of the last attempt recorded.
    pub(in crate::cli) recorded: Vec<ProcRef>,
    /// The run's key, stored only in its directory.
    pub(in crate::cli) key: String,
    pub(in crate::cli) distrust: Option<PathDistrust>,
    pub(in crate::cli) problem: Option<String>,
    pub(in crate::cli) notes: Vec<String>,
    pub(in crate::cli) gaps: Vec<String>,
    /// The first line of its journals that a newer release wrote.
    pub(in crate::cli) newer: Option<NewerLine>,
}

fn quoted(words: &[&str]) -> String {
    shown_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

impl RunInfo {
    /// The specification, with the trainer that was seen while it was running.
    pub(in crate::cli) fn spec_as_seen(&self) -> Option<RunSpec> {
        Some(self.spec_as_seen_for(self.spec.as_ref()?))
    }

    /// The same for the specification of a future start.
    pub(in crate::cli) fn spec_as_seen_for(&self, spec: &RunSpec) -> RunSpec {
        let trainer = self.state.as_ref().and_then(|s| s.seen.as_ref());
        trainer.map_or_else(|| spec.clone(), |seen| seen.applied(spec))
    }

    /// The gate of every command that does more than show the run. Its directory names processes, jobs and files, and is trusted
    /// only if this user or root wrote it and nobody else could. A supervisor that answered is trusted.
    ///
    /// # Errors
    /// Another user wrote it, or could have.
    pub(in crate::cli) fn may_act(&self) -> Result<(), CliError> {
        let Some(refused) = &self.distrust else { return Ok(()) };
        let (run, entry) = (&self.run, &refused.entry);
        let dir = self.run_dir.as_deref().unwrap_or(&entry.path);
        if refused.why != DistrustReason::OtherOwner {
            let (words, dir) = (
                quoted(&["ls", "-lR", dir.as_str()]),
                quoted(&["chmod", "-R", "go-w", dir.as_str()]),
            );
            return Err(CliError::environment(format!(
                "run {run} is left alone: {refused}: what is written there of its processes and files may not be its own"
            ))
            .hint(format!("look whether anything there is another user's ({words}), then: {dir}")));
        }
        let user = user_of(entry.uid).unwrap_or_else(|| format!("#{}", entry.uid));
        let e = CliError::environment(format!(
            "run {run} is {user}'s and is left alone: {refused}, and what is written there names processes and files"
        ));
        Err(match effective_user() {
            0 => e.hint(format!("say it as that user: `sudo -u '{user}' supervise …`")),
            _ => e.hint(format!("only {user} and root can act on it")),
        })
    }

    /// Processes of an attempt that are running without a supervisor.
    pub(in crate::cli) fn left_behind(&self) -> Option<String> {
        let supervised = self.alive.supervisor.alive || self.alive.guard.alive || self.elsewhere.is_some();
        if supervised || self.has_nothing_left() {
            return None;
        }
        let left = find_attempt_processes(&self.run, &self.recorded).len();
        (left > 0).then(|| {
            format!(
                "{left} processes of its last attempt still live, without supervisor and guard: `supervise run` ends \
                 them and goes on, `supervise stop` ends them"
            )
        })
    }

    /// Returns true if the journal records the exit of the last process of the last attempt: then this machine's processes need not
    /// be searched.
    fn has_nothing_left(&self) -> bool {
        let attempt = self.state.as_ref().and_then(|s| s.attempt.as_ref());
        attempt.is_some_and(|a| a.end.gone && a.end.unkillable.is_empty())
    }

    /// The error for changes that need the whole journal, if it cannot be read completely.
    pub(in crate::cli) fn unreadable(&self) -> Option<CliError> {
        Some(newer_journal(self.run_dir.as_deref()?, self.newer.as_ref()?))
    }

    /// The error for a request to a supervisor that is unreachable.
    pub(in crate::cli) fn unreachable(&self, command: &str) -> Option<CliError> {
        let there = self.elsewhere.as_ref()?;
        let text = format!(
            "the supervisor of run {} is unreachable from this machine: {}",
            self.run,
            there.words()
        );
        Some(CliError::lease_held(text).hint(self.way_there(command)?))
    }

    /// How to ask the supervisor on its own machine or in its container.
    pub(in crate::cli) fn way_there(&self, command: &str) -> Option<String> {
        let (run, host) = (&self.run, &self.elsewhere.as_ref()?.host);
        let job = self.state.as_ref().and_then(|s| s.context.allocation.as_ref());
        Some(match job {
            Some(a) => format!(
                "`srun --jobid={} --overlap supervise {command} {run}` asks it there",
                a.job
            ),
            None => format!("run `supervise {command} {run}` on {host}, in the container that it runs in, if any"),
        })
    }

    /// Running processes of its attempts, by everything that is recorded about them.
    pub(in crate::cli) fn remains(&self) -> Vec<LeftoverProcess> {
        let a = self.state.as_ref().and_then(|s| s.attempt.as_ref());
        let mut known = self.recorded.clone();
        // A supervisor that answered was asked instead of the journal.
        if known.is_empty()
            && let Some(Ok(loaded)) = self.run_dir.as_deref().map(peek)
        {
            known = loaded.recorded;
        }
        if let Some(a) = a {
            known.extend(a.launch.workers.iter().chain(&a.end.unkillable));
        }
        remains(&self.run, &known)
    }

    /// Processes that survived SIGKILL at the end.
    fn undead(&self) -> Vec<LeftoverProcess> {
        let a = self.state.as_ref().and_then(|s| s.attempt.as_ref());
        let unkillable = a.map(|a| a.end.unkillable.as_slice()).unwrap_or_default();
        unkillable.iter().filter_map(|p| LeftoverProcess::of(*p)).collect()
    }

    pub(in crate::cli) fn is_gone(&self) -> bool {
        let alive = self.alive.supervisor.alive || self.alive.guard.alive;
        let never = self.state.as_ref().is_none_or(|s| s.term == Term::default());
        // A journal without content is a problem, not an absence. Checked last: a directory that hangs is a problem already.
        let journal = || self.run_dir.as_ref().is_some_and(|dir| dir.join("journal").is_dir());
        !alive && self.problem.is_none() && self.spec.is_none() && never && !journal()
    }

    /// Its ledger, up to now if its supervisor is running, else up to the newest record.
    pub(in crate::cli) fn account(&self) -> Option<LedgerView> {
        let lives = self.alive.supervisor.alive || self.elsewhere.is_some();
        let until = lives.then(wall);
        LedgerView::of(&self.ledger, self.spec.as_ref(), until, self.hangs())
    }

    /// True if it makes no progress for longer than it has shown to need.
    pub(in crate::cli) fn hangs(&self) -> bool {
        self.progress(wall()).is_some_and(|p| p.is_late())
    }

    fn progress(&self, now: WallMs) -> Option<ProgressReport> {
        let (state, spec) = (self.state.as_ref()?, self.spec.as_ref()?);
        let watched = self.elsewhere.is_some() || self.alive.supervisor.alive && !self.alive.supervisor.stopped;
        Some(ProgressReport::of(state, spec, &self.ledger, watched, now))
    }

    pub(in crate::cli) fn view(&self) -> StatusView {
        match (&self.state, &self.problem) {
            (Some(s), problem) => {
                let mut view = StatusView::of(&self.run.0, s, self.spec.as_ref(), self.alive);
                view.run_dir = self.run_dir.as_ref().map(ToString::to_string);
                view.problem = problem.clone().or(view.problem).or_else(|| self.left_behind());
                view.elsewhere = self.elsewhere.clone();
                view.undead = self.undead();
                let now = wall();
                view.looked = Some(now);
                view.ledger = self.account();
                view.progress = self.progress(now);
                view
            }
            (None, problem) => {
                let problem = problem
                    .clone()
                    .unwrap_or_else(|| "nothing is known of it here".to_owned());
                let mut view = StatusView::unknown(&self.run.0, self.alive, problem);
                view.run_dir = self.run_dir.as_ref().map(ToString::to_string);
                view
            }
        }
    }

    pub(in crate::cli) fn run_dir(&self) -> Result<&Utf8Path, CliError> {
        if let Some(problem) = &self.problem {
            return Err(CliError::environment(problem.clone()));
        }
        self.run_dir
            .as_deref()
            .ok_or_else(|| CliError::usage(format!("run {}: its run directory is not known here", self.run)))
    }
}
