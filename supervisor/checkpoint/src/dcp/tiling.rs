//! Checks that the chunks of a tensor tile it: every element in exactly one of them.
//!
//! A box is a signed sum of the quadrants that begin at its corners, and quadrants at different corners are independent. So chunks tile a
//! tensor exactly if their signed corners add up to the corners of the whole: no pair of chunks has to be compared, and 16,384 chunks
//! take only a sort. Dimensions that no chunk splits are left out.

use super::ChunkBounds;
use super::findings::FindingCollector;
use crate::raw::shown;
use supervise_core::checkpoint::{Finding, Verdict};

pub(super) fn check(name: &str, shape: &[u64], chunks: &[ChunkBounds], most: usize, said: &mut FindingCollector) {
    let tensor = shown(name);
    let outside = |c: &&ChunkBounds| !inside(c, shape);
    if let Some(c) = chunks.iter().find(outside) {
        let detail = format!(
            "tensor {tensor} of shape {shape:?} has a chunk at {:?} of size {:?}, which is not inside it",
            c.offsets, c.sizes
        );
        return said.add(Finding::error("dcp_tiling", Verdict::Damaged, detail));
    }
    let full: Vec<&ChunkBounds> = chunks.iter().filter(|c| !c.sizes.contains(&0)).collect();
    let split: Vec<usize> = (0..shape.len())
        .filter(|&d| full.iter().any(|c| c.sizes[d] != shape[d]))
        .collect();
    let corners = u32::try_from(split.len())
        .ok()
        .and_then(|d| 1_usize.checked_shl(d)?.checked_mul(full.len() + 1));
    if corners.is_none_or(|n| n > most) {
        let detail = format!("tensor {tensor} has too many chunks to compare ({})", full.len());
        return said.add(Finding::error("limit_reached", Verdict::Unknown, detail));
    }
    if balanced(shape, &full, &split) {
        return;
    }
    let volume = |sizes: &[u64]| sizes.iter().fold(1_u128, |n, d| n.saturating_mul(u128::from(*d)));
    let (sum, whole) = (
        full.iter().fold(0_u128, |n, c| n.saturating_add(volume(&c.sizes))),
        volume(shape),
    );
    let what = if chunks.is_empty() {
        "no chunk".to_owned()
    } else if sum < whole {
        format!("chunks for only {sum} of {whole} elements")
    } else if sum > whole {
        format!("chunks for {sum} elements, but has {whole}")
    } else {
        "chunks that overlap and leave gaps".to_owned()
    };
    said.add(Finding::error(
        "dcp_tiling",
        Verdict::Damaged,
        format!("tensor {tensor} has {what}"),
    ));
}

fn inside(chunk: &ChunkBounds, shape: &[u64]) -> bool {
    let fits = |((off, len), dim): ((&u64, &u64), &u64)| off.checked_add(*len).is_some_and(|end| end <= *dim);
    chunk.offsets.len() == shape.len()
        && chunk.sizes.len() == shape.len()
        && chunk.offsets.iter().zip(&chunk.sizes).zip(shape).all(fits)
}

/// Whether the signed corners of the chunks are those of the whole tensor.
fn balanced(shape: &[u64], chunks: &[&ChunkBounds], split: &[usize]) -> bool {
    let mut corners = Corners::new(split, chunks.len() + 1);
    for c in chunks {
        corners.add(1, |d| (c.offsets[d], c.sizes[d]));
    }
    if !shape.contains(&0) {
        corners.add(-1, |d| (0, shape[d]));
    }
    corners.cancel()
}

/// Corners with signs. There may be millions, so all coordinates are in one list.
struct Corners<'s> {
    split: &'s [usize],
    at: Vec<u64>,
    signs: Vec<i8>,
}

impl<'s> Corners<'s> {
    fn new(split: &'s [usize], boxes: usize) -> Self {
        let corners = boxes << split.len();
        Self {
            split,
            at: Vec::with_capacity(corners * split.len()),
            signs: Vec::with_capacity(corners),
        }
    }

    fn add(&mut self, sign: i8, of: impl Fn(usize) -> (u64, u64)) {
        for pick in 0..1_usize << self.split.len() {
            for (n, &d) in self.split.iter().enumerate() {
                let (off, len) = of(d);
                let far = pick >> n & 1 == 1;
                self.at.push(if far { off + len } else { off });
            }
            let odd = pick.count_ones() % 2 == 1;
            self.signs.push(if odd { -sign } else { sign });
        }
    }

    /// Whether the signs at each corner add up to zero.
    fn cancel(&self) -> bool {
        let dims = self.split.len();
        let place = |n: &u32| &self.at[*n as usize * dims..(*n as usize + 1) * dims];
        let mut order: Vec<u32> = (0..u32::try_from(self.signs.len()).unwrap_or(0)).collect();
        order.sort_unstable_by(|a, b| place(a).cmp(place(b)));
        order
            .chunk_by(|a, b| place(a) == place(b))
            .all(|same| same.iter().map(|n| i64::from(self.signs[*n as usize])).sum::<i64>() == 0)
    }
}
