//! Before a launch on an external Ray cluster: has it released the resources of the previous attempt?

use super::{Driver, DriverMessage};
use supervise_core::event::{ActError, ActErrorKind, EventKind};
use supervise_core::id::ActId;
use supervise_core::journal::record::LaunchOrder;
use supervise_host::cluster::{RayQuery, RayStatus, ask};
use supervise_trainers::RayMode;

impl Driver {
    /// Asks the cluster off the loop. Returns false if there is none.
    pub(super) fn ask_cluster(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let RayMode::Cluster { address, .. } = &self.order.facts.ray else {
            return false;
        };
        let mut env = crate::environment::own();
        env.extend(self.spec.env.clone());
        env.extend(self.spec.learnt.iter().flat_map(|l| l.env.clone()));
        let query = RayQuery {
            command: self.spec.trainer_command().to_vec(),
            cwd: self.spec.cwd.clone(),
            env,
            address: address.clone().unwrap_or_default(),
            root: self.spec.root.as_ref().map(ToString::to_string).unwrap_or_default(),
            drivers: self.recorded().iter().map(|p| p.pid).collect(),
        };
        let order = order.clone();
        let tx = self.internal.clone();
        tokio::task::spawn_blocking(move || {
            let said = ask(&query);
            // The driver may have exited meanwhile.
            let _ = tx.send(DriverMessage::Cluster { act, order, said });
        });
        true
    }

    /// Handles the answer: the launch continues or waits.
    pub(super) fn on_cluster(&mut self, act: ActId, order: LaunchOrder, said: Result<RayStatus, String>) {
        let Some(error) = in_the_way(said) else {
            return self.launch_from(act, order);
        };
        self.feed(EventKind::ActDone {
            act,
            result: Err(error),
        });
    }
}

/// Why a launch on the cluster must wait. Not a failure: a head that is down may be restarted, and held resources may be released.
fn in_the_way(said: Result<RayStatus, String>) -> Option<ActError> {
    let what = match said {
        Ok(said) if said.held.is_empty() => return None,
        Ok(said) => format!(
            "the Ray cluster at {} still holds {}",
            said.address,
            said.held.join(", ")
        ),
        Err(why) => format!("the Ray cluster does not answer: {why}"),
    };
    Some(ActError {
        what,
        retryable: true,
        kind: ActErrorKind::Held,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_away_or_not_free_is_waited_for() {
        let cluster = |held: &[&str]| RayStatus {
            address: "10.0.0.1:6379".into(),
            nodes: 2,
            gpus: 16.0,
            held: held.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(in_the_way(Ok(cluster(&[]))), None);
        let away = in_the_way(Err("ConnectionRefusedError: [Errno 111]".to_owned()));
        for (error, says) in [
            (in_the_way(Ok(cluster(&["job 01"]))), "still holds job 01"),
            (away, "does not answer"),
        ] {
            assert!(
                error.is_some_and(|e| e.kind == ActErrorKind::Held && e.retryable && e.what.contains(says)),
                "{says}"
            );
        }
    }
}
