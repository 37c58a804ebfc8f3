//! Parts shared by all adapters. None of them knows a particular trainer.

pub(crate) mod experiment;
mod pins;
mod reader;
mod summary;
mod trust;

pub use experiment::MetricsTool;
pub(crate) use pins::PinsSum;
pub use pins::pins;
pub(crate) use reader::{ConfigReader, ScalarType};
pub(crate) use summary::{blank, unknown_step};
pub(crate) use trust::{allow, not_trusted};

const REMARKS: usize = 20;

pub(crate) fn first(mut remarks: Vec<String>) -> Vec<String> {
    let more = remarks.len().saturating_sub(REMARKS);
    remarks.truncate(REMARKS);
    remarks.extend((more > 0).then(|| format!("{more} more names of this kind")));
    remarks
}
