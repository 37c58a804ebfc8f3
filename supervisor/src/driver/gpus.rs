//! Before a launch: are the GPUs that the run names there, empty and sound?

use super::{Driver, Internal};
use std::collections::BTreeMap;
use supervise_core::event::EventKind;
use supervise_core::gpu::{Named, in_the_way};
use supervise_core::id::ActId;
use supervise_core::record::LaunchOrder;
use supervise_host::gpus::{Gpus, look};

/// The variable that names a worker's devices.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Facts about the devices in this term.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Errors that each had counted at the first look.
    before: Option<BTreeMap<String, u64>>,
    /// That nobody answers was told.
    told: bool,
}

impl Driver {
    /// Looks at them, off the loop; `false`: none is named here.
    pub(super) fn ask_gpus(&mut self, act: ActId, order: &LaunchOrder) -> bool {
        let named = self.named_gpus();
        if !self.spec.policy.check_gpus || named.is_empty() || order.nodes > 1 {
            return false;
        }
        let (order, tx) = (order.clone(), self.internal.clone());
        tokio::task::spawn_blocking(move || {
            let said = look(&named);
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::Gpus { act, order, said });
        });
        true
    }

    /// As the workers' environment will name them.
    fn named_gpus(&self) -> Named {
        let gang = &self.spec.gang.gpus;
        if !gang.is_empty() {
            let all: Vec<String> = gang.iter().map(u32::to_string).collect();
            return Named::read(&all.join(","));
        }
        let learnt = self.spec.learnt.iter().find_map(|l| l.env.get(VISIBLE));
        let said = learnt.or_else(|| self.spec.env.get(VISIBLE)).cloned();
        Named::read(&said.or_else(|| std::env::var(VISIBLE).ok()).unwrap_or_default())
    }

    /// The launch goes on, or waits. A driver that does not answer is no reason to wait: the trainer would not either.
    pub(super) fn on_gpus(&mut self, act: ActId, order: LaunchOrder, said: Result<Gpus, String>) {
        let seen = match said {
            Ok(seen) => seen,
            Err(why) => {
                if !std::mem::replace(&mut self.gpus.told, true) {
                    self.printer
                        .note(&format!("the GPUs are not looked at before a launch: {why}"));
                }
                return self.launch_from(act, order);
            }
        };
        let counted = || {
            let errors = seen.devices.iter().filter_map(|d| Some((d.uuid.clone(), d.errors?)));
            errors.collect()
        };
        let named = self.named_gpus();
        let before = self.gpus.before.get_or_insert_with(counted);
        match in_the_way(&named, &seen.devices, &seen.owners, before) {
            None => self.launch_from(act, order),
            Some(error) => self.feed(EventKind::ActDone {
                act,
                result: Err(error),
            }),
        }
    }
}
