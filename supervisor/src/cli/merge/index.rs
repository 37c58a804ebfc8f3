//! The index of a model's files that the trainer wrote.

use super::output::INDEX;
use crate::cli::model;
use crate::error::CliError;
use camino::Utf8Path;
use supervise_checkpoint::safetensors::Index;
use supervise_checkpoint::small_files::read_index;
use supervise_host::io_worker::FileSource;
use supervise_host::model_folder::ModelFolder;

pub(super) struct ModelIndex {
    pub(super) text: String,
    pub(super) mode: u32,
    pub(super) said: Index,
}

impl ModelIndex {
    /// Reads the index in a directory, if there is one.
    pub(super) fn read(folder: &ModelFolder) -> Result<Option<Self>, CliError> {
        let name = Utf8Path::new(INDEX);
        let path = folder.path(name);
        let opened = match folder.open(name) {
            Err(e) if e.is_missing() => return Ok(None),
            opened => opened.map_err(|e| model::not_opened(&path, e))?,
        };
        let mode = opened.mode;
        let (said, text) = read_index(&FileSource::from(opened), &model::limits()?)
            .map_err(|f| CliError::checkpoint(f.effect(), format!("{path}: {f}")))?;
        Ok(String::from_utf8(text).ok().map(|text| Self { text, mode, said }))
    }
}
