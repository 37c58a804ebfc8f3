//! The launcher: it starts and holds the processes of a trainer, whichever it is.

pub(crate) mod ray;

pub use ray::RayMode;
