//! Searches for many values at once. Output comes fast, so most of its bytes are skipped (the Wu-Manber method).

use std::collections::HashMap;
use std::ops::Range;

/// Shortest value, in bytes, that can be searched for.
pub(super) const SHORTEST: usize = 8;
/// Bytes hashed together.
const BLOCK: usize = 4;
/// Bytes to skip after a block in which no value's head ends.
const SKIP: u8 = 5;
/// Entries of the skip table; a power of two.
const TABLE: usize = 1 << 16;
/// Bytes at the end of a text that are searched for the beginning of a value.
const END: usize = 4096;

/// Values to search for; built once, then read-only.
#[derive(Debug, Clone, Default)]
pub struct NeedleSet {
    needles: Vec<Box<[u8]>>,
    longest: usize,
    /// How many bytes to skip, by the hash of a block.
    skips: Vec<u8>,
    /// Needles by the hash of the last block of their first [`SHORTEST`] bytes, longest first.
    by_head_end: HashMap<usize, Vec<usize>>,
    by_first: HashMap<[u8; BLOCK], Vec<usize>>,
}

impl NeedleSet {
    /// Builds a set; values that are too short and duplicates are left out.
    pub fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut needles: Vec<Box<[u8]>> = values
            .into_iter()
            .filter(|v| v.len() >= SHORTEST)
            .map(Vec::into_boxed_slice)
            .collect();
        needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        needles.dedup();
        let mut set = Self {
            longest: needles.first().map_or(0, |n| n.len()),
            ..Self::default()
        };
        if needles.is_empty() {
            return set;
        }
        set.skips = vec![SKIP; TABLE];
        for (id, needle) in needles.iter().enumerate() {
            let Some(head) = needle.first_chunk::<SHORTEST>() else {
                continue;
            };
            for (left, block) in head.windows(BLOCK).rev().enumerate() {
                let left = u8::try_from(left).unwrap_or(SKIP);
                if let Some(skip) = set.skips.get_mut(hash(block)) {
                    *skip = left.min(*skip);
                }
            }
            set.by_head_end
                .entry(hash(&head[SHORTEST - BLOCK..]))
                .or_default()
                .push(id);
            if let Some(first) = needle.first_chunk::<BLOCK>() {
                set.by_first.entry(*first).or_default().push(id);
            }
        }
        set.needles = needles;
        set
    }

    /// Whether there is nothing to search for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// Returns the length of the longest value, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the ranges of the text that contain values, in order. Ranges that overlap or touch are merged.
    #[must_use]
    pub fn ranges(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut end = SHORTEST;
        while !self.is_empty() && end <= text.len() {
            let block = hash(&text[end - BLOCK..end]);
            match self.skips.get(block) {
                Some(0) => {}
                skip => {
                    end += usize::from(*skip.unwrap_or(&1));
                    continue;
                }
            }
            let at = end - SHORTEST;
            let rest = text.get(at..).unwrap_or_default();
            let ids = self.by_head_end.get(&block).into_iter().flatten();
            if let Some(needle) = ids.filter_map(|id| self.needles.get(*id)).find(|n| rest.starts_with(n)) {
                let range = at..at + needle.len();
                match found.last_mut().filter(|last| last.end >= range.start) {
                    Some(last) => last.end = last.end.max(range.end),
                    None => found.push(range),
                }
            }
            end += 1;
        }
        found
    }

    /// Finds a value that begins in the text and is cut off by its end, with at least `least` bytes present. Returns its offset and the
    /// remainder of each value that begins this way.
    #[must_use]
    pub fn begun(&self, text: &[u8], least: usize) -> Option<(usize, Vec<&[u8]>)> {
        let first = text.len().saturating_sub(self.longest.min(END));
        let least = least.max(BLOCK);
        (first..(text.len() + 1).saturating_sub(least)).find_map(|at| {
            let end = text.get(at..)?;
            let ids = self.by_first.get(end.first_chunk::<BLOCK>()?)?;
            let rests: Vec<&[u8]> = ids
                .iter()
                .filter_map(|id| self.needles.get(*id)?.strip_prefix(end))
                .filter(|rest| !rest.is_empty())
                .collect();
            (!rests.is_empty()).then_some((at, rests))
        })
    }
}

fn hash(block: &[u8]) -> usize {
    let mut bytes = [0; BLOCK];
    bytes.iter_mut().zip(block).for_each(|(to, from)| *to = *from);
    let mixed = u32::from_le_bytes(bytes).wrapping_mul(0x9E37_79B1);
    usize::try_from(mixed >> 16).unwrap_or_default() % TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[&str]) -> NeedleSet {
        NeedleSet::new(values.iter().map(|v| v.as_bytes().to_vec()))
    }

    #[test]
    fn values_are_found_at_every_place_as_a_plain_search_finds_them() {
        let values = ["abcdefgh", "abcdefghijkl", "bcdefghi-", "0123456789abcdef", "short"];
        let set = set(&values);
        let mut text = b"abcdefg abcdefghij bcdefghi- x0123456789abcdef".to_vec();
        text.extend(
            (0..5000_u32).map(|n| b"abcdefgh0123456789-ijkl"[(n.wrapping_mul(2_654_435_761) >> 20) as usize % 23]),
        );
        text.extend(b"abcdefghijkl0123456789abcdef");
        for from in 0..40 {
            let text = &text[from..];
            let mut hidden = vec![false; text.len()];
            for value in values.iter().filter(|v| v.len() >= SHORTEST) {
                for at in (0..text.len()).filter(|at| text[*at..].starts_with(value.as_bytes())) {
                    hidden[at..at + value.len()].fill(true);
                }
            }
            let mut found = vec![false; text.len()];
            for range in set.ranges(text) {
                found[range].fill(true);
            }
            assert_eq!(found, hidden, "from {from}");
        }
        assert!(set.ranges(b"").is_empty() && set.ranges(b"abcdefg").is_empty());
        assert!(NeedleSet::default().ranges(b"anything at all").is_empty());
    }

    #[test]
    fn a_beginning_at_the_end_is_found_with_what_is_missing() {
        let set = set(&["abcdefgh-1", "abcdefgh-2"]);
        assert_eq!(set.begun(b"x abcdefgh-", 8), Some((2, vec![&b"1"[..], b"2"])));
        assert_eq!(set.begun(b"x abcdefgh-1", 8), None);
        assert_eq!(set.begun(b"x abcd", 8), None);
        assert_eq!(set.begun(b"x abcdef", 6).map(|(at, _)| at), Some(2));
        assert_eq!(set.begun(b"", 6), None);
    }
}
