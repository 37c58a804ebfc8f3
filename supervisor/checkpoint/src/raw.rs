//! Numbers in a file's bytes, and names made printable.

/// Reads a little-endian field; bytes beyond the end count as zeros, so it never panics.
pub(crate) fn le(bytes: &[u8], at: usize, n: usize) -> u64 {
    let field = bytes.get(at..at + n).unwrap_or_default();
    field.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// Makes a name from the file printable: bounded and without control characters.
pub(crate) fn shown(name: &str) -> String {
    let mut out: String = name.chars().take(120).flat_map(char::escape_debug).collect();
    if name.chars().nth(120).is_some() {
        out.push('…');
    }
    out
}
