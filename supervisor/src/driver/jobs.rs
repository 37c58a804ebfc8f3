//! Jobs that an attempt handed to Ray or to Slurm: when its processes are gone, they may still train. They are ended, and their end is
//! waited for in the scheduler's own words, before anybody hears that nothing of the attempt is left.

use super::{Driver, Internal};
use crate::environment;
use std::time::Duration;
use supervise_core::event::{ActError, ActErrorKind, EventKind};
use supervise_core::id::{ActId, AttemptNo, ProcRef};
use supervise_core::record::LaunchOrder;
use supervise_host::cluster::{JobQuery, end_job};
use supervise_host::guard::nodes::steps;
use supervise_host::slurm;
use supervise_trainers::slurm::{Job, Proof, words};
use supervise_trainers::{Ray, adapter, job};

/// A scheduler that did not say that a job has ended is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

impl Driver {
    /// No process of the attempt is left here; what it had submitted ends before that is told.
    pub(super) fn on_tree_gone(&mut self, attempt: AttemptNo, unkillable: Vec<ProcRef>) {
        let query = self.job_of(attempt).filter(|_| !self.ended_well(attempt));
        let jobs = self.slurm_jobs();
        if !unkillable.is_empty() || query.is_none() && jobs.is_none() {
            return self.feed(EventKind::TreeGone { attempt, unkillable });
        }
        if std::mem::replace(&mut self.ending_job, true) {
            return;
        }
        if let Some(query) = &query {
            self.note_once(format!(
                "Ray's job {} is stopped, and waited for until it has ended",
                query.id
            ));
        }
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let ray = query.map_or(Ok(()), |query| {
                end_job(&query)
                    .map_err(|why| format!("Ray does not say that the job of attempt {attempt} has ended: {why}"))
            });
            let slurm = jobs.map_or(Ok(()), |query| {
                let said = slurm::end(&query, |jobs| {
                    let _ = tx.send(Internal::Note(cancelled(jobs)));
                });
                said.map(|_| ())
                    .map_err(|why| format!("Slurm does not say that the jobs of this run have ended: {why}"))
            });
            let said = ray.and(slurm);
            if said.is_err() {
                std::thread::sleep(ASK_AGAIN);
            }
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::JobEnded { attempt, said });
        });
    }

    /// Its end is known: it has ended, or is asked for again. How long that goes on is the core's to say.
    pub(super) fn on_job_ended(&mut self, attempt: AttemptNo, said: Result<(), String>) {
        self.ending_job = false;
        let is_known = said.is_ok();
        if let Err(why) = said {
            self.note_once(why);
        }
        // Nothing speaks for a job where the attempt came to its end: then no answer delays that.
        if is_known || self.ended_well(attempt) {
            self.told.clear();
            self.feed(EventKind::TreeGone {
                attempt,
                unkillable: Vec::new(),
            });
        } else {
            self.on_tree_gone(attempt, Vec::new());
        }
    }

    fn ended_well(&self, attempt: AttemptNo) -> bool {
        let of = self.state.attempt.as_ref();
        of.is_some_and(|a| a.no == attempt && a.succeeded())
    }

    /// A repeated question is told once.
    fn note_once(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.printer.note(&text);
            self.told.insert(text);
        }
    }

    fn job_of(&self, attempt: AttemptNo) -> Option<JobQuery> {
        if self.order.facts.ray != Ray::Submitted {
            return None;
        }
        let id = job::id(&self.spec.run, attempt);
        let mut env = environment::own();
        env.extend(self.spec.env.clone());
        let learnt = self.spec.learnt.as_ref();
        env.extend(learnt.iter().flat_map(|l| l.env.clone()));
        Some(JobQuery {
            argv: job::stop(self.spec.trainer_command(), &id)?,
            id,
            cwd: learnt.map_or(&self.spec.cwd, |l| &l.cwd).clone(),
            env,
        })
    }

    /// By what jobs are known to be this run's.
    pub(super) fn proof(&self) -> Proof {
        Proof {
            key: self.key.clone(),
            run: self.spec.run.clone(),
        }
    }

    fn slurm_jobs(&self) -> Option<slurm::Query> {
        let known = adapter(self.spec.trainer).jobs(&self.spec.saves)?;
        let mut env = environment::own();
        env.extend(self.spec.env.clone());
        Some(slurm::Query {
            proof: self.proof(),
            known,
            cwd: self.spec.cwd.clone(),
            env,
        })
    }

    /// Before a launch: nothing of ours is left with Slurm, nor anything that may be. `false`: the run has no jobs there.
    pub(super) fn ask_slurm(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let Some(query) = self.slurm_jobs() else {
            return false;
        };
        let order = order.clone();
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let said = slurm::end(&query, |jobs| {
                let _ = tx.send(Internal::Note(cancelled(jobs)));
            });
            let said = said.and_then(|_| slurm::ask(&query));
            let _ = tx.send(Internal::Slurm { act, order, said });
        });
        true
    }

    /// Slurm's answer: the launch goes on, or waits.
    pub(super) fn on_slurm(&mut self, act: ActId, order: LaunchOrder, said: Result<Vec<Job>, String>) {
        let what = match said {
            Ok(jobs) if jobs.is_empty() => return self.launch_from(act, order),
            Ok(jobs) => format!(
                "Slurm lists {}: named as the jobs of this run are, but nothing proves that an attempt of it submitted them; they are not touched (scancel ends them)",
                words(&jobs)
            ),
            Err(why) => format!("Slurm does not say that no job of this run is left: {why}"),
        };
        let error = ActError {
            what,
            retryable: true,
            kind: ActErrorKind::Held,
        };
        self.feed(EventKind::ActDone {
            act,
            result: Err(error),
        });
    }
}

impl Driver {
    /// Before a launch on several nodes: no step of this run is left there. `false`: the run has one node.
    pub(super) fn ask_nodes(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        if self.spec.gang.nodes <= 1 {
            return false;
        }
        let (env, run, order, tx) = (
            environment::own(),
            self.spec.run.clone(),
            order.clone(),
            self.internal.clone(),
        );
        tokio::task::spawn_blocking(move || {
            let said = steps::end(&env, &run).and_then(|ended| {
                if !ended.is_empty() {
                    let note = format!(
                        "Slurm's steps that an earlier attempt left are ended: {}",
                        ended.join(", ")
                    );
                    let _ = tx.send(Internal::Note(note));
                }
                steps::own_address(&env)
            });
            let _ = tx.send(Internal::Nodes { act, order, said });
        });
        true
    }

    /// The nodes are free, and this is where rank 0 will be found; or the launch waits.
    pub(super) fn on_nodes(&mut self, act: ActId, order: LaunchOrder, said: Result<String, String>) {
        match said {
            Ok(address) => {
                self.master = Some(address);
                self.launch_from(act, order);
            }
            Err(why) => self.feed(EventKind::ActDone {
                act,
                result: Err(ActError {
                    what: format!("Slurm does not say that the nodes are free of this run: {why}"),
                    retryable: true,
                    kind: ActErrorKind::Held,
                }),
            }),
        }
    }
}

/// Jobs that are about to be cancelled, in words.
fn cancelled(jobs: &[Job]) -> String {
    format!(
        "Slurm's jobs that outlived what had submitted them are cancelled, and waited for: {}",
        words(jobs)
    )
}
