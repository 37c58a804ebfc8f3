//! The only checkpoint of AReaL: proven, kept, put back; cut short at every operation of a save; our own work disturbed at
//! every call that changes the disk.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "single_checkpoint/crash.rs"]
mod crash;
#[path = "single_checkpoint/sets.rs"]
mod sets;
#[path = "single_checkpoint/stage.rs"]
mod stage;
#[path = "single_checkpoint/trainer_generations.rs"]
mod trainer_generations;
