//! Splits output into lines, with bounded memory.
//!
//! A newline ends a line and counts it. A carriage return ends one too, without counting, as progress bars repaint
//! that way. Of a longer line, only the first [`LINE_LIMIT`] bytes are scanned, as soon as they have arrived.

use supervise_core::event::scan::LINE_LIMIT;

#[derive(Debug)]
pub(crate) struct LineBuffer {
    held: Vec<u8>,
    /// The rest of the line is ignored: its first part was scanned.
    cut: bool,
    number: u64,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            cut: false,
            number: 1,
        }
    }
}

impl LineBuffer {
    /// Takes bytes and passes on every line that they complete, numbered from 1.
    pub(crate) fn log_queue(&mut self, bytes: &[u8], mut show: impl FnMut(u64, &[u8])) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            self.take(line, true, &mut show);
            if tail.first() == Some(&b'\n') {
                self.number += 1;
            }
            rest = tail.get(1..).unwrap_or(&[]);
        }
        self.take(rest, false, &mut show);
    }

    pub(crate) fn complete(&self) -> u64 {
        self.number.saturating_sub(1)
    }

    /// The output has ended: an unfinished line counts as a line.
    pub(crate) fn finish(&mut self, mut show: impl FnMut(u64, &[u8])) {
        self.take(&[], true, &mut show);
    }

    fn take(&mut self, part: &[u8], ended: bool, show: &mut impl FnMut(u64, &[u8])) {
        if !self.cut {
            if self.held.is_empty() && (ended || part.len() >= LINE_LIMIT) {
                // Nearly every line arrives whole, and is not copied.
                if !part.is_empty() {
                    show(self.number, part.get(..LINE_LIMIT).unwrap_or(part));
                }
                self.cut = !ended;
                return;
            }
            let room = LINE_LIMIT.saturating_sub(self.held.len());
            self.held.extend(part.iter().take(room));
            if !self.held.is_empty() && (ended || self.held.len() >= LINE_LIMIT) {
                show(self.number, &self.held);
                self.held.clear();
                self.cut = true;
            }
        }
        if ended {
            self.held.clear();
            self.cut = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        let mut lines = LineBuffer::default();
        let mut show = |n: u64, l: &[u8]| seen.push((n, String::from_utf8_lossy(l).into_owned()));
        for part in parts {
            lines.log_queue(part, &mut show);
        }
        lines.finish(&mut show);
        seen
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let text = b"one\ntwo\r\n\n50%\r100%\rdone\nlast";
        let whole = lines(&[text]);
        let expected = [
            (1, "one"),
            (2, "two"),
            (4, "50%"),
            (4, "100%"),
            (4, "done"),
            (5, "last"),
        ];
        let expected: Vec<_> = expected.map(|(n, l)| (n, l.to_owned())).to_vec();
        assert_eq!(whole, expected);
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(lines(&[a, b]), expected);
        }
    }

    #[test]
    fn a_line_without_end_is_shown_once_and_not_kept() {
        let mut seen = 0;
        let mut lines = LineBuffer::default();
        for _ in 0..10_000 {
            lines.log_queue(&[b'x'; 1000], |_, line| {
                assert_eq!(line.len(), LINE_LIMIT);
                seen += 1;
            });
            assert!(lines.held.capacity() <= 4 * LINE_LIMIT);
        }
        assert_eq!(seen, 1);
        lines.log_queue(b"\nnext\n", |n, line| assert_eq!((n, line), (2, &b"next"[..])));
    }
}
