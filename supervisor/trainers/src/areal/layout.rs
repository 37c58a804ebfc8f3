//! The layout of the only checkpoint, for those who copy it and put it back.

use super::{Sets, frequency, judge, names};
use crate::adapter::{Expectation, InPlace};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CheckpointSummary, Finding};
use supervise_core::id::Step;
use supervise_core::spec::Frequencies;

/// Where the parts of a set stand.
#[derive(Debug)]
pub(super) struct Layout;

impl InPlace for Layout {
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

    fn frequencies(&self, expect: &Expectation) -> BTreeMap<String, Frequencies> {
        Sets::live(expect)
            .map(|live| live.frequencies.clone())
            .unwrap_or_default()
    }

    fn with_frequencies(&self, bytes: &[u8], wanted: &Frequencies) -> Result<Option<Vec<u8>>, String> {
        Ok(frequency::with_frequencies(bytes, wanted)?.map(|edited| edited.bytes))
    }
}
