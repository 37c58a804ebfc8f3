//! The small entries that torch reads first: version, byte order, storage alignment.
//!
//! They are judged as torch's own reader does: it parses a number at the start of `version` and rejects those below 1 and above 10,
//! compares `byteorder` exactly, and passes `.storage_alignment` to Python's `int`.

use super::{EntryIndex, SMALL};
use crate::source::FileReader;
use crate::zip::ZipEntry;
use supervise_core::checkpoint::{Finding, Verdict};

const VERSIONS: std::ops::RangeInclusive<i64> = 1..=10;

/// Reports entries that torch would reject.
pub(super) fn check(
    file: &FileReader<'_>,
    names: &EntryIndex<'_>,
    findings: &mut Vec<Finding>,
) -> Result<(), Box<Finding>> {
    let version = names.find(".data/version").or_else(|| names.find("version"));
    match version {
        None => findings.push(odd("version is missing", 0)),
        Some(e) if !is_version(&text(file, e)?) => {
            findings.push(odd("version is none that torch reads (1 to 10)", e.data))
        }
        Some(_) => {}
    }
    if let Some(e) = names.find("byteorder")
        && ![&b"little"[..], b"big"].contains(&text(file, e)?.as_slice())
    {
        findings.push(odd("byteorder is neither little nor big", e.data));
    }
    if let Some(e) = names.find(".storage_alignment")
        && !is_int(&text(file, e)?)
    {
        findings.push(odd(".storage_alignment is no number", e.data));
    }
    Ok(())
}

fn odd(what: &str, at: u64) -> Finding {
    let detail = format!("torch refuses the archive: its entry {what}");
    Finding::error("torch_header", Verdict::Damaged, detail).at(at)
}

/// The bytes of a small entry; empty for a large one, which none of these values is.
fn text(file: &FileReader<'_>, e: &ZipEntry) -> Result<Vec<u8>, Box<Finding>> {
    match e.size {
        0 => Ok(Vec::new()),
        n if n <= SMALL => Ok(file.bytes(e.data, n as usize)?),
        _ => Ok(Vec::new()),
    }
}

/// Parses a number as C does: blanks and a sign before it, anything after it.
fn is_version(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    let n = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = std::str::from_utf8(&digits[..n])
        .ok()
        .and_then(|d| d.parse::<i64>().ok());
    number.is_some_and(|n| VERSIONS.contains(&(sign * n)))
}

/// Parses a number as Python does: blanks around it, a sign, single underscores between digits.
fn is_int(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let digits = text
        .strip_prefix(b"-")
        .or_else(|| text.strip_prefix(b"+"))
        .unwrap_or(text);
    digits
        .split(|b| *b == b'_')
        .all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_torch_reads_them() {
        for (text, sound) in [
            ("3", true),
            ("3\n", true),
            (" 3", true),
            ("+3", true),
            ("3x", true),
            ("1", true),
            ("10\n", true),
            ("", false),
            ("x", false),
            ("0", false),
            ("-3", false),
            ("11", false),
            ("0x3", false),
            ("99999999999999999999999", false),
        ] {
            assert_eq!(is_version(text.as_bytes()), sound, "version {text:?}");
        }
        for (text, sound) in [
            ("64", true),
            (" 64\n", true),
            ("-1", true),
            ("+64", true),
            ("6_4", true),
            ("", false),
            ("x", false),
            ("0x40", false),
            ("6__4", false),
            ("64.0", false),
            ("_64", false),
            ("64_", false),
            ("- 1", false),
        ] {
            assert_eq!(is_int(text.as_bytes()), sound, "alignment {text:?}");
        }
    }
}
