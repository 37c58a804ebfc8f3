//! An attempt that only waits for a job of Ray's: when its processes are gone, the job may still train. It is stopped, and its
//! end waited for in Ray's own words, before anybody hears that nothing of the attempt is left.

use super::{Driver, Internal};
use std::time::Duration;
use supervise_core::event::EventKind;
use supervise_core::id::{AttemptNo, ProcRef};
use supervise_host::cluster::{JobQuery, end_job};
use supervise_trainers::{Ray, job};

/// A cluster that did not say that a job has ended is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

impl Driver {
    /// No process of the attempt is left here; what it had submitted ends before that is told.
    pub(super) fn on_tree_gone(&mut self, attempt: AttemptNo, unkillable: Vec<ProcRef>) {
        let ended_well = self
            .state
            .attempt
            .as_ref()
            .is_some_and(|a| a.no == attempt && a.succeeded());
        let query = self.job_of(attempt).filter(|_| unkillable.is_empty() && !ended_well);
        let Some(query) = query else {
            return self.feed(EventKind::TreeGone { attempt, unkillable });
        };
        if std::mem::replace(&mut self.ending_job, true) {
            return;
        }
        self.printer.note(&format!(
            "Ray's job {} is stopped, and waited for until it has ended",
            query.id
        ));
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let said = end_job(&query);
            if said.is_err() {
                std::thread::sleep(ASK_AGAIN);
            }
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::JobEnded { attempt, said });
        });
    }

    /// What Ray said of it: it has ended, or is asked for again. How long that goes on is the core's to say.
    pub(super) fn on_job_ended(&mut self, attempt: AttemptNo, said: Result<(), String>) {
        self.ending_job = false;
        match said {
            Ok(()) => self.feed(EventKind::TreeGone {
                attempt,
                unkillable: Vec::new(),
            }),
            Err(why) => {
                self.printer.note(&format!(
                    "Ray does not say that the job of attempt {attempt} has ended: {why}"
                ));
                self.on_tree_gone(attempt, Vec::new());
            }
        }
    }

    fn job_of(&self, attempt: AttemptNo) -> Option<JobQuery> {
        if self.prepared.facts.ray != Ray::Submitted {
            return None;
        }
        let id = job::id(&self.spec.run, attempt);
        let mut env = super::acts::environment();
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
}
