//! Before a launch on a Ray cluster that somebody else started: has it let go of the attempt before?

use super::{Driver, Internal};
use supervise_core::event::{ActError, ActErrorKind, EventKind};
use supervise_core::id::ActId;
use supervise_core::record::LaunchOrder;
use supervise_host::cluster::{Cluster, Query, ask};
use supervise_trainers::Ray;

impl Driver {
    /// Asks it, off the loop; `false`: there is no such cluster, and nobody to ask.
    pub(super) fn ask_cluster(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let Ray::Cluster { address, .. } = &self.order.facts.ray else {
            return false;
        };
        let mut env = crate::environment::own();
        env.extend(self.spec.env.clone());
        env.extend(self.spec.learnt.iter().flat_map(|l| l.env.clone()));
        let query = Query {
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
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::Cluster { act, order, said });
        });
        true
    }

    /// Its words: the launch goes on, or waits.
    pub(super) fn on_cluster(&mut self, act: ActId, order: LaunchOrder, said: Result<Cluster, String>) {
        let error = match said {
            Ok(said) if said.held.is_empty() => return self.launch_from(act, order),
            Ok(said) => ActError {
                what: format!(
                    "the Ray cluster at {} still holds {}",
                    said.address,
                    said.held.join(", ")
                ),
                retryable: true,
                kind: ActErrorKind::Held,
            },
            Err(why) => ActError {
                what: format!("the Ray cluster does not answer: {why}"),
                retryable: true,
                kind: ActErrorKind::Other,
            },
        };
        self.feed(EventKind::ActDone {
            act,
            result: Err(error),
        });
    }
}
