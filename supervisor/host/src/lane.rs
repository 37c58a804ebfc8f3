//! Lanes: our own program re-executed as a helper that touches the users' mounts, so that the driver never does.
//!
//! A process in uninterruptible sleep cannot be killed, and a thread in it would keep its process from dying: so
//! every path under a checkpoint root, a run directory or a home directory is opened by a lane, and a lane can be
//! abandoned. Requests and replies are JSON lines over its standard input and output, answered in order.
//! While a long request is worked on, `Working` lines say so; `Touched` says that watched files changed.

mod ahead;
mod client;
mod copy;
mod edit;
mod files;
mod folded;
mod ground;
mod identity;
mod kept;
mod known;
mod latest;
mod lease;
mod leftovers;
mod listed;
mod look;
mod own;
mod pace;
mod place;
mod proof;
mod protocol;
mod records;
mod reply;
mod scan;
mod scrub;
mod serve;
mod stand;
mod store;
mod tenure;
mod tree;
mod verified;
mod watch;
mod write;

pub use crate::disk::{open_log, own_place, read_own, write_test, write_whole};
pub use client::{Client, LaneError};
pub use files::{FileSource, fact_of, read_small, walk};
pub use identity::{RUN_DIR_NAME, lease_dir};
pub use kept::look_at_run;
pub use latest::live_dir;
pub use lease::own_claim;
pub use listed::Listed;
pub use look::{Failure, Kind, Look, Room, Seen};
pub use proof::FileProver;
pub use protocol::{
    Answer, Began, Identity, JournalPlace, LaneReply, LaneRequest, Leftover, LeftoverKind, Loaded, Question, Taken,
};
pub use scan::{Prover, Scanned};
pub use scrub::{Scrub, Scrubbed, scrub};
pub use serve::{NO_THREAD, main};
pub use stand::Where;
pub use verified::VERIFIED;

/// A directory for a test, which goes with the first of the two.
#[cfg(test)]
fn temp_dir() -> (tempfile::TempDir, camino::Utf8PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = camino::Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
    (dir, path)
}
