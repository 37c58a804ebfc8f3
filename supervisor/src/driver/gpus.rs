//! Before a launch: are the GPUs that the run names there, empty and sound?

use super::{Driver, Internal};
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::event::EventKind;
use supervise_core::gpu::{Named, in_the_way, looks_again};
use supervise_core::id::{ActId, Ms};
use supervise_core::record::LaunchOrder;
use supervise_core::state::Mode;
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
        self.look_at_gpus(act, order.clone(), named, 1, Ms(0));
        true
    }

    /// The look of this number, after a pause.
    fn look_at_gpus(&self, act: ActId, order: LaunchOrder, named: Named, looks: usize, pause: Ms) {
        let tx = self.internal.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause.0)).await;
            let Ok(said) = tokio::task::spawn_blocking(move || look(&named)).await else {
                return;
            };
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::Gpus {
                act,
                order,
                looks,
                said,
            });
        });
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
    pub(super) fn on_gpus(&mut self, act: ActId, order: LaunchOrder, looks: usize, said: Result<Gpus, String>) {
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
        let Some(error) = in_the_way(&named, &seen.devices, &seen.owners, before) else {
            return self.launch_from(act, order);
        };
        let is_wanted = matches!(self.state.mode, Mode::Launching { .. });
        match looks_again(&error, looks).filter(|_| is_wanted) {
            Some(pause) => self.look_at_gpus(act, order, named, looks + 1, pause),
            None => self.feed(EventKind::ActDone {
                act,
                result: Err(error),
            }),
        }
    }
}
