//! Cases made from seeds: changed bytes, numbers and lengths, pieces moved, cut, doubled and joined.

/// A stream of numbers from a seed: the same everywhere.
pub struct Numbers(u64);

impl Numbers {
    /// Begins a stream.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % (end.max(1) as u64)) as usize
    }
}

/// Numbers at which something happens.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    4095,
    4096,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes a seed a few times. `other` lends pieces, `words` are pieces that mean something to the reader.
#[must_use]
pub fn mutate(seed: &[u8], other: &[u8], words: &[&[u8]], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(4) {
        once(&mut bytes, other, words, numbers);
    }
    bytes
}

fn once(bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let rest = bytes.len() - at;
    match numbers.below(9) {
        0 if rest > 0 => bytes[at] ^= 1 << numbers.below(8),
        1 if rest > 0 => bytes[at] = numbers.draw() as u8,
        2 => number(&mut bytes[at..], numbers),
        3 => drop(bytes.drain(at..at + numbers.below(rest.min(64) + 1))),
        4 => {
            let piece = bytes[at..at + numbers.below(rest.min(256) + 1)].to_vec();
            let to = numbers.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        5 => {
            let from = numbers.below(other.len() + 1);
            let to = from + numbers.below((other.len() - from).min(512) + 1);
            let over = numbers.below(rest.min(64) + 1);
            bytes.splice(at..at + over, other[from..to].iter().copied());
        }
        6 => bytes.truncate(at),
        _ => {
            let word = words.get(numbers.below(words.len())).copied().unwrap_or_default();
            let over = numbers.below(2) * word.len().min(rest);
            bytes.splice(at..at + over, word.iter().copied());
        }
    }
}

/// Puts a number of two, four or eight bytes at the beginning: an edge, or one near to what was there.
fn number(bytes: &mut [u8], numbers: &mut Numbers) {
    let width = [2, 4, 8][numbers.below(3)];
    let Some(field) = bytes.get_mut(..width) else {
        return;
    };
    let mut old = [0; 8];
    old[..width].copy_from_slice(field);
    let near = u64::from_le_bytes(old)
        .wrapping_add(numbers.below(9) as u64)
        .wrapping_sub(4);
    let value = match numbers.below(2) {
        0 => near,
        _ => EDGES[numbers.below(EDGES.len())],
    };
    field.copy_from_slice(&value.to_le_bytes()[..width]);
}
