//! A plan whose numbers can be checked by hand.

use supervise_core::id::Ms;
use supervise_core::spec::policy::{BackoffPolicy, FailurePolicy};
use supervise_simulate::plan::{FailureSource, SimulationPlan};

/// 10,000 s of training with a save every 600 s, failures at these seconds, and no backoff.
pub(crate) fn plan(failures: &[u64]) -> SimulationPlan {
    SimulationPlan {
        steps: 1000,
        step: Ms::secs(10),
        every: 60,
        stall: Ms::secs(30),
        save: Ms::secs(30),
        launch: Ms::secs(200),
        first_launch: Ms(0),
        detect: Ms(0),
        replace: Ms(0),
        replaced: 0.0,
        damaged: 0.0,
        person: Ms::secs(3600),
        failures: FailureSource::Given(failures.iter().copied().map(Ms::secs).collect()),
        backoff: BackoffPolicy {
            initial: Ms(0),
            ..BackoffPolicy::default()
        },
        policy: FailurePolicy::default(),
        limit: Ms::secs(1_000_000),
    }
}
