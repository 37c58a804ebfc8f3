//! Lists directories.

use crate::error::CliError;
use camino::Utf8Path;
use std::io;

/// The names in a directory; `None` if it does not exist or is no directory.
pub(super) fn names(dir: &Utf8Path) -> Result<Option<Vec<String>>, CliError> {
    let entries = match dir.read_dir_utf8() {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(CliError::environment(format!("{dir}: {e}"))),
    };
    // Trainers write no names that are not UTF-8.
    let names = entries.filter(|e| !matches!(e, Err(e) if e.kind() == io::ErrorKind::InvalidData));
    let names: io::Result<Vec<String>> = names.map(|e| Ok(e?.file_name().to_owned())).collect();
    names
        .map(Some)
        .map_err(|e| CliError::environment(format!("{dir}: {e}")))
}
