//! Effects of a script's lines on the world.

use super::disk::{dir, elsewhere, own};
use super::script::{Truth, Verb};
use super::{Due, IO_DEADLINE, World, options};
use std::collections::BTreeMap;
use supervise_core::checkpoint::CkptId;
use supervise_core::event::{EventKind, ExitStatus, OperatorRequest};
use supervise_core::id::{AttemptNo, Ms, Step, WallMs, WorkerId};
use supervise_core::state::RunMode;

impl World {
    pub(crate) fn verb(&mut self, verb: &Verb) {
        match verb {
            Verb::Spec(o) => {
                let checked = options::apply(&mut self.spec, &mut self.habits, o);
                self.note(checked);
            }
            Verb::Disk(steps) => {
                for (truth, n) in steps {
                    self.disk.turn(*n, *truth);
                }
            }
            Verb::Live(steps) => steps.iter().for_each(|(t, n)| self.disk.overwrite(*n, *t)),
            Verb::Kept(steps) => {
                let name = |n: u64| CkptId(format!("step_{n}.old{n}").into());
                steps.iter().for_each(|(t, n)| self.disk.put(name(*n), *n, *t));
            }
            Verb::Rewrite => self.disk.rewrite(),
            Verb::Own(steps) => steps
                .iter()
                .for_each(|(t, n)| self.disk.put(own(*n, &format!("own{n}")), *n, *t)),
            Verb::Older(truth, n) => self.disk.put(CkptId(format!("older.{n}").into()), *n, *truth),
            Verb::Elsewhere(truth, n) => self.disk.put(elsewhere(*n), *n, *truth),
            Verb::Remove(n) => {
                self.disk.steps.remove(&dir(*n));
            }
            Verb::Tracker(t) => self.disk.tracker = t.clone(),
            Verb::Fault(f) => self.faults.push(f.clone()),
            Verb::ActFails {
                act,
                kind,
                retryable,
                times,
            } => self.failing.push((*act, *kind, *retryable, *times)),
            Verb::Exit { rank, status } => {
                if *status == ExitStatus::Code(0) {
                    self.worker_ends(*rank, *status);
                } else {
                    self.worker_fails(*rank, *status);
                }
            }
            Verb::Stop { after_save } => self.feed(EventKind::Operator(OperatorRequest::Stop {
                after_save: *after_save,
                by: "operator".to_owned(),
                left: None,
            })),
            Verb::StopWithin(ms) => self.feed(EventKind::Operator(OperatorRequest::Stop {
                after_save: false,
                by: "SIGTERM".to_owned(),
                left: Some(Ms(*ms)),
            })),
            Verb::HandBack(ms) => self.feed(EventKind::Operator(OperatorRequest::HandBack {
                by: "SIGUSR1".to_owned(),
                left: Some(Ms(*ms)),
            })),
            Verb::Job(ms) => {
                self.job_ends = Some(self.now + ms);
                self.job();
            }
            Verb::Hold { on } => {
                let by = "ann".to_owned();
                let why = Some("a debugger".to_owned());
                self.feed(EventKind::Operator(match on {
                    true => OperatorRequest::Hold { by, why },
                    false => OperatorRequest::Unhold { by },
                }));
            }
            Verb::Save => self.feed(EventKind::Operator(OperatorRequest::Save { by: "ann".to_owned() })),
            Verb::Resume => self.feed(EventKind::Operator(OperatorRequest::Resume {
                by: "ann".to_owned(),
                was: None,
            })),
            Verb::RollBack(n) => self.feed(EventKind::Operator(OperatorRequest::RollBack {
                by: "ann".to_owned(),
                to: Step(*n),
            })),
            Verb::StopNow => self.feed(EventKind::Operator(OperatorRequest::StopNow {
                by: "operator".to_owned(),
            })),
            _ => self.mishap(verb),
        }
    }

    /// The scheduler's answer.
    pub(crate) fn job(&mut self) {
        let Some(ends) = self.job_ends else { return };
        self.feed(EventKind::Allocation {
            job: "7".to_owned(),
            restarts: 0,
            ends: Some(WallMs(i64::try_from(ends).unwrap_or(i64::MAX))),
            left: Some(Ms(ends.saturating_sub(self.now))),
        });
    }

    fn mishap(&mut self, verb: &Verb) {
        match verb {
            Verb::Suspend(ms) => self.suspend(*ms),
            Verb::Journal { stalls } => self.journal(*stalls),
            Verb::IoWorker { hangs } => self.io_worker(*hangs),
            Verb::LeaseLost => self.feed(EventKind::LeaseLost {
                by: "term 9 on node-2".to_owned(),
            }),
            Verb::LeaseSilent => self.feed(EventKind::LeaseSilent {
                what: "the lease could not be renewed for 60 s".to_owned(),
            }),
            Verb::Displaced => self.feed(EventKind::Displaced {
                what: "the run directory /a was moved to /b".to_owned(),
            }),
            Verb::Rehearsal(result) => self.rehearsal = result.clone(),
            Verb::Script(news) => {
                let attempt = self.s.attempts;
                let news = news.clone();
                self.feed(EventKind::Script { attempt, news });
            }
            Verb::Heals => self.heals(),
            Verb::GetsOn => self.gets_on(),
            Verb::SupervisorDies => self.supervisor_dies(),
            Verb::GuardDies => self.guard_dies(),
            Verb::GuardHangs => self.guard_hangs = true,
            Verb::Unkillable(ms) => self.unkillable_until = self.now + ms,
            Verb::NewTerm(options) => self.new_term(options),
            Verb::Reboot => {
                self.supervisor_dies();
                self.proc = None;
                self.boot += 1;
            }
            Verb::Late { attempt, gone } => self.late(AttemptNo(*attempt), *gone),
            Verb::Free(mib) => self.free = mib << 20,
            Verb::Files(n) => self.files = Some(*n),
            Verb::Writes { refused } => self.refuses = *refused,
            Verb::Until => self.until = Some(self.now),
            _ => {}
        }
    }

    /// The machine sleeps: its processes and its disk do, boot time does not.
    fn suspend(&mut self, ms: u64) {
        let queue = std::mem::take(&mut self.queue);
        let mut shifted = BTreeMap::new();
        for ((at, n), due) in queue {
            let sleeps = !matches!(due, Due::Verb(_) | Due::Timer(..));
            shifted.insert((if sleeps { at + ms } else { at }, n), due);
        }
        self.queue = shifted;
        self.now += ms;
        self.until = self.until.map(|u| u + ms);
        self.watch.slept(ms);
        self.feed(EventKind::TimeGap { missing: Ms(ms) });
    }

    fn journal(&mut self, stalls: bool) {
        if self.journal_stalls == stalls {
            return;
        }
        self.journal_stalls = stalls;
        if stalls {
            self.feed(EventKind::JournalStalled {
                why: "No space left on device".to_owned(),
            });
        } else {
            self.feed(EventKind::JournalRecovered);
            self.perform_deferred();
        }
    }

    fn io_worker(&mut self, hangs: bool) {
        if self.io_hangs == hangs {
            return;
        }
        self.io_hangs = hangs;
        if hangs {
            self.soon(IO_DEADLINE, Due::IoStalled);
        } else {
            self.scans += 1;
            self.unstick();
            self.feed(EventKind::IoRecovered);
        }
    }

    fn guard_dies(&mut self) {
        let Some(p) = self.proc.as_mut().filter(|p| p.guard_alive) else {
            return;
        };
        p.guard_alive = false;
        p.unheard.clear();
        let attempt = p.attempt;
        self.feed(EventKind::GuardLost { attempt });
    }

    /// An older attempt's event; never one that would be a lie about what lives.
    fn late(&mut self, attempt: AttemptNo, gone: bool) {
        let present = self.s.attempt.as_ref().is_some_and(|a| a.no == attempt);
        if present || self.s.mode == RunMode::Fencing {
            return;
        }
        if gone {
            self.feed(EventKind::TreeGone {
                attempt,
                unkillable: Vec::new(),
            });
        } else {
            self.feed(EventKind::WorkerExited {
                attempt,
                worker: WorkerId(0),
                status: ExitStatus::Code(1),
                first: true,
                lines: Vec::new(),
            });
        }
    }
}

/// A word of the script for a truth that the property tests generate.
pub(crate) fn truth_word(t: Truth) -> &'static str {
    match t {
        Truth::Whole => "whole",
        Truth::Degraded => "degraded",
        Truth::Unfit => "unfit",
        Truth::Torn => "torn",
        Truth::NoOptimizer => "no-optimizer",
        Truth::NoData => "no-data",
        Truth::Damaged => "damaged",
        Truth::Rotten => "rotten",
        Truth::Unsafe => "unsafe",
        Truth::Strange => "strange",
        Truth::Others => "others",
        Truth::Unreadable => "unreadable",
        Truth::Husk => "husk",
        Truth::Unknown => "unknown",
    }
}
