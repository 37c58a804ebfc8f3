//! Messages between our own processes: one JSON value per line.

use serde::Serialize;

/// Encodes a message as a line.
///
/// # Errors
/// A value that JSON cannot express (no such case is known).
pub fn encode<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
