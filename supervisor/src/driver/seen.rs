//! A trainer that is seen while it runs, where the command tells of none: its steps are proven from then on.

use super::Driver;
use super::io_workers::Tag;
use super::jobs::Seen as TreeSeen;
use supervise_core::event::{ActError, EventKind, TimerKey};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Tick};
use supervise_core::seen::TrainerSeen;
use supervise_host::guard::ahead::told_of_trainer;
use supervise_host::io_worker::{Answer, Question, RUN_DIR_NAME};
use supervise_trainers::registry;

/// It is looked for this often, and this often once it was found.
const LOOK: Ms = Ms::secs(1);
const LOOK_AGAIN: Ms = Ms::secs(10);
/// The end of an attempt waits so long for a file system that does not answer.
const PATIENCE: Ms = Ms::secs(15);

/// Looks at what the interpreters of an attempt tell.
#[derive(Debug, Default)]
pub(super) struct Seeing {
    next: Tick,
    /// The attempt and the text of the last look.
    told: Option<(AttemptNo, String)>,
    /// The end of an attempt that waits until the root is known to be nobody else's, and how long.
    held: Option<(TreeEnd, Tick)>,
    /// It waited long enough.
    is_late: bool,
}

/// An attempt whose tree is gone.
type TreeEnd = (AttemptNo, Vec<ProcRef>, TreeSeen);

impl Seeing {
    /// The next look, while there is something to look at.
    pub(super) fn due(&self) -> Tick {
        self.next
    }
}

impl Driver {
    /// Python that runs first in the interpreters of this run.
    pub(super) fn hook(&self, argv: &[String]) -> Option<String> {
        self.order.hook(&self.spec, argv).map(str::to_owned)
    }

    /// Whether what is told is of use: the command itself told nothing of a checkpoint root.
    pub(super) fn sees(&self) -> bool {
        self.order.spec.root.is_none() && self.state.live().is_some_and(|a| self.hook(&a.argv).is_some())
    }

    /// Reads what the present attempt's interpreters told, if it is time.
    pub(super) fn look_for_trainer(&mut self, at_once: bool) {
        let now = self.now();
        if self.seeing.held.as_ref().is_some_and(|(_, until)| *until <= now) {
            return self.go_on_after_tree();
        }
        if !at_once && self.seeing.next > now {
            return;
        }
        self.seeing.next = now.after(self.state.seen.as_ref().map_or(LOOK, |_| LOOK_AGAIN));
        let link = self.guard.as_ref().map(|l| (l.attempt, l.guard.pid));
        let Some((attempt, guard)) = link.filter(|_| self.sees()) else {
            return;
        };
        let Some(text) = told_of_trainer(guard) else { return };
        let told = Some((attempt, text));
        if self.seeing.told == told {
            return;
        }
        let known = self.state.seen.as_ref();
        let found = told.as_ref().and_then(|(_, text)| registry::seen(text, known));
        self.seeing.told = told;
        let Some(seen) = found.filter(|seen| self.state.seen.as_ref() != Some(seen)) else {
            return;
        };
        if seen.watched.is_some() || self.spec.root.is_some() {
            return self.on_seen(seen);
        }
        // A run of its own may have that root.
        let run_dir = seen.root.join(RUN_DIR_NAME);
        self.work
            .ask(Tag::Seen(Box::new(seen)), Question::Peek { run_dir }, now);
    }

    /// The end of an attempt is decided upon once it is known whether its steps are this run's.
    pub(super) fn holds_tree_end(&mut self, end: TreeEnd) -> Option<TreeEnd> {
        let until = self.now().after(PATIENCE);
        let asks = self.work.asks(|tag| matches!(tag, Tag::Seen(_)));
        if !asks || self.seeing.is_late {
            return Some(end);
        }
        self.seeing.held = Some((end, until));
        None
    }

    /// What was asked was lost.
    pub(super) fn look_anew(&mut self) {
        self.seeing.told = None;
        self.go_on_after_tree();
    }

    fn go_on_after_tree(&mut self) {
        if let Some(((attempt, unkillable, seen), _)) = self.seeing.held.take() {
            self.seeing.is_late = self.work.asks(|tag| matches!(tag, Tag::Seen(_)));
            self.on_tree_gone(attempt, unkillable, seen);
        }
    }

    /// The root is nobody else's, or is.
    pub(super) fn on_seen_root(&mut self, mut seen: TrainerSeen, answer: &Result<Answer, ActError>) {
        let other = match answer {
            Ok(Answer::Loaded(loaded)) if loaded.records == 0 => None,
            Ok(Answer::Loaded(_)) => Some("another run of supervise has its journal there".to_owned()),
            Ok(_) => None,
            Err(e) => Some(e.what.clone()),
        };
        seen.watched = other;
        self.seeing.is_late = false;
        self.on_seen(seen);
        self.go_on_after_tree();
    }

    fn on_seen(&mut self, seen: TrainerSeen) {
        self.feed(EventKind::TrainerSeen(seen));
        self.take_seen();
        self.introduce();
        self.forget_what_is_ready();
        // It reads the lines of the next attempt by the rules of the trainer.
        if self.standby.is_some()
            && let Ok(standby) = self.guard_ahead(None)
        {
            self.exchange(standby);
        }
        let now = self.now();
        if self.spec.root.is_some() && self.state.live().is_some() {
            self.timers.insert(TimerKey::ScanDue, now);
        }
    }

    /// The specification as the command and what was seen tell it.
    pub(super) fn take_seen(&mut self) {
        if let Some(seen) = self.state.seen.as_ref().filter(|_| self.order.spec.root.is_none()) {
            self.spec = seen.applied(&self.order.spec);
        }
    }
}
