//! One adapter per trainer framework.
//!
//! An [`Adapter`] answers what the rest of the program must not know: what lines of output mean, which steps are on disk and what each is worth,
//! what goes into argv and environment so that a run starts exactly where it was decided. [`read`](mod@read) turns a trainer's configuration
//! into the parts of a run's specification; [`hydra`] speaks the trainers' override grammar. Everything is computed from values handed in: no file is opened here, no clock is read.

pub mod adapter;
pub mod areal;
pub mod code;
pub mod command;
pub mod hf;
pub mod hydra;
pub mod job;
pub mod kit;
pub mod launch;
pub mod one_node;
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
    AdapterPayload, Asks, ExpectedLayout, HostFacts, InPlaceLayout, InjectedSetting, LaunchPlan, StepTracker,
    TrainerAdapter, TrainerFacts, TrainerNames, UserPart,
};
pub use kit::pins;
pub use launch::RayMode;
pub use read::{MachineCount, ReadInput, ReadOutput};
pub use registry::{adapter, expect, read};
pub use verl::{ReleaseSeries, VerlBaseConfig, VerlRelease, verl_defaults};
