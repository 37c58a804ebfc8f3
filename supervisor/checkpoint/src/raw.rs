//! Bytes of a file as numbers, and its names as they are shown.

/// Little-endian fields of a record that is long enough: a read beyond its end gives zeros, never a panic.
pub(crate) fn le(bytes: &[u8], at: usize, n: usize) -> u64 {
    let field = bytes.get(at..at + n).unwrap_or_default();
    field.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// A name from the file, fit to be shown: bounded and without control characters.
pub(crate) fn shown(name: &str) -> String {
    let mut out: String = name.chars().take(120).flat_map(char::escape_debug).collect();
    if name.chars().nth(120).is_some() {
        out.push('…');
    }
    out
}
