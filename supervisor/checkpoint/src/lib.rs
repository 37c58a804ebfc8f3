//! Checkpoint formats, parsed from untrusted bytes.
//!
//! A proof takes three calls. [`inspect`] checks the structure of one file (kilobytes) and returns findings and a [`ReadPlan`];
//! [`sweep`](mod@sweep) reads and checksums what the plan names; [`judge_file`] combines both into a [`FileReport`]. Nothing here opens a
//! file, runs code from one, or follows a path in one: bytes come through a [`ByteSource`], and whatever they contain, the result is a
//! report and never a panic.

mod bare;
pub mod codes;
mod dataloader;
pub mod dcp;
pub mod detail;
mod device;
pub mod dtype;
pub mod flight;
pub mod inspect;
pub mod json;
pub mod judge;
pub mod kind;
pub mod latest_file;
pub mod limits;
pub mod megatron;
pub mod pickle;
pub mod plan;
pub mod proof_record;
pub mod queue;
mod raw;
pub mod required_file;
pub mod safetensors;
pub mod set;
pub mod small_files;
pub mod source;
pub mod step_counters;
pub mod sweep;
pub mod torch;
pub mod zip;

pub use dcp::{DcpFacts, DcpMetadata};
pub use detail::{FileDescription, FileDetail};
pub use dtype::Dtype;
pub use inspect::{InspectedFile, inspect, inspect_described};
pub use json::Frequencies;
pub use judge::{FileReport, FloatTally, judge_file, unreadable_file};
pub use kind::FileKind;
pub use latest_file::LatestFile;
pub use limits::InspectLimits;
pub use megatron::{DistBackend, DistManifest, ManifestEntry};
pub use plan::{ByteExtent, ExtentResult, ReadPlan};
pub use proof_record::{FilePin, ProofRecord, ProofValidity, ProvenFile};
pub use queue::QueueFacts;
pub use required_file::RequiredFile;
pub use set::{SetKind, SetReport};
pub use source::{ByteSource, ReadFault};
pub use step_counters::{EarlierStep, StepCounters};
pub use sweep::{SweepError, SweepOptions, SweepProgress, sweep, sweep_parallel};
