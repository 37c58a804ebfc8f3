//! Masks error names in paths: `/data/ENOSPC-test/x.py` is no full disk.

use aho_corasick::AhoCorasick;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Texts for a full disk, codes first. People name directories after them.
const WORDS: [&str; 4] = ["ENOSPC", "EDQUOT", "No space left", "Disk quota exceeded"];
/// Number of codes in `WORDS`.
const CODES: usize = 2;
/// Prefixes of a quoted path.
const OPENINGS: [&[u8]; 5] = [b"/", b"./", b"../", b"~/", b"file:/"];

/// Overwrites those words in the line if they are part of a path or a longer name. Offsets do not change.
pub(crate) fn without_paths(line: &[u8]) -> Cow<'_, [u8]> {
    static FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let finder = FINDER.get_or_init(|| AhoCorasick::builder().ascii_case_insensitive(true).build(WORDS).ok());
    let mut out = Cow::Borrowed(line);
    for found in finder.iter().flat_map(|f| f.find_iter(line)) {
        let (from, to) = (found.start(), found.end());
        let is_code = found.pattern().as_usize() < CODES;
        if is_name_part(line, from, to, is_code) || is_quoted_path(line, from, to) {
            out.to_mut()[from..to].fill(b'_');
        }
    }
    out
}

/// Returns true if a separator precedes or follows the name that contains the word, or if a code is part of a longer name.
fn is_name_part(line: &[u8], from: usize, to: usize, is_code: bool) -> bool {
    let (before, behind) = (&line[..from], &line[to..]);
    let name_before = before.iter().rev().take_while(|b| is_of_a_name(**b)).count();
    let name_behind = behind.iter().take_while(|b| is_of_a_name(**b)).count();
    let opens = before[..from - name_before].last() == Some(&b'/');
    let goes_on = behind.get(name_behind) == Some(&b'/');
    let glued_before = before.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let glued_behind = behind
        .first()
        .is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    opens || goes_on || is_code && (glued_before || glued_behind)
}

fn is_of_a_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// Returns true if the word is in quotes or brackets around a path or key, rather than a message that starts with one.
fn is_quoted_path(line: &[u8], from: usize, to: usize) -> bool {
    line[..from].iter().enumerate().any(|(at, opening)| {
        let closing = match opening {
            b'"' | b'\'' | b'`' => opening,
            b'(' => &b')',
            b'[' => &b']',
            _ => return false,
        };
        let (before, inside) = (&line[..at], &line[at + 1..]);
        let ends = inside.iter().position(|b| b == closing);
        ends.is_some_and(|end| at + 1 + end >= to)
            && (OPENINGS.iter().any(|o| inside.starts_with(o)) || is_operand(before))
            && memchr::memmem::find(&line[at + 1..from], b": ").is_none()
    })
}

/// Returns true before a quoted operand of a Python exception: a `KeyError`'s key, or file names after an `OSError`'s message.
fn is_operand(before: &[u8]) -> bool {
    let words = before.strip_suffix(b": ").or_else(|| before.strip_suffix(b" -> "));
    words.is_some_and(|words| {
        let is_json = words.last() == Some(&b'"');
        words.ends_with(b"KeyError") || !is_json && memchr::memmem::find(words, b"[Errno ").is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_kept(line: &str) -> bool {
        without_paths(line.as_bytes()) == line.as_bytes()
    }

    #[test]
    fn words_in_a_path_are_no_error() {
        for line in [
            "loading /data/ENOSPC-test/x.py",
            "File \"/data/Disk quota exceeded/a.py\", line 3, in f",
            "  File \"/data/my No space left on device/a.py\", line 3, in f",
            "reading /mnt/EDQUOT",
            "saved to runs/no space left on device/step_4",
            "open('/data/old enospc runs/x')",
            "FileNotFoundError: [Errno 2] No such file or directory: './a ENOSPC b/c'",
            "experiment_name=ENOSPC-test",
            "KeyError: 'ENOSPC'",
            "KeyError: 'No space left on device'",
            "FileExistsError: [Errno 17] File exists: 'No space left on device'",
            "OSError: [Errno 18] Invalid cross-device link: 'EDQUOT' -> 'Disk quota exceeded'",
            "PermissionError: cannot open (/data/old enospc runs/x)",
            "not writable: [/mnt/Disk quota exceeded/a]",
            "calling handle_ENOSPC",
        ] {
            assert!(!is_kept(line), "{line}");
        }
    }

    #[test]
    fn words_that_tell_of_an_error_stay() {
        for line in [
            "OSError: [Errno 28] No space left on device: '/data/x'",
            "OSError: [Errno 122] Disk quota exceeded: '/data/x'",
            "write /data/x: no space left on device",
            "Error: ENOSPC: no space left on device, write",
            "npm ERR! code ENOSPC",
            "ioctl failed: -ENOSPC (-28)",
            "{\"msg\": \"/data/x: write failed: Disk quota exceeded\"}",
            "can't write '/data/x': No space left on device",
            "cp: error writing '/a/b': No space left on device",
            "errno=EDQUOT",
            "OSError: '[Errno 28] No space left on device'",
            "{\"first\": \"[Errno 5] Input/output error\", \"then\": \"No space left on device\"}",
            "write failed (ENOSPC)",
            "[rank0]: (/data/x: No space left on device)",
        ] {
            assert!(is_kept(line), "{line}");
        }
    }
}
