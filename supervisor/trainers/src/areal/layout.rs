//! The layout of the only checkpoint, for the code that copies and restores it.

use super::{Sets, frequency, judge, names};
use crate::adapter::{ExpectedLayout, InPlaceLayout};
use supervise_core::checkpoint::{CheckpointSummary, Finding};
use supervise_core::id::Step;

#[derive(Debug)]
pub(super) struct ArealLayout;

impl InPlaceLayout for ArealLayout {
    fn info(&self) -> &'static str {
        names::INFO
    }

    fn state(&self) -> &'static str {
        names::STATE
    }

    fn payloads(&self) -> &'static str {
        names::PAYLOADS
    }

    fn as_own(&self, path: &str) -> String {
        names::as_own(path)
    }

    fn no_set(&self, step: Step, finding: Finding) -> CheckpointSummary {
        judge::no_set(step, finding)
    }

    fn stored(&self, expect: &ExpectedLayout) -> Vec<String> {
        let live = Sets::live(expect).into_iter();
        live.flat_map(|live| live.frequencies.keys().cloned()).collect()
    }

    fn corrected(&self, expect: &ExpectedLayout, name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let Some(wanted) = Sets::live(expect).and_then(|live| live.frequencies.get(name)) else {
            return Ok(None);
        };
        Ok(frequency::with_frequencies(bytes, wanted)?.map(|edited| edited.bytes))
    }
}
