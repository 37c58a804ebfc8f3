//! Proposes a command that saves for a run that would save nothing.

use crate::prepare::discovery::{DiscoveredCommand, longest_step, starts};
use crate::render::proposed;
use supervise_config::{ConfigError, ErrorKind};
use supervise_core::id::Ms;
use supervise_trainers::TrainerAdapter;

/// Time between two proposed saves, in ms: a compromise between the cost of a crash and of a save.
const BETWEEN: u64 = 30 * 60 * 1000;
/// Steps between saves if the length of a step is unknown.
const USUAL: u64 = 10;

/// The command that would save, if the configuration is refused because of its save interval.
pub(super) fn proposal(
    d: &DiscoveredCommand,
    problems: &[ConfigError],
    trainer: &dyn TrainerAdapter,
) -> Option<String> {
    let key = trainer.words().every?;
    let is_it = |e: &ConfigError| e.kind == ErrorKind::BadValue && e.key.as_deref() == Some(key);
    if !problems.iter().any(is_it) {
        return None;
    }
    let step = starts(&d.sources).iter().find_map(longest_step);
    let every = step.map_or(USUAL, steps_between);
    let words = d.sources.request.again(&["run"], &[(key, every)]);
    let why = step.map_or_else(String::new, |_| {
        ", half an hour by the longest step of its last run".to_owned()
    });
    Some(format!("with a save every {every} steps{why}: {}", proposed(&words)))
}

fn steps_between(step: Ms) -> u64 {
    (BETWEEN / step.0.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_hour_lies_between_proposed_saves() {
        assert_eq!([60_000, 7_200_000, 500].map(|ms| steps_between(Ms(ms))), [30, 1, 3600]);
    }
}
