//! Acts: what becomes of an intent.

use super::script::{Failing, Truth};
use super::trainer::{Proc, Tr};
use super::{Due, LAST_WORDS, World};
use supervise_core::checkpoint::Depth;
use supervise_core::event::{ActError, ActErrorKind, ActOutput, EventKind};
use supervise_core::id::{AttemptNo, ProcRef};
use supervise_core::journal::record::{Act, ActKind, DiskEdit, LaunchOrder, StartPoint};

/// A guarded act takes so long.
const ACT: u64 = 100;

impl World {
    pub(crate) fn perform(&mut self, act: Act) {
        if act.kind.is_guarded() && self.journal_stalls {
            if matches!(act.kind, ActKind::Finish(_)) {
                self.soon(LAST_WORDS, Due::LastWords(act.term));
            }
            self.deferred.push(act);
            return;
        }
        match &act.kind {
            ActKind::Finish(_) => self.supervisor_dies(),
            ActKind::Signal { .. } => {
                let attempt = act.attempt.unwrap_or_default();
                if !self.habits.deaf {
                    self.soon(ACT, Due::Trainer(attempt, Tr::Term));
                }
            }
            ActKind::KillTree if self.guard_hangs => {}
            ActKind::KillTree => {
                let attempt = self
                    .proc
                    .as_ref()
                    .map(|p| p.attempt)
                    .or(act.attempt)
                    .unwrap_or_default();
                self.soon(ACT, Due::Killed(attempt));
            }
            ActKind::Freeze | ActKind::Thaw => {}
            ActKind::Keep { .. } => self.soon(self.habits.copy, Due::Done(act)),
            ActKind::Arrange(_) | ActKind::Launch(_) | ActKind::Prune(_) | ActKind::RequestSave(_) => {
                self.soon(ACT, Due::Done(act));
            }
        }
    }

    pub(crate) fn perform_deferred(&mut self) {
        for act in std::mem::take(&mut self.deferred) {
            self.perform(act);
        }
    }

    /// After a wish to stop nothing is begun whose intent is not durable yet.
    pub(crate) fn drop_unbegun(&mut self) {
        let (ends, dropped) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition(|a| matches!(a.kind, ActKind::Finish(_) | ActKind::RequestSave(_)));
        self.deferred = ends;
        let dropped: Vec<Act> = dropped;
        for act in dropped {
            let error = ActError {
                what: "it was not begun: a stop was asked for".to_owned(),
                retryable: true,
                kind: ActErrorKind::Other,
            };
            self.feed(EventKind::ActDone {
                act: act.id,
                result: Err(error),
            });
        }
    }

    /// The I/O worker answers again.
    pub(crate) fn unstick(&mut self) {
        for act in std::mem::take(&mut self.stuck) {
            self.soon(ACT, Due::Done(act));
        }
    }

    /// A guarded act comes to its end. A launch goes on without its supervisor: the guard is its own process.
    pub(crate) fn carried_out(&mut self, act: &Act) {
        let which = match &act.kind {
            ActKind::Arrange(_) => Failing::Arrange,
            ActKind::Launch(_) => Failing::Launch,
            ActKind::Keep { .. } => Failing::Keep,
            ActKind::RequestSave(_) => Failing::Ask,
            _ => Failing::Prune,
        };
        if act.term != self.s.term || (!self.alive && which != Failing::Launch) {
            return;
        }
        let result = match self.failing.iter_mut().find(|f| f.0 == which && f.3 > 0) {
            Some(f) => {
                f.3 -= 1;
                Err(ActError {
                    what: format!("{} failed", act_word(&act.kind)),
                    retryable: f.2,
                    kind: f.1,
                })
            }
            None => self.succeed(&act.kind),
        };
        self.feed(EventKind::ActDone { act: act.id, result });
    }

    fn succeed(&mut self, kind: &ActKind) -> Result<ActOutput, ActError> {
        match kind {
            ActKind::Arrange(edits) => {
                for e in edits {
                    if let DiskEdit::MoveAside { from, .. } = e
                        && self.disk.truth(from) == Some(Truth::Unreadable)
                        && self.s.disk.scan.as_ref().is_some_and(|s| {
                            s.steps
                                .iter()
                                .any(|c| c.id == *from && c.verdict == supervise_core::checkpoint::Verdict::Unreadable)
                        })
                    {
                        self.note(Err(format!("{from} cannot be read, and it was moved aside")));
                    }
                    self.disk.edit(e);
                }
                let derived = edits.iter().find_map(|e| match e {
                    DiskEdit::Reshard(cut) => self.disk.reshard(cut),
                    DiskEdit::EndReshard(cut) => self.disk.end_reshard(cut),
                    _ => None,
                });
                Ok(derived.map_or(ActOutput::Done, ActOutput::Resharded))
            }
            ActKind::Prune(ids) => {
                for id in ids {
                    self.disk.steps.remove(id);
                }
                Ok(ActOutput::Pruned)
            }
            ActKind::Launch(order) => self.start_workers(order),
            ActKind::RequestSave(order) => {
                let open = self.s.live().and_then(|a| a.saves.open());
                let reads = open.is_some_and(|r| r.order.id == order.id) && !self.habits.unasked;
                if let Some(p) = self.proc.as_mut().filter(|_| reads) {
                    p.asked = Some(order.id);
                }
                Ok(ActOutput::Done)
            }
            ActKind::Keep { ckpt, pins, .. } => match self.disk.keep(ckpt, *pins) {
                true => Ok(ActOutput::Done),
                false => Err(ActError {
                    what: "a save began while it was copied".to_owned(),
                    retryable: true,
                    kind: ActErrorKind::Voided,
                }),
            },
            _ => Ok(ActOutput::Done),
        }
    }

    fn start_workers(&mut self, order: &LaunchOrder) -> Result<ActOutput, ActError> {
        if let Some(p) = &self.proc {
            let text = format!("attempt {} lives, and {} is launched over it", p.attempt, order.attempt);
            self.note(Err(text));
        }
        if let StartPoint::Step { ckpt, pins, .. } = &order.from
            && self.spec.policy.proof.is_on
        {
            if self.disk.pins(ckpt) != Some(*pins) {
                return Err(ActError {
                    what: format!("{ckpt} is not what was proven"),
                    retryable: true,
                    kind: ActErrorKind::PinsChanged,
                });
            }
            // 2: a run that was to begin from scratch never goes on from an older run's step.
            let old = self.disk.steps.get(ckpt).is_some_and(|d| d.old);
            let cleared = self
                .s
                .requests
                .care
                .as_ref()
                .is_some_and(|c| c.step.is_none() && c.cleared);
            if old && cleared {
                self.note(Err(format!(
                    "{ckpt} is an older run's, and this one began from scratch"
                )));
            }
            let truth = self.disk.truth(ckpt).unwrap_or(Truth::Torn);
            let taken = self.s.requests.care.as_ref().is_some_and(|c| c.attempt < order.attempt);
            if old && truth == Truth::Strange && !taken {
                self.note(Err(format!(
                    "{ckpt} imports what nobody vouched for, and it is launched"
                )));
            }
            let hidden = self.spec.policy.proof.depth == Depth::Structure && truth == Truth::Rotten;
            let in_part =
                truth == Truth::NoOptimizer && order.lost.contains(&supervise_core::checkpoint::StateKind::Optimizer);
            if !truth.is_good() && !in_part && !hidden && truth != Truth::Unreadable {
                self.note(Err(format!("launch from {ckpt}, which is {truth:?}")));
            }
        }
        let first = 1000 + i32::try_from(order.attempt.0 * 10).unwrap_or_default();
        let workers: Vec<ProcRef> = (0..self.spec.gang.workers)
            .map(|n| ProcRef {
                pid: first + 1 + i32::try_from(n).unwrap_or_default(),
                start: self.now,
            })
            .collect();
        let guard = ProcRef {
            pid: first,
            start: self.now,
        };
        self.proc = Some(Proc::new(order.attempt, guard, workers.clone(), order.from.step().0));
        self.soon(self.habits.startup, Due::Trainer(order.attempt, Tr::Up));
        if !self.alive {
            self.leash += 1;
            let grace = self.spec.policy.grace.orphan.0;
            self.soon(grace, Due::OrphanGrace(self.leash));
        }
        Ok(ActOutput::Launched {
            guard,
            workers,
            argv: self.spec.command.clone(),
            ahead: None,
        })
    }

    /// SIGKILL reached everything that can die.
    pub(crate) fn killed(&mut self, attempt: AttemptNo) {
        let Some(p) = self.proc.as_mut().filter(|p| p.attempt == attempt) else {
            return self.soon(50, Due::Gone(attempt));
        };
        if self.unkillable_until > self.now && !p.alive.is_empty() {
            let until = self.unkillable_until;
            let stuck: Vec<ProcRef> = p
                .alive
                .iter()
                .filter_map(|n| p.workers.get(*n as usize).copied())
                .collect();
            p.stuck = true;
            if !p.named {
                p.named = true;
                self.feed(EventKind::TreeGone {
                    attempt,
                    unkillable: stuck,
                });
            }
            return self.due(until, Due::Killed(attempt));
        }
        p.stuck = true;
        let alive: Vec<u32> = p.alive.iter().copied().collect();
        for rank in alive {
            self.worker_ends(rank, supervise_core::event::ExitStatus::Signal(9));
        }
        self.soon(50, Due::Gone(attempt));
    }

    /// Nothing of the attempt is left; who is there hears of it.
    pub(crate) fn tree_gone(&mut self, attempt: AttemptNo) {
        let known = self.proc.as_ref().filter(|p| p.attempt == attempt);
        if known.is_some_and(|p| !p.alive.is_empty() || (p.guard_alive && !self.alive)) {
            return;
        }
        if self.proc.is_some() && known.is_none() {
            return;
        }
        // A tree is reported gone once, but a KillTree of nothing is answered too.
        if known.is_none() && self.s.live().is_none() && self.s.mode != supervise_core::state::RunMode::Fencing {
            return;
        }
        self.proc = None;
        self.feed(EventKind::TreeGone {
            attempt,
            unkillable: Vec::new(),
        });
    }
}

/// An I/O worker has its part in it: a launch looks at its resume point once more.
pub(crate) fn needs_the_io_worker(act: &Act) -> bool {
    match &act.kind {
        ActKind::Arrange(_) | ActKind::Prune(_) | ActKind::Keep { .. } | ActKind::RequestSave(_) => true,
        ActKind::Launch(order) => matches!(order.from, StartPoint::Step { .. }),
        _ => false,
    }
}

/// An act's kind as a failed act names it.
fn act_word(kind: &ActKind) -> &'static str {
    match kind {
        ActKind::Arrange(_) => "arrange",
        ActKind::Launch(_) => "launch",
        ActKind::Prune(_) => "prune",
        ActKind::Keep { .. } => "keep",
        ActKind::Signal { .. } => "signal",
        ActKind::KillTree => "kill_tree",
        ActKind::RequestSave(_) => "request_save",
        ActKind::Freeze => "freeze",
        ActKind::Thaw => "thaw",
        ActKind::Finish(_) => "finish",
    }
}
