//! A set of ranks as ranges: readable with 16,000 ranks, and cheap to compare.

use std::fmt;

/// Ranges shown before the rest are counted.
const SHOWN: usize = 8;

/// Ranks as sorted inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RankSet(Vec<(u32, u32)>);

impl RankSet {
    pub(crate) fn of(ranks: impl Iterator<Item = u32>) -> Self {
        let mut sorted: Vec<u32> = ranks.collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for rank in sorted {
            match ranges.last_mut() {
                Some((_, to)) if to.checked_add(1) == Some(rank) => *to = rank,
                _ => ranges.push((rank, rank)),
            }
        }
        Self(ranges)
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|(from, to)| to - from + 1).sum()
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.0.first().map(|(from, _)| *from)
    }

    pub(crate) fn only_block(&self) -> Option<(u32, u32)> {
        match self.0.as_slice() {
            [block] => Some(*block),
            _ => None,
        }
    }

    /// Ranks of `0..world` that are missing. The cost depends on the ranks present, not on `world`.
    pub(crate) fn missing_of(&self, world: u32) -> Self {
        let mut out = Vec::new();
        let mut next = 0;
        for (from, to) in &self.0 {
            if *from > next {
                out.push((next, from - 1));
            }
            next = to.saturating_add(1);
        }
        if next < world {
            out.push((next, world - 1));
        }
        Self(out)
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (from, to)) in self.0.iter().take(SHOWN).enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            if from == to {
                write!(f, "{from}")?;
            } else {
                write!(f, "{from}-{to}")?;
            }
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_well_and_have_a_complement() {
        let ranks = RankSet::of([5, 1, 2, 0, 7, 5].into_iter());
        assert_eq!(ranks.to_string(), "0-2, 5, 7");
        assert_eq!(ranks.count(), 5);
        assert_eq!(ranks.missing_of(10).to_string(), "3-4, 6, 8-9");
        assert_eq!(ranks.missing_of(8).to_string(), "3-4, 6");
        assert_eq!(
            RankSet::default().missing_of(u32::MAX).to_string(),
            format!("0-{}", u32::MAX - 1)
        );
        assert_eq!(RankSet::of(0..4).missing_of(4), RankSet::default());
    }

    #[test]
    fn a_long_list_is_cut() {
        let text = RankSet::of((0..64).step_by(2)).to_string();
        assert!(text.ends_with("14 and 24 more ranges"), "{text}");
    }
}
