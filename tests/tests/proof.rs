//! I/O workers by themselves: what they prove, keep, hear and find again, asked as the driver asks them.
//!
//! The steps are small and written here; the I/O worker is a process of the real program. What an I/O worker reads is counted by
//! the kernel, so that "reads nothing again" is measured and not believed.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "proof/bridge.rs"]
mod bridge;
#[path = "proof/faults.rs"]
mod faults;
#[path = "proof/records.rs"]
mod records;
#[path = "proof/rot.rs"]
mod rot;
#[path = "proof/runs.rs"]
mod runs;
#[path = "proof/stage.rs"]
mod stage;
#[path = "proof/watching.rs"]
mod watching;

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");
