//! The only checkpoint of AReaL: proven, kept, put back; cut short at every operation of a save; our own work disturbed at
//! every call that changes the disk.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "live/crash.rs"]
mod crash;
#[path = "live/own.rs"]
mod own;
#[path = "live/sets.rs"]
mod sets;
#[path = "live/stage.rs"]
mod stage;
