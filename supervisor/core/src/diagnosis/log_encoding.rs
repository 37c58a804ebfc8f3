//! Detects logs that are not plain text. For those, an empty result means nothing.

/// Bytes of each piece that are inspected.
const LOOKED_AT: usize = 4096;

/// More zero bytes than any program prints.
const ZEROS: u64 = 64;

/// Why a log may not show what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDoubt {
    /// It is empty.
    Empty,
    /// It is UTF-16.
    Utf16,
    /// It is not text.
    Binary,
    /// It was truncated while being written, which left zeros.
    Zeros,
    /// It has a line too long to be read completely.
    LongLine,
}

impl LogDoubt {
    /// Message for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::Utf16 => "is text in UTF-16, of which nothing was read: convert it (iconv -f UTF-16 -t UTF-8 FILE)",
            Self::Binary => "is no text",
            Self::Zeros => "holds zero bytes: it was truncated while it was written, and what was there is lost",
            Self::LongLine => "has a line of more than 1 MiB, of which only the beginning of each MiB was read",
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Shape {
    seen: u64,
    zero: u64,
    /// Control characters that no terminal prints, including zeros.
    odd: u64,
    marked: bool,
    inked: bool,
    /// Zeros in all bytes, not only the inspected ones.
    zeros: u64,
    long: bool,
}

impl Shape {
    pub(super) fn note(&mut self, bytes: &[u8]) {
        let head = &bytes[..bytes.len().min(LOOKED_AT)];
        self.marked |= self.seen == 0 && (head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff"));
        self.inked = self.inked || bytes.iter().any(|b| !b.is_ascii_whitespace());
        self.seen += head.len() as u64;
        // To find the first is faster than to count, and most logs have none.
        if let Some(first) = memchr::memchr(0, bytes) {
            self.zeros += memchr::memchr_iter(0, &bytes[first..]).count() as u64;
        }
        for b in head {
            let odd = matches!(b, 0..=6 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
            self.zero += u64::from(*b == 0);
            self.odd += u64::from(odd);
        }
    }

    pub(super) fn note_long_line(&mut self) {
        self.long = true;
    }

    /// The part of a text log that could not be read.
    pub(super) fn gap(&self) -> Option<LogDoubt> {
        match self.zeros {
            ZEROS.. => Some(LogDoubt::Zeros),
            _ if self.long => Some(LogDoubt::LongLine),
            _ => None,
        }
    }

    /// Returns true if it is not text, so that a match may be chance. Zeros do not count: a log truncated while being written has them.
    pub(super) fn is_noise(&self) -> bool {
        self.odd.saturating_sub(self.zero) * 20 > self.seen
    }

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
        // A log truncated while being written may start with zeros.
        let cut = [vec![0; 300], text.repeat(20).into_bytes()].concat();
        assert_eq!(doubt(&cut), Some(LogDoubt::Zeros));
    }
}
