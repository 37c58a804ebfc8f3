//! Launchers: what starts and holds a trainer's processes.

pub(crate) mod ray;

pub use ray::RayMode;
