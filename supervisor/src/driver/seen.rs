//! Finds a trainer while it runs, if the command does not show one: its steps are proven from then on.

use super::Driver;
use super::io_workers::IoPurpose;
use super::jobs::ExitWitness as TreeSeen;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::event::{ActError, EventKind, TimerKey};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Tick};
use supervise_core::spec::seen::TrainerSeen;
use supervise_host::guard::trainers::{TrainerCopy, told_of_trainer, trainers_beside};
use supervise_host::io_worker::{IoAnswer, IoQuestion, LoadedRun, RUN_DIR_NAME};
use supervise_host::process::{find_attempt_processes, own_pid_scope, own_ref, sight};
use supervise_trainers::registry;

const LOOK: Ms = Ms::secs(1);
const LOOK_AGAIN: Ms = Ms::secs(10);
/// How long the end of an attempt waits for a file system that does not answer.
const PATIENCE: Ms = Ms::secs(15);

/// State of the search in what an attempt's interpreters report.
#[derive(Debug, Default)]
pub(super) struct SeenState {
    next: Tick,
    /// The attempt and the text of the last look.
    told: Option<(AttemptNo, String)>,
    /// The root that other supervisors on this machine can see to belong to this run.
    shown: Option<(Utf8PathBuf, TrainerCopy)>,
    /// It was reported that nothing can be seen.
    said_blind: bool,
    /// The end of an attempt that waits until the root is known to belong to no other run, and until when.
    held: Option<(TreeEnd, Tick)>,
    is_late: bool,
}

type TreeEnd = (AttemptNo, Vec<ProcRef>, TreeSeen);

impl SeenState {
    pub(super) fn due(&self) -> Tick {
        self.next
    }
}

impl Driver {
    /// Python code that runs first in the interpreters of this run.
    pub(super) fn hook(&self, argv: &[String]) -> Option<String> {
        self.order.hook(&self.spec, argv).map(str::to_owned)
    }

    /// Whether the reports are needed: the command itself shows no checkpoint root.
    pub(super) fn sees(&self) -> bool {
        self.order.spec.root.is_none() && self.state.live().is_some_and(|a| self.hook(&a.launch.argv).is_some())
    }

    /// Reads what the current attempt's interpreters reported, if it is time.
    pub(super) fn look_for_trainer(&mut self, at_once: bool) {
        let now = self.now();
        if self.seen.held.as_ref().is_some_and(|(_, until)| *until <= now) {
            return self.go_on_after_tree();
        }
        if !at_once && self.seen.next > now {
            return;
        }
        self.seen.next = now.after(self.state.seen.as_ref().map_or(LOOK, |_| LOOK_AGAIN));
        let link = self.guard.as_ref().map(|l| (l.attempt, l.guard.pid));
        let Some((attempt, guard)) = link.filter(|_| self.sees()) else {
            return;
        };
        let Some(text) = told_of_trainer(guard) else { return };
        if self
            .seen
            .told
            .as_ref()
            .is_some_and(|(of, told)| (*of, told) == (attempt, &text))
        {
            return;
        }
        let found = registry::seen(&text, self.state.seen.as_ref());
        self.seen.told = Some((attempt, text.clone()));
        let Some(seen) = found else {
            return self.tell_blind(&text);
        };
        if let Some(by) = self.shares_root(&seen.root, &text) {
            return self.feed(EventKind::LeaseLost { by });
        }
        if self.state.seen.as_ref() == Some(&seen) {
            return;
        }
        if self.spec.root.is_some() {
            return self.on_seen(seen);
        }
        // A run of its own may use that root.
        let run_dir = seen.root.join(RUN_DIR_NAME);
        self.work
            .ask(IoPurpose::Seen(Box::new(seen)), IoQuestion::Peek { run_dir }, now);
    }

    /// Shows other supervisors whose root this is. If two runs train into one root, the later one is told which was first.
    fn shares_root(&mut self, root: &Utf8Path, told: &str) -> Option<String> {
        if self.seen.shown.as_ref().is_none_or(|(shown, _)| shown != root) {
            self.seen.shown = TrainerCopy::new(told).ok().map(|copy| (root.to_owned(), copy));
        }
        let since = self.seen.shown.as_ref().map_or(u64::MAX, |(_, copy)| copy.since);
        let own = (since, &self.spec.run);
        let mut others = trainers_beside(Some(&self.spec.run)).into_iter();
        let first = others.find(|other| {
            (other.since, &other.run) < own && registry::seen(&other.told, None).is_some_and(|t| t.root == root)
        })?;
        Some(format!("run {} trains into {root} as well", first.run))
    }

    /// Reports once that the interpreter shows nothing.
    fn tell_blind(&mut self, told: &str) {
        let Some(error) = registry::hook_failed(told).filter(|_| !self.seen.said_blind) else {
            return;
        };
        self.seen.said_blind = true;
        self.printer.note(&format!(
            "the hook in this script failed ({error}): the script runs as written, and its steps are not protected"
        ));
    }

    /// Who already runs in a directory in which the trainer was seen to save, with or without a supervisor.
    fn holder_of(&self, loaded: &LoadedRun) -> Option<String> {
        if let Some((holder, silent)) = loaded
            .holder
            .as_ref()
            .filter(|(h, _)| !h.released && h.proc != own_ref())
        {
            let lives = match holder.seat.is_same(&own_pid_scope()) {
                true => sight(holder.proc) != Some(false),
                false => holder.lives_elsewhere(&own_pid_scope(), *silent),
            };
            if lives {
                return Some(format!("process {} on {}", holder.proc, holder.host));
            }
        }
        let run = &loaded.spec.as_ref().filter(|spec| spec.run != self.spec.run)?.run;
        let left = find_attempt_processes(run, &loaded.recorded);
        (!left.is_empty()).then(|| format!("run {run}, whose processes live without a supervisor"))
    }

    /// Delays the end of an attempt until it is known whether its steps belong to this run.
    pub(super) fn holds_tree_end(&mut self, end: TreeEnd) -> Option<TreeEnd> {
        let until = self.now().after(PATIENCE);
        let asks = self.work.asks(|tag| matches!(tag, IoPurpose::Seen(_)));
        if !asks || self.seen.is_late {
            return Some(end);
        }
        self.seen.held = Some((end, until));
        None
    }

    /// Asks again, because the question was lost.
    pub(super) fn look_anew(&mut self) {
        self.seen.told = None;
        self.go_on_after_tree();
    }

    fn go_on_after_tree(&mut self) {
        if let Some(((attempt, unkillable, seen), _)) = self.seen.held.take() {
            self.seen.is_late = self.work.asks(|tag| matches!(tag, IoPurpose::Seen(_)));
            self.on_tree_gone(attempt, unkillable, seen);
        }
    }

    pub(super) fn on_seen_root(&mut self, mut seen: TrainerSeen, answer: &Result<IoAnswer, ActError>) {
        let own = seen.root.join(RUN_DIR_NAME) == self.spec.run_dir;
        let holder = match answer {
            Ok(IoAnswer::Loaded(loaded)) if !own => self.holder_of(loaded),
            _ => None,
        };
        let other = match answer {
            Ok(IoAnswer::Loaded(loaded)) if loaded.records == 0 || own => None,
            Ok(IoAnswer::Loaded(_)) => Some("another run of supervise has its journal there".to_owned()),
            Ok(_) => None,
            Err(e) => Some(e.what.clone()),
        };
        seen.watched = seen.watched.or(other);
        self.seen.is_late = false;
        match holder {
            Some(by) => self.feed(EventKind::LeaseLost {
                by: format!("{by}, which saves into {}", seen.root),
            }),
            None => self.on_seen(seen),
        }
        self.go_on_after_tree();
    }

    fn on_seen(&mut self, seen: TrainerSeen) {
        self.feed(EventKind::TrainerSeen(seen));
        self.take_seen();
        self.introduce();
        self.forget_what_is_ready();
        // The standby guard must read the lines of the next attempt with the rules of the trainer.
        if self.standby.guard.is_some()
            && let Ok(standby) = self.guard_ahead(None)
        {
            self.exchange(standby);
        }
        let now = self.now();
        if self.spec.root.is_some() && self.state.live().is_some() {
            self.timers.insert(TimerKey::ScanDue, now);
        }
    }

    /// Updates the specification from the command and what was seen.
    pub(super) fn take_seen(&mut self) {
        if let Some(seen) = self.state.seen.as_ref().filter(|_| self.order.spec.root.is_none()) {
            self.spec = seen.applied(&self.order.spec);
        }
    }
}
