//! Samples of the ranks.

use super::Guard;
use crate::guard::connection::DriverConnection;
use crate::guard::counters::WatchedRank;
use crate::guard::protocol::FromGuard;
use crate::guard::tree::TreePhase;

impl Guard {
    /// Ends a window of the ranks' counters. If the supervisor is slow to read, the sample is skipped: another
    /// follows.
    pub(super) fn look_at_ranks(&mut self, now: u64) {
        if !self.watches() || now < self.look_due() {
            return;
        }
        let clock = self.facts.phase.clock(self.facts.step.is_some());
        let look = match &mut self.nodes {
            Some(nodes) => nodes
                .window(now)
                .and_then(|told| self.pulses.of_nodes(now, told, clock)),
            None => {
                let workers = self.workers.iter().map(|w| WatchedRank {
                    worker: w.id,
                    pid: w.proc.pid,
                });
                let workers: Vec<WatchedRank> = workers.collect();
                let helper = self.pulses.helper();
                let look = self.pulses.window(now, &workers, self.tree.known_pids(), clock);
                if self.pulses.helper() != helper {
                    self.spare_helpers();
                }
                look
            }
        };
        let busy = self.connection.as_ref().is_some_and(DriverConnection::has_unsent);
        if let Some(look) = look.filter(|_| !busy) {
            self.tell(FromGuard::Looked(look));
        }
    }

    pub(super) fn look_due(&self) -> u64 {
        self.nodes.as_ref().map_or_else(|| self.pulses.due(), |nodes| nodes.due)
    }

    pub(super) fn watches(&self) -> bool {
        self.launched && !self.frozen && self.tree.end == TreePhase::Running
    }
}
