//! Whether a log is text, and in which encoding. Where it is no text, an empty result tells nothing.

/// Bytes of each piece that are looked at.
const LOOKED_AT: usize = 4096;

/// Zeros that no program prints.
const ZEROS: u64 = 64;

/// A reason to doubt that a log tells what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDoubt {
    /// There is nothing in it.
    Empty,
    /// It is text in two bytes a character.
    Utf16,
    /// It is no text.
    Binary,
    /// Zeros stand where somebody cut it while it was written.
    Zeros,
    /// It has a line that is too long to be read to its end.
    LongLine,
}

impl LogDoubt {
    /// The fault of the log.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::Utf16 => "is text in UTF-16, of which nothing was read: convert it (iconv -f UTF-16 -t UTF-8 FILE)",
            Self::Binary => "is no text",
            Self::Zeros => "holds zero bytes: it was truncated while it was written, and what stood there is lost",
            Self::LongLine => "has a line of more than 1 MiB, of which only the beginning of each MiB was read",
        }
    }
}

/// Counts of the bytes of one log.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Shape {
    seen: u64,
    zero: u64,
    /// Control characters that no terminal prints, zero among them.
    odd: u64,
    marked: bool,
    inked: bool,
    /// Zeros among all bytes.
    zeros: u64,
    long: bool,
}

impl Shape {
    /// Takes in the next piece.
    pub(super) fn note(&mut self, bytes: &[u8]) {
        let head = &bytes[..bytes.len().min(LOOKED_AT)];
        self.marked |= self.seen == 0 && (head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff"));
        self.inked = self.inked || bytes.iter().any(|b| !b.is_ascii_whitespace());
        self.seen += head.len() as u64;
        self.zeros += memchr::memchr_iter(0, bytes).count() as u64;
        for b in head {
            let odd = matches!(b, 0..=6 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
            self.zero += u64::from(*b == 0);
            self.odd += u64::from(odd);
        }
    }

    /// A line was cut.
    pub(super) fn note_long_line(&mut self) {
        self.long = true;
    }

    /// What could not be read of it, although it is text.
    pub(super) fn gap(&self) -> Option<LogDoubt> {
        match self.zeros {
            ZEROS.. => Some(LogDoubt::Zeros),
            _ if self.long => Some(LogDoubt::LongLine),
            _ => None,
        }
    }

    /// It is no text, so that a line of it that tells a failure may be none. A log that was emptied while it was written holds zeros,
    /// and is a log.
    pub(super) fn is_noise(&self) -> bool {
        self.odd.saturating_sub(self.zero) * 20 > self.seen
    }

    /// The reason to doubt it, if there is one.
    pub(super) fn doubt(&self) -> Option<LogDoubt> {
        match self.seen {
            _ if !self.inked => Some(LogDoubt::Empty),
            seen if self.marked || (seen / 4..=seen * 3 / 5).contains(&self.zero) && self.odd < self.zero * 2 => {
                Some(LogDoubt::Utf16)
            }
            seen if self.odd.saturating_sub(self.zero) * 20 > seen => Some(LogDoubt::Binary),
            _ => self.gap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(bytes: &[u8]) -> Option<LogDoubt> {
        let mut shape = Shape::default();
        bytes.chunks(100).for_each(|piece| shape.note(piece));
        shape.doubt()
    }

    #[test]
    fn logs_that_are_no_text_are_told_from_those_with_colours() {
        let text = "\x1b[36m(A pid=1)\x1b[0m 12%|██| 1/9\r\n".repeat(50);
        assert_eq!(doubt(text.as_bytes()), None);
        assert_eq!(doubt(b""), Some(LogDoubt::Empty));
        assert_eq!(doubt(b" \n\r\n"), Some(LogDoubt::Empty));
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(doubt(&wide), Some(LogDoubt::Utf16));
        assert_eq!(doubt(&[b"\xff\xfe".as_slice(), &wide].concat()), Some(LogDoubt::Utf16));
        let binary: Vec<u8> = (0..4000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        assert_eq!(doubt(&binary), Some(LogDoubt::Binary));
        // A log that was cut while it was written may begin with zeros.
        let cut = [vec![0; 300], text.repeat(20).into_bytes()].concat();
        assert_eq!(doubt(&cut), Some(LogDoubt::Zeros));
    }
}
