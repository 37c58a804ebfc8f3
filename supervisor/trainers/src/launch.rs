//! The launcher: it starts and holds the processes of a trainer, whichever it is.

mod ray;

pub use ray::Ray;
