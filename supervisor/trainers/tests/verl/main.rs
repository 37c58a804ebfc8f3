//! What verl leaves on disk and prints, and what is made of it.

mod fixtures;
mod fold;
mod launch;
mod lines;
mod ppo;
mod reading;
mod sft;
mod tree;
