//! Assembles a checkpoint's tensors into one model, however many files and ranks they are divided over.
//!
//! [`ModelWeights`] says where the elements of each tensor are. [`fsdp`] builds it from the shards of all ranks, [`dcp`] from the files
//! of `torch.distributed.checkpoint`, [`safetensors`] from whole files. [`hf`] and [`megatron`] give the tensors the names of Hugging
//! Face's libraries, [`layout`] assigns them to output files, and [`write`] reads, checks, casts and writes them in one pass and in
//! bounded memory. Nothing here opens a file: bytes come through a [`ByteSource`](supervise_checkpoint::ByteSource) and go to an
//! [`OutputSink`].

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
