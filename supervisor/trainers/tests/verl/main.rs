//! Files and lines that verl leaves, and what is made of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod assist;
mod batches;
mod degraded;
mod door;
mod finished;
mod fixtures;
mod fold;
mod launch;
mod layouts;
mod lineage;
mod lines;
mod megatron;
mod megatron_first;
mod megatron_resumes;
mod megatron_runs;
mod ppo;
mod ppo_limits;
mod ray;
mod reading;
mod reading_requested;
mod reading_sft;
mod reading_values;
mod retention;
mod sft;
mod tree;
mod trust;
mod versions;
