//! One adapter per trainer framework.
//!
//! A [`TrainerAdapter`] knows what the rest of the program must not: what output lines mean, which steps are on disk and
//! how good each is, which argv and environment start a run exactly where it was decided. [`read`](mod@read) turns a
//! trainer's configuration into a run's specification; [`hydra`] implements the trainers' override grammar.
//! Everything is computed from its arguments: nothing here opens a file or reads a clock.

pub mod adapter;
pub mod areal;
pub mod code;
pub mod command;
pub mod declared;
pub mod hf;
pub mod hydra;
pub mod job;
pub mod kit;
pub mod launch;
pub mod one_node;
pub mod other_trainers;
pub mod own_loop;
pub mod plain;
pub mod python_command;
pub mod read;
pub mod registry;
pub mod rehearsal;
pub mod script_call;
mod shell;
pub mod slurm;
pub mod started_file;
pub mod verl;

pub use adapter::{
    AdapterPayload, Asks, ExpectedLayout, HostFacts, InPlaceLayout, InjectedSetting, LaunchPlan, SaveDoor, StepTracker,
    TrainerAdapter, TrainerFacts, TrainerNames, UserPart,
};
pub use kit::pins;
pub use launch::RayMode;
pub use read::{MachineCount, ReadInput, ReadOutput};
pub use registry::{adapter, adapter_of, expect, read};
pub use verl::{ReleaseSeries, VerlBaseConfig, VerlRelease, verl_defaults};
