//! Jobs that an attempt submitted to Ray or Slurm may still train after its processes exited. They are ended, and the attempt
//! counts as ended only after the scheduler confirmed it.

use super::{Driver, DriverMessage};
use crate::environment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use supervise_core::event::{ActError, ActErrorKind, EventKind, OperatorRequest};
use supervise_core::id::{ActId, AttemptNo, ProcRef, RunId};
use supervise_core::journal::record::LaunchOrder;
use supervise_core::policy::broken_nodes::broken_nodes;
use supervise_core::spec::gang::{NodesNews, lost_words};
use supervise_host::cluster::{JobQuery, end_job};
use supervise_host::guard::nodes::allocation::AllocatedNodes;
use supervise_host::guard::nodes::{lost_gang, steps};
use supervise_host::slurm;
use supervise_trainers::slurm::{JobOwnership, SlurmJob, words};
use supervise_trainers::{RayMode, adapter_of, job};

/// Pause before a scheduler is asked again whether a job has ended.
const ASK_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitWitness {
    /// Its guard, which sees all nodes.
    ByGuard,
    /// A sweep, which sees only this machine.
    BySweep,
}

/// What this term knows of jobs that are waited for.
pub(super) struct JobState {
    is_ending: bool,
    /// Messages that were printed already.
    printed: BTreeSet<String>,
    /// The run's key, stored only in its directory.
    key: String,
}

impl JobState {
    pub(super) fn new(key: String) -> Self {
        Self {
            is_ending: false,
            printed: BTreeSet::new(),
            key,
        }
    }
}

impl Driver {
    /// No process of the attempt is left here: ends what it submitted or runs on other nodes before its end is reported.
    pub(super) fn on_tree_gone(&mut self, attempt: AttemptNo, unkillable: Vec<ProcRef>, seen: ExitWitness) {
        let Some((attempt, unkillable, seen)) = self.holds_tree_end((attempt, unkillable, seen)) else {
            return;
        };
        let query = self.job_of(attempt).filter(|_| !self.ended_well(attempt));
        let jobs = self.slurm_jobs();
        let nodes = self.unseen_nodes(seen);
        if !unkillable.is_empty() || query.is_none() && jobs.is_none() && nodes.is_none() {
            return self.feed(EventKind::TreeGone { attempt, unkillable });
        }
        if std::mem::replace(&mut self.jobs.is_ending, true) {
            return;
        }
        if let Some(query) = &query {
            self.note_once(format!(
                "Ray's job {} is stopped, and waited for until it has ended",
                query.id
            ));
        }
        if nodes.is_some() {
            let what = "the nodes to end their ranks: no guard saw it, and one that is cut off does it by itself";
            self.on_nodes_wait(attempt, what.to_owned());
        }
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            if let Some((env, run)) = nodes {
                lost_gang::wait_out(&env, &run);
            }
            let ray = query.map_or(Ok(()), |query| {
                end_job(&query)
                    .map_err(|why| format!("Ray does not say that the job of attempt {attempt} has ended: {why}"))
            });
            let slurm = jobs.map_or(Ok(()), |query| {
                let said = slurm::end(&query, |jobs| {
                    let _ = tx.send(DriverMessage::Note(cancelled(jobs)));
                });
                said.map(|_| ())
                    .map_err(|why| format!("Slurm does not say that the jobs of this run have ended: {why}"))
            });
            let said = ray.and(slurm);
            if said.is_err() {
                std::thread::sleep(ASK_AGAIN);
            }
            // The driver may have exited meanwhile.
            let _ = tx.send(DriverMessage::JobEnded { attempt, seen, said });
        });
    }

    /// Handles the scheduler's answer: the job has ended, or the scheduler is asked again. The core decides how long.
    pub(super) fn on_job_ended(&mut self, attempt: AttemptNo, seen: ExitWitness, said: Result<(), String>) {
        self.jobs.is_ending = false;
        let is_known = said.is_ok();
        if let Err(why) = said {
            self.note_once(why);
        }
        // If the attempt finished well, nothing suggests a job is left: a missing answer then delays nothing.
        if is_known || self.ended_well(attempt) {
            self.jobs.printed.clear();
            self.feed(EventKind::TreeGone {
                attempt,
                unkillable: Vec::new(),
            });
            self.tell_of_failed_launch();
        } else {
            self.on_tree_gone(attempt, Vec::new(), seen);
        }
    }

    /// Reports a failed launch once nothing of it is left.
    pub(super) fn tell_of_failed_launch(&mut self) {
        if self.jobs.is_ending {
            return;
        }
        if let Some((act, error)) = self.launch.failed.take() {
            self.feed(EventKind::ActDone {
                act,
                result: Err(error),
            });
        }
    }

    /// The run's nodes, if the attempt ran on several and no guard saw its end there.
    fn unseen_nodes(&self, seen: ExitWitness) -> Option<(BTreeMap<String, String>, RunId)> {
        let last = self.state.attempt.as_ref().filter(|_| seen == ExitWitness::BySweep)?;
        // An attempt that was never started has no processes.
        let begun = last.term < self.state.term || self.launch.begun == Some(last.no);
        (begun && last.order.nodes > 1).then(|| (environment::own(), self.spec.run.clone()))
    }

    fn ended_well(&self, attempt: AttemptNo) -> bool {
        let of = self.state.attempt.as_ref();
        of.is_some_and(|a| a.no == attempt && a.succeeded())
    }

    fn note_once(&mut self, text: String) {
        if !self.jobs.printed.contains(&text) {
            self.printer.note(&text);
            self.jobs.printed.insert(text);
        }
    }

    fn job_of(&self, attempt: AttemptNo) -> Option<JobQuery> {
        if self.order.facts.ray != RayMode::Submitted {
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

    /// How to recognize this run's jobs.
    pub(super) fn proof(&self) -> JobOwnership {
        JobOwnership {
            key: self.jobs.key.clone(),
            run: self.spec.run.clone(),
        }
    }

    fn slurm_jobs(&self) -> Option<slurm::SlurmQuery> {
        let known = adapter_of(&self.spec).jobs(&self.spec.saves)?;
        let mut env = environment::own();
        env.extend(self.spec.env.clone());
        Some(slurm::SlurmQuery {
            proof: self.proof(),
            known,
            cwd: self.spec.cwd.clone(),
            env,
        })
    }

    /// Before a launch: checks that Slurm has no job of this run. Returns false if the run has none there.
    pub(super) fn ask_slurm(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let Some(query) = self.slurm_jobs() else {
            return false;
        };
        let order = order.clone();
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let said = slurm::end(&query, |jobs| {
                let _ = tx.send(DriverMessage::Note(cancelled(jobs)));
            });
            let said = said.and_then(|_| slurm::ask(&query));
            let _ = tx.send(DriverMessage::Slurm { act, order, said });
        });
        true
    }

    /// Handles Slurm's answer: the launch continues or waits.
    pub(super) fn on_slurm(&mut self, act: ActId, order: LaunchOrder, said: Result<Vec<SlurmJob>, String>) {
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
    /// Before a launch on several nodes: checks that no step of this run is left there. Returns false for a run on one node.
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
            let wait = |what| {
                let _ = tx.send(DriverMessage::NodesWait(order.attempt, what));
            };
            let said = steps::clear(&env, &run, wait).map(|(ended, places)| {
                if !ended.is_empty() {
                    let note = format!(
                        "Slurm's steps that an earlier attempt left are ended: {}",
                        ended.join(", ")
                    );
                    let _ = tx.send(DriverMessage::Note(note));
                }
                places
            });
            let _ = tx.send(DriverMessage::Nodes { act, order, said });
        });
        true
    }

    /// Prints what the end of an attempt waits for, if that is new.
    pub(super) fn on_nodes_wait(&mut self, attempt: AttemptNo, what: String) {
        let known = self
            .state
            .attempt
            .as_ref()
            .is_some_and(|a| a.nodes.wait.as_ref() == Some(&what));
        if !known {
            let news = NodesNews::Wait { what };
            self.feed(EventKind::Nodes { attempt, news });
        }
    }

    /// Launches on the free nodes, with the address of rank 0, or waits.
    pub(super) fn on_nodes(&mut self, act: ActId, order: LaunchOrder, said: Result<AllocatedNodes, String>) {
        let mut short = false;
        let what = match said {
            Ok(places) => {
                let broken = broken_nodes(&self.state.budget.failures);
                if let Some((on, left_out)) = places.choose(order.nodes, &broken) {
                    for (node, class) in broken.iter().filter(|(node, _)| on.contains(node)) {
                        self.note_once(format!(
                            "node {node} is used again after {class}: no other can take its place"
                        ));
                    }
                    let lost = [places.lost, left_out].concat();
                    let (attempt, nodes) = (order.attempt, on.clone());
                    self.launch.places = Some((on, places.address));
                    let news = NodesNews::On { nodes, lost };
                    self.feed(EventKind::Nodes { attempt, news });
                    return self.launch_from(act, order);
                }
                short = places.is_short(order.nodes);
                format!(
                    "{} of the {} nodes that the run needs are there; lost: {}",
                    places.usable.len(),
                    order.nodes,
                    lost_words(&places.lost)
                )
            }
            Err(why) => format!("Slurm does not say that the nodes are free of this run: {why}"),
        };
        let by = format!("Slurm, which took nodes out of the job ({what})");
        self.feed(EventKind::ActDone {
            act,
            result: Err(ActError {
                what,
                retryable: true,
                kind: ActErrorKind::Held,
            }),
        });
        // The allocation never gets them back: only a requeue provides enough nodes.
        if short {
            self.feed(EventKind::Operator(OperatorRequest::HandBack { by, left: None }));
        }
    }
}

fn cancelled(jobs: &[SlurmJob]) -> String {
    format!(
        "Slurm's jobs that outlived what had submitted them are cancelled, and waited for: {}",
        words(jobs)
    )
}
