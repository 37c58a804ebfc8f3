//! Every system call of supervise.

pub mod address;
pub mod allocation;
pub mod cluster;
mod disk;
pub mod evidence;
pub mod gpus;
pub mod guard;
pub mod hidden_places;
pub mod hub;
pub mod interpreter;
pub mod io_worker;
pub mod journald;
pub mod kernel_log;
pub mod log_writer;
pub mod migrate;
pub mod model_folder;
pub mod output_dir;
pub mod ownership;
pub mod process;
pub mod script;
pub mod service_manager;
pub mod slurm;
pub mod system;
pub mod wire;
