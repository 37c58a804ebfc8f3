//! Random numbers that depend only on a seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct SeededDraws(u64);

impl SeededDraws {
    /// `stream` separates draws of one seed, so that a change to one of them leaves the others as they are.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut draws = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        draws.next();
        draws
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to but not including 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.share()).ln() * mean
    }
}
