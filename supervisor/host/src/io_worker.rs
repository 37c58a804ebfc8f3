//! I/O workers: our own program, re-executed as a helper that accesses the users' mounts, so that the supervisor
//! never does.
//!
//! A process in uninterruptible sleep cannot be killed, and a thread in it keeps its process from exiting. So every
//! path under a checkpoint root, a run directory or a home directory is opened by an I/O worker, which can be
//! abandoned. Requests and replies are JSON lines over its standard input and output, answered in order. During a
//! long request, `Working` lines report progress; `Touched` reports that watched files changed.

mod checkpoint_places;
mod client;
mod copy;
mod edit;
mod files;
mod fs_kind;
mod generation_store;
mod identity;
mod judged;
mod latest;
mod lease;
mod leftovers;
mod nested_steps;
mod others_steps;
mod own_modules;
mod path_guard;
mod path_query;
mod prefetch;
mod probe;
mod proof;
mod proof_cache;
mod proof_record;
mod proof_writer;
mod protocol;
mod rate_limit;
mod registry;
mod replay;
mod reply;
pub mod requests;
pub mod reshard;
mod reshard_in_place;
mod save_requests;
mod scan;
mod scrub;
mod serve;
mod step_owner;
mod store;
mod term;
mod tracker_file;
mod trainer_generations;
mod tree;
mod watch;
mod weights;
mod write;

pub use crate::disk::{open_log, own_ids, own_place, read_own, write_test, write_whole};
pub use checkpoint_places::RunCheckpoints;
pub use client::{IoClient, IoWorkerError, PendingRequest};
pub use files::{FileSource, fact_of, read_plain, read_small, walk};
pub use generation_store::look_at_run;
pub use identity::{RUN_DIR_NAME, came_with_a_copy};
pub use judged::trust_here;
pub use latest::live_dir;
pub use lease::{lease_dir, own_claim};
pub use nested_steps::nested_steps;
pub use own_modules::name_own_modules;
pub use path_query::{PathAnswer, PathError, PathKind, PathQuery, SaveSpace};
pub use probe::DiskRoom;
pub use proof::FileProver;
pub use proof_record::{RECORD_SUFFIX, VERIFIED, proven};
pub use protocol::{
    AttemptStart, IoAnswer, IoQuestion, IoReply, IoRequest, JournalPlace, Leftover, LeftoverKind, LoadedRun, NewerLine,
    RunIdentity, TermStart,
};
pub use registry::RegisteredRun;
pub use save_requests::SAVE_ANSWERS;
pub use scan::{RootProver, Scanned};
pub use scrub::{Scrub, ScrubResult, scrub};
pub use serve::{NO_THREAD, main};
pub use tracker_file::read_tracker;

/// A test directory, deleted when the first value is dropped.
#[cfg(test)]
fn temp_dir() -> (tempfile::TempDir, camino::Utf8PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = camino::Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
    (dir, path)
}
