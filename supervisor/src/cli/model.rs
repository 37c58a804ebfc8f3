//! Models as the command line names them: found, looked into, open.

mod open;
mod source;

pub(super) use open::{Model, open};
pub(super) use source::{Files, Found, exported, find};
