//! Files of a model that are read or copied, possibly through links.

use super::FoundModel;
use crate::error::CliError;
use crate::render::merge::LinkedFile;
use crate::render::terminal::shown;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::{FileKind, small_files};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_host::model_folder::{ModelFile, ModelFolder, NotOpened};

pub(in crate::cli) fn folder(found: &FoundModel) -> Result<ModelFolder, CliError> {
    ModelFolder::inside(&found.root, &found.dir).map_err(|e| not_opened(&found.dir, e))
}

pub(in crate::cli) fn not_opened(path: &Utf8Path, why: NotOpened) -> CliError {
    let text = format!("{}: {why}", shown(path.as_str()));
    match why {
        NotOpened::Outside { .. } | NotOpened::LinkedDir | NotOpened::Dangling => {
            CliError::checkpoint(Verdict::Unknown, text).hint(
                "put the file itself in its place (`cp --remove-destination`), or name the directory that holds it",
            )
        }
        NotOpened::Io(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            CliError::environment(text)
                .hint("it takes one open file for each file of the checkpoint: raise the hard limit (`ulimit -Hn`)")
        }
        NotOpened::Io(e) if e.kind() == io::ErrorKind::NotFound => CliError::checkpoint(Verdict::Incomplete, text),
        NotOpened::Io(_) | NotOpened::NotAFile => CliError::checkpoint(Verdict::Unreadable, text),
    }
}

/// The text of a JSON file next to a model, checked as in a proof, and its permissions. `None`: it does not exist.
pub(in crate::cli) fn text(folder: &ModelFolder, name: &str) -> Result<Option<(Vec<u8>, u32)>, CliError> {
    let path = folder.path(Utf8Path::new(name));
    let opened = match folder.open(Utf8Path::new(name)) {
        Err(e) if e.is_missing() => return Ok(None),
        opened => opened.map_err(|e| not_opened(&path, e))?,
    };
    let mode = opened.mode;
    let source = FileSource::from(opened);
    let text = small_files::read_text(FileKind::of(name), &source, &super::limits()?)
        .map_err(|f| CliError::checkpoint(f.effect(), format!("{path}: {f}")))?;
    Ok(Some((text, mode)))
}

/// Describes a file that is behind a link.
pub(in crate::cli) fn linked(name: &str, file: &ModelFile) -> Option<LinkedFile> {
    file.is_linked.then(|| LinkedFile {
        file: name.to_owned(),
        from: Utf8PathBuf::from(shown(file.real.as_str())),
    })
}
