//! Loops over bytes, written so that the compiler makes vectors of them.

use crate::dtype::Dtype;

/// Whether all bytes are zero; ends at the first eight that are not.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|w| u64::from_ne_bytes(*w) == 0) && rest.iter().all(|b| *b == 0)
}

/// Counts numbers that are infinite or not a number, over bytes that come in pieces.
pub(super) struct Finite {
    width: usize,
    mask: u64,
    carry: [u8; 8],
    held: usize,
    count: u64,
}

impl Finite {
    /// None for types that have no such numbers, or that are not counted.
    pub(super) fn new(dtype: Dtype) -> Option<Self> {
        let (width, mask) = match dtype {
            Dtype::F64 | Dtype::C128 => (8, 0x7ff0_0000_0000_0000),
            Dtype::F32 | Dtype::C64 => (4, 0x7f80_0000),
            Dtype::F16 | Dtype::C32 => (2, 0x7c00),
            Dtype::Bf16 => (2, 0x7f80),
            _ => return None,
        };
        Some(Self {
            width,
            mask,
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
        self.count += match self.width {
            2 => {
                let mask = self.mask as u16;
                bytes
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|b| u64::from(u16::from_le_bytes(*b) & mask == mask))
                    .sum::<u64>()
            }
            4 => {
                let mask = self.mask as u32;
                bytes
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|b| u64::from(u32::from_le_bytes(*b) & mask == mask))
                    .sum()
            }
            _ => {
                let mask = self.mask;
                bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|b| u64::from(u64::from_le_bytes(*b) & mask == mask))
                    .sum()
            }
        };
    }
}
