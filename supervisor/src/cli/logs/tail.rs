//! `--tail`: where the last lines of an output begin.

use camino::Utf8PathBuf;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const CHUNK: usize = 64 << 10;

/// Where to begin, among the parts of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TailStart {
    /// Index of the part.
    pub(super) part: usize,
    /// Offset in that part.
    pub(super) at: u64,
    /// Lines before it.
    pub(super) skipped: u64,
}

/// Finds the last `lines` lines of an output that consists of these files, oldest first. To count those before them, all
/// of it is read.
///
/// # Errors
/// A file cannot be read.
pub(super) fn tail_start(files: &[Utf8PathBuf], lines: u64, counts: bool) -> io::Result<TailStart> {
    let mut wanted = lines;
    let mut ends_a_line = None;
    let mut found: Option<TailStart> = None;
    let mut skipped = 0;
    for (part, path) in files.iter().enumerate().rev() {
        let Ok(file) = File::open(path) else { continue };
        let mut end = file.metadata()?.len();
        while end > 0 {
            let begin = end.saturating_sub(CHUNK as u64);
            let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(CHUNK)];
            file.read_exact_at(&mut bytes, begin)?;
            // The newline at the very end begins no line.
            if ends_a_line.is_none() {
                ends_a_line = Some(bytes.last() == Some(&b'\n'));
                wanted = wanted.saturating_add(u64::from(ends_a_line == Some(true)));
                if lines == 0 {
                    found = Some(TailStart {
                        part,
                        at: end,
                        skipped: 0,
                    });
                }
            }
            for (n, _) in bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
                wanted = wanted.saturating_sub(1);
                if found.is_some() {
                    skipped += 1;
                } else if wanted == 0 {
                    let at = begin + n as u64 + 1;
                    found = Some(TailStart { part, at, skipped: 0 });
                    skipped += 1;
                }
            }
            if let Some(found) = found.filter(|_| !counts) {
                return Ok(found);
            }
            end = begin;
        }
    }
    Ok(TailStart {
        skipped,
        ..found.unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use camino::Utf8Path;

    #[test]
    fn the_last_lines_are_found_across_parts() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let (old, new, none) = (dir.join("a"), dir.join("b"), dir.join("none"));
        std::fs::write(&old, "1\n2\n3\n").unwrap();
        std::fs::write(&new, "4\n5\n6").unwrap();
        let of = |files: &[&Utf8PathBuf], lines| {
            let files: Vec<Utf8PathBuf> = files.iter().map(|f| (*f).clone()).collect();
            let start = tail_start(&files, lines, true).unwrap();
            (start.part, start.at, start.skipped)
        };
        assert_eq!(of(&[&old, &new], 1), (1, 4, 5));
        assert_eq!(of(&[&old, &new], 3), (0, 6, 3));
        assert_eq!(of(&[&old, &new], 4), (0, 4, 2));
        assert_eq!(of(&[&old, &new], 100), (0, 0, 0));
        assert_eq!(of(&[&old], 1), (0, 4, 2));
        assert_eq!(of(&[&old], 0), (0, 6, 3));
        assert_eq!(of(&[&none], 5), (0, 0, 0));
        std::fs::write(&new, "x".repeat(CHUNK) + "\n" + &"y".repeat(CHUNK) + "\n").unwrap();
        assert_eq!(of(&[&old, &new], 1), (1, CHUNK as u64 + 1, 4));
    }
}
