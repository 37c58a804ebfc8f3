//! The demo trainer, the torch files it writes, and the ways in which a process can slip away. A package of its own: an edit of
//! the supervisor does not compile it again, and only it is optimized in a build for tests.

pub mod demo;
pub mod escape;
pub mod torch_file;
