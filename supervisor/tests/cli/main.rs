//! The program as a person uses it: its real binary in a world of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

mod answers;
mod areal;
mod asked;
mod bad_input;
mod checkpoints;
mod commands;
mod compare;
mod completions;
mod convert;
mod declared;
mod deepspeed;
mod diagnose;
mod docs;
mod foreign;
mod hf;
mod hf_commands;
mod install;
mod journal_page;
mod megatron;
mod merge;
mod merge_formats;
mod merge_links;
mod metrics_page;
mod migrate;
mod mistakes;
mod other_trainers;
mod policy;
mod progress;
mod release;
mod render;
mod reshard;
mod sbatch;
mod screens;
mod seams;
mod secrets;
mod simulate;
mod verify;
mod verl_edges;
mod world;

/// Says that a test proves nothing here; under `CI=true` that fails.
fn skipped(why: &str) {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "this cannot be tested here: {why}"
    );
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {why}\n"));
}
