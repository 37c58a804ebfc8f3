//! Any range of a tensor is read right from chunks of any form.

use proptest::prelude::*;
use supervise_checkpoint::{ByteExtent, Dtype};
use supervise_weights::{ModelReader, ModelTensor, ModelWeights, SharedSource, SourceFile, TensorChunk};

/// A tensor that counts its elements, cut along one dimension into files, each part stored in any order of dimensions.
fn cut(shape: &[u64], dim: usize, ends: &[u64], order: &[usize]) -> (ModelWeights, Vec<Box<SharedSource>>) {
    let n = shape.len();
    let mut strides = vec![1_u64; n];
    for d in (1..n).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    let (mut chunks, mut files, mut sources): (Vec<TensorChunk>, Vec<SourceFile>, Vec<Box<SharedSource>>) =
        Default::default();
    let mut begin = 0;
    for end in ends.iter().copied().chain([shape[dim]]) {
        let mut offsets = vec![0; n];
        offsets[dim] = begin;
        let mut sizes = shape.to_vec();
        sizes[dim] = end.saturating_sub(begin);
        // Strides of the part as it is stored: the last in `order` is the nearest.
        let mut stride = vec![0; n];
        let mut step = 1;
        for d in order.iter().rev() {
            stride[*d] = step;
            step *= sizes[*d];
        }
        let count: u64 = sizes.iter().product();
        let mut bytes = vec![0xee_u8; 12];
        bytes.resize(12 + count as usize * 4, 0);
        for flat in 0..count {
            let (mut rest, mut global, mut place) = (flat, 0, 0);
            for d in (0..n).rev() {
                let at = rest % sizes[d];
                rest /= sizes[d];
                global += (offsets[d] + at) * strides[d];
                place += at * stride[d];
            }
            let at = 12 + place as usize * 4;
            bytes[at..at + 4].copy_from_slice(&(global as u32).to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[12..]);
        files.push(SourceFile {
            path: format!("{}.pt", files.len()).into(),
            bytes: bytes.len() as u64,
            checked: vec![ByteExtent {
                off: 12,
                len: count * 4,
                crc: Some(crc),
                dtype: None,
                what: "data/0".to_owned(),
            }],
        });
        chunks.push(TensorChunk {
            offsets,
            sizes,
            file: sources.len(),
            at: 12,
            stride,
        });
        sources.push(Box::new(bytes));
        begin = begin.max(end);
    }
    let tensor = ModelTensor {
        name: "t".to_owned(),
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        chunks,
        copies: Vec::new(),
        fold: None,
    };
    let weights = ModelWeights {
        files,
        tensors: vec![tensor],
    };
    (weights, sources)
}

fn cuts() -> impl Strategy<Value = (Vec<u64>, usize, Vec<u64>, Vec<usize>)> {
    proptest::collection::vec(1_u64..6, 1..4).prop_flat_map(|shape| {
        let dims: Vec<usize> = (0..shape.len()).collect();
        (0..shape.len(), Just(dims).prop_shuffle(), Just(shape)).prop_flat_map(|(dim, order, shape)| {
            let ends = proptest::collection::vec(0..=shape[dim], 0..4).prop_map(|mut v| {
                v.sort_unstable();
                v
            });
            (Just(shape), Just(dim), ends, Just(order))
        })
    })
}

proptest! {
    #[test]
    fn every_range_holds_the_right_elements((shape, dim, ends, order) in cuts(), ranges in proptest::collection::vec((0_u64..125, 1_u64..40), 1..6)) {
        let (weights, sources) = cut(&shape, dim, &ends, &order);
        let reading = ModelReader::new(&weights, &sources);
        let tensor = &weights.tensors[0];
        let mut scratch = Vec::new();
        for (from, n) in ranges {
            let from = from.min(tensor.elements());
            let to = (from + n).min(tensor.elements());
            let mut buf = vec![0; ((to - from) * 4) as usize];
            reading.fill(tensor, from, &mut buf, &mut scratch).unwrap();
            let got: Vec<u32> = buf.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
            prop_assert_eq!(got, (from as u32..to as u32).collect::<Vec<_>>());
        }
        reading.settle().unwrap();
    }
}

#[test]
fn a_hole_between_chunks_is_no_number() {
    let (mut weights, sources) = cut(&[6, 2], 0, &[2, 4], &[0, 1]);
    weights.tensors[0].chunks.remove(1);
    let reading = ModelReader::new(&weights, &sources);
    let (mut buf, mut scratch) = (vec![0; 48], Vec::new());
    let problem = reading
        .fill(&weights.tensors[0], 0, &mut buf, &mut scratch)
        .unwrap_err();
    assert!(problem.text.contains("hold 8 of the 12 elements"), "{problem}");
}

#[test]
fn a_byte_that_rotted_is_found_when_all_is_read() {
    let (weights, mut sources) = cut(&[6, 2], 0, &[2, 4], &[0, 1]);
    let mut bytes = vec![0; weights.files[1].bytes as usize];
    sources[1].read_at(0, &mut bytes).unwrap();
    bytes[20] ^= 4;
    sources[1] = Box::new(bytes);
    let reading = ModelReader::new(&weights, &sources);
    let (mut buf, mut scratch) = (vec![0; 48], Vec::new());
    reading.fill(&weights.tensors[0], 0, &mut buf, &mut scratch).unwrap();
    let problem = reading.settle().unwrap_err();
    assert!(problem.text.starts_with("1.pt: the bytes of data/0"), "{problem}");
}
