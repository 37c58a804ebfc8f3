//! The demo trainer: a real data-parallel trainer in miniature.
//!
//! A gang of processes trains a small network on a synthetic task. Parameters and
//! optimizer state are sharded over the ranks; weights are gathered and gradients summed
//! through rank 0 in a fixed order, so that one seed gives one result, bit for bit. On
//! disk and in its output it behaves as verl's PPO trainer does, flaws included: it
//! trusts the tracker, starts from scratch in silence where that is missing, and stops
//! with a traceback where a shard is. State that an exact resume needs is spread over
//! the model, optimizer and extra shards and `data.pt`; losing any of it changes the
//! digest printed at the end. Faults happen at chosen steps, each once over the run.
//!
//! Files beside the checkpoint root: `writers/` (who wrote, see [`writers`]), `faults/`
//! (the ledger, see [`faults`]), `lives/` (who lived when, see [`lives`]), `losses.jsonl`, `digest.txt`.

pub mod checkpoint;
pub mod console;
pub mod data;
pub mod failure;
pub mod faults;
pub mod gang;
pub mod hangs;
pub mod lives;
pub mod network;
pub mod overrides;
pub mod program;
pub mod random;
pub mod resume;
pub mod save_requests;
pub mod settings;
pub mod shards;
pub mod trainer;
pub mod writers;
