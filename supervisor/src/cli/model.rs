//! Finds and opens models named on the command line.

mod folder;
mod form;
mod listing;
mod open;
mod same;
mod source;
mod zero;

pub(super) use folder::{folder, linked, not_opened, text};
pub(super) use form::{FoundModel, WeightFiles, adapter, exported, is_of_trainer, trainers_step};
pub(super) use open::{ModelOpenOptions, OpenModel, limits, open, plan};
pub(super) use same::{is_same, replicas};
pub(super) use source::{find, step_dir};
