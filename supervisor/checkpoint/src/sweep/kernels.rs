//! Loops over bytes, written so that the compiler vectorizes them.

use crate::dtype::Dtype;

/// Whether all bytes are zero; stops at the first few that are not.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<64>();
    let zero = |line: &[u8; 64]| {
        line.as_chunks::<8>()
            .0
            .iter()
            .fold(0, |or, w| or | u64::from_ne_bytes(*w))
            == 0
    };
    // Most blocks have a nonzero first word.
    bytes.first().is_none_or(|b| *b == 0) && lines.iter().all(zero) && rest.iter().all(|b| *b == 0)
}

/// Bytes of a number whose exponent shows whether it is finite; `None` for types without such numbers.
pub(super) fn width(dtype: Dtype) -> Option<u64> {
    NonFiniteCounter::new(dtype).map(|f| f.width as u64)
}

/// Bytes checked together. Nearly always all numbers in them are finite, and one check shows it.
const GROUP: usize = 4096;

pub(super) struct NonFiniteCounter {
    width: usize,
    mask: u64,
    /// Masked numbers from this value on are not finite.
    least: u64,
    /// Only this masked number is not finite.
    only: Option<u8>,
    carry: [u8; 8],
    held: usize,
    count: u64,
}

impl NonFiniteCounter {
    /// `None` for types without such numbers, or that are not counted.
    pub(super) fn new(dtype: Dtype) -> Option<Self> {
        let (width, mask, least, only) = match dtype {
            Dtype::F64 | Dtype::C128 => (8, u64::MAX >> 1, 0x7ff0_0000_0000_0000, None),
            Dtype::F32 | Dtype::C64 => (4, 0x7fff_ffff, 0x7f80_0000, None),
            Dtype::F16 | Dtype::C32 => (2, 0x7fff, 0x7c00, None),
            Dtype::Bf16 => (2, 0x7fff, 0x7f80, None),
            Dtype::F8E5M2 => (1, 0x7f, 0x7c, None),
            Dtype::F8E4M3fn => (1, 0x7f, 0x7f, None),
            // The code for minus zero is NaN.
            Dtype::F8E4M3fnuz | Dtype::F8E5M2fnuz => (1, 0xff, 0x80, Some(0x80)),
            Dtype::F8E8M0fnu => (1, 0xff, 0xff, Some(0xff)),
            _ => return None,
        };
        Some(Self {
            width,
            mask,
            least,
            only,
            carry: [0; 8],
            held: 0,
            count: 0,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        if self.held > 0 {
            let n = (self.width - self.held).min(bytes.len());
            self.carry[self.held..self.held + n].copy_from_slice(&bytes[..n]);
            self.held += n;
            bytes = &bytes[n..];
            if self.held < self.width {
                return;
            }
            let whole = self.carry;
            self.held = 0;
            self.add(&whole[..self.width]);
        }
        let rest = bytes.len() % self.width;
        let (whole, tail) = bytes.split_at(bytes.len() - rest);
        self.add(whole);
        self.carry[..rest].copy_from_slice(tail);
        self.held = rest;
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some(only) = self.only {
            self.count += bytes.iter().filter(|b| **b == only).count() as u64;
            return;
        }
        self.count += bytes.chunks(GROUP).map(|g| self.group(g)).sum::<u64>();
    }

    /// Adds the distance from `least` to the top bit, so that the top bit marks numbers that are not finite.
    fn group(&self, bytes: &[u8]) -> u64 {
        macro_rules! count {
            ($number:ty, $width:literal) => {{
                let top: $number = 1 << ($width * 8 - 1);
                let (mask, more) = (self.mask as $number, top - self.least as $number);
                let shown = |b: &[u8; $width]| (<$number>::from_le_bytes(*b) & mask).wrapping_add(more);
                let numbers = bytes.as_chunks::<$width>().0;
                match numbers.iter().fold(0, |any, b| any | shown(b)) & top {
                    0 => 0,
                    _ => numbers.iter().filter(|b| shown(b) & top != 0).count() as u64,
                }
            }};
        }
        match self.width {
            1 => count!(u8, 1),
            2 => count!(u16, 2),
            4 => count!(u32, 4),
            _ => count!(u64, 8),
        }
    }
}
