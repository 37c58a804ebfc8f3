//! Splits a row-major range of a tensor into boxes.

/// A box: start and size in each dimension, and its first element in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorBox {
    pub(super) offsets: Vec<u64>,
    pub(super) sizes: Vec<u64>,
    pub(super) first: u64,
}

/// The boxes of the elements `from..to`, in order: at most two per dimension, and one. The elements of a box are consecutive in the
/// tensor. The product of the shape must be a number of elements that fits in a file.
pub(super) fn boxes(shape: &[u64], from: u64, to: u64) -> Vec<TensorBox> {
    let mut out = Vec::new();
    if from < to {
        inside(shape, from, to, 0, &mut Vec::new(), &mut out);
    }
    out
}

/// `base`: the first element of the remaining dimensions, `fixed`: the indices in those before.
fn inside(shape: &[u64], from: u64, to: u64, base: u64, fixed: &mut Vec<u64>, out: &mut Vec<TensorBox>) {
    let rest = &shape[fixed.len()..];
    let Some((_, inner)) = rest.split_first() else {
        // A tensor without dimensions.
        return push(shape, fixed, 0..1, base, out);
    };
    let wide: u64 = inner.iter().product();
    let mut at = from;
    while at < to {
        let (row, end) = (at / wide, to.min((at / wide + 1) * wide));
        if at.is_multiple_of(wide) && to - at >= wide {
            let last = to / wide;
            push(shape, fixed, row..last, base + at, out);
            at = last * wide;
        } else {
            fixed.push(row);
            inside(shape, at - row * wide, end - row * wide, base + row * wide, fixed, out);
            fixed.pop();
            at = end;
        }
    }
}

/// Adds whole rows of the dimension after the fixed ones.
fn push(shape: &[u64], fixed: &[u64], rows: std::ops::Range<u64>, first: u64, out: &mut Vec<TensorBox>) {
    let mut offsets = fixed.to_vec();
    let mut sizes = vec![1; fixed.len()];
    if let Some(inner) = shape.get(fixed.len() + 1..) {
        offsets.push(rows.start);
        sizes.push(rows.end - rows.start);
        offsets.resize(shape.len(), 0);
        sizes.extend(inner);
    }
    out.push(TensorBox { offsets, sizes, first });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::elements;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_hold_the_range_and_nothing_else(shape in proptest::collection::vec(1_u64..5, 0..5), from: u64, to: u64) {
            let all = elements(&shape);
            let (from, to) = (from % (all + 1), to % (all + 1));
            let made = boxes(&shape, from, to);
            prop_assert!(made.len() <= 2 * shape.len() + 1);
            let mut at = from;
            for one in &made {
                prop_assert_eq!(one.first, at);
                // The first element, and whether all elements are consecutive.
                let mut strides = crate::model::row_major(&shape);
                strides.resize(shape.len(), 1);
                let corner: u64 = one.offsets.iter().zip(&strides).map(|(o, s)| o * s).sum();
                prop_assert_eq!(corner, at);
                let last: u64 = one.offsets.iter().zip(&one.sizes).zip(&strides).map(|((o, n), s)| (o + n - 1) * s).sum();
                prop_assert_eq!(last + 1, at + elements(&one.sizes));
                at += elements(&one.sizes);
            }
            prop_assert_eq!(at, from.max(to));
        }
    }
}
