//! A checkpoint's tensors as one model, whatever the number of files and ranks that hold them.
//!
//! [`Weights`] says where the elements of each tensor lie; [`fsdp`] makes it of the shards of all ranks, [`dcp`] of the files of
//! `torch.distributed.checkpoint`, [`safetensors`] of files that are whole. [`hf`] and [`megatron`] say what
//! Hugging Face's libraries call those tensors, [`layout`] which file of the output holds which, and [`write`] reads, checks, casts and
//! writes them in one pass and in bounded memory. Nothing here opens a file: bytes come through a
//! [`Source`](supervise_checkpoint::Source) and go to a [`Target`].

mod archive;
mod archive_writer;
pub mod cast;
mod checksums;
pub mod compare;
pub mod dcp;
pub mod deepspeed;
mod fold;
pub mod fsdp;
pub mod hf;
pub mod layout;
pub mod megatron;
pub mod model;
mod problem;
mod read;
pub mod reshard;
pub mod safetensors;
pub mod torch_dist;
pub mod write;

pub use layout::{OutFile, OutTensor, TensorRange};
pub use model::{Fold, ModelTensor, ModelWeights, SourceFile, TensorChunk};
pub use problem::ModelError;
pub use read::{ModelReader, SharedSource};
pub use write::{OutputSink, write};
