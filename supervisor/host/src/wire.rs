//! Messages between our own processes: one JSON value per line.

use serde::Serialize;

/// A message as its line.
///
/// # Errors
/// A value that JSON cannot express (none is known).
pub fn encode<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
