//! Copies of the only checkpoint of a run.

use serde::Serialize;
use supervise_core::checkpoint::Verdict;
use supervise_core::checkpoint::kind::{is_kept, is_live};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// Copies of a checkpoint that the trainer overwrites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptView {
    pub live: Option<u64>,
    /// Steps of the whole generations, newest first.
    pub generations: Vec<u64>,
    pub problem: Option<String>,
}

impl KeptView {
    pub(super) fn of(s: &RunState, spec: &RunSpec) -> Option<Self> {
        spec.saves.in_place()?;
        let steps = s.disk.scan.iter().flat_map(|scan| &scan.steps);
        let (live, kept): (Vec<_>, Vec<_>) = steps
            .filter(|c| c.verdict == Verdict::Whole)
            .partition(|c| is_live(&c.id));
        Some(Self {
            live: live.first().map(|c| c.step.0),
            generations: kept.iter().filter(|c| is_kept(&c.id)).map(|c| c.step.0).collect(),
            problem: s.disk.keep_failed.as_ref().map(|f| f.why.clone()),
        })
    }

    pub(super) fn words(&self) -> String {
        let steps: Vec<String> = self.generations.iter().map(u64::to_string).collect();
        let kept = match steps.as_slice() {
            [] => "no copy of the only checkpoint is kept".to_owned(),
            [one] => format!("a copy of step {one}"),
            [more @ .., last] => format!("copies of steps {} and {last}", more.join(", ")),
        };
        match &self.problem {
            Some(why) => format!("{kept}; {why}"),
            None => kept,
        }
    }
}
