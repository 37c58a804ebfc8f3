//! Parts that adapters share, whichever trainer they speak for. Nothing in it knows one.

mod pins;
mod reader;
mod summary;
mod trust;

pub use pins::pins;
pub(crate) use reader::{Kind, Reader};
pub(crate) use summary::{blank, unknown_step};
pub(crate) use trust::{allow, not_trusted};
