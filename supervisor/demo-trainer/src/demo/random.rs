//! Random numbers whose whole state is 32 bytes, so that it can be saved and restored.

/// A xoshiro256++ generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// The bytes of a saved state.
    pub const STATE_BYTES: usize = 32;

    /// A generator for one purpose of one seed.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut x = seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95);
        Random(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number between -1 and 1.
    pub fn unit(&mut self) -> f32 {
        let bits = (self.next_u64() >> 40) as f32;
        bits / (1u32 << 23) as f32 - 1.0
    }

    /// A whole number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }

    /// The state, to be saved.
    pub fn state(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A generator that goes on where the saved one stopped.
    pub fn from_state(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: [[u8; 8]; 4] = words.try_into().ok()?;
        rest.is_empty().then(|| Random(words.map(u64::from_le_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_generator_goes_on_where_the_saved_one_stopped() {
        let mut one = Random::new(7, 3);
        one.next_u64();
        let mut two = Random::from_state(&one.state()).unwrap();
        assert_eq!(one.next_u64(), two.next_u64());
        assert_ne!(one.next_u64(), Random::new(7, 4).next_u64());
    }

    #[test]
    fn units_stay_within_their_range() {
        let mut random = Random::new(1, 1);
        let values: Vec<f32> = (0..1000).map(|_| random.unit()).collect();
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        assert!(values.iter().any(|v| *v < -0.5) && values.iter().any(|v| *v > 0.5));
    }
}
