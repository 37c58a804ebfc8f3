//! Chunks make up their tensor: whole grids pass, and one chunk that is lost, doubled or moved is found.

use crate::build::{Chunk, one_tensor};
use proptest::prelude::*;
use supervise_checkpoint::{FileKind, InspectLimits, inspect};
use supervise_core::checkpoint::{Finding, Verdict};

fn look(shape: &[i64], chunks: &[Chunk]) -> (Verdict, Vec<Finding>) {
    let inspected = inspect(
        FileKind::DcpMetadata,
        &one_tensor(shape, chunks),
        &InspectLimits::default(),
    );
    let findings = inspected.findings;
    let verdict = findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    (verdict, findings)
}

/// Cuts a box in two again and again, where the numbers say.
fn cut(shape: &[i64], cuts: &[(usize, usize, i64)]) -> Vec<Chunk> {
    let mut out = vec![(vec![0; shape.len()], shape.to_vec())];
    for (which, dim, at) in cuts {
        let (which, dim) = (which % out.len(), dim % shape.len().max(1));
        let Some(len) = out[which].1.get(dim).copied().filter(|n| *n > 1) else {
            continue;
        };
        let first = 1 + at % (len - 1);
        let mut far = out[which].clone();
        out[which].1[dim] = first;
        far.0[dim] += first;
        far.1[dim] -= first;
        out.push(far);
    }
    out
}

fn cuttings() -> impl Strategy<Value = (Vec<i64>, Vec<Chunk>)> {
    let shape = prop::collection::vec(1_i64..40, 0..5);
    let cuts = prop::collection::vec((0..1000_usize, 0..5_usize, 0..1000_i64), 0..40);
    (shape, cuts).prop_map(|(shape, cuts)| {
        let chunks = cut(&shape, &cuts);
        (shape, chunks)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn whole_cuttings_pass((shape, chunks) in cuttings()) {
        let (verdict, findings) = look(&shape, &chunks);
        prop_assert_eq!(verdict, Verdict::Whole, "{:?}", findings);
    }

    #[test]
    fn a_lost_chunk_is_found((shape, mut chunks) in cuttings(), which in 0..1000_usize) {
        chunks.remove(which % chunks.len());
        prop_assert_eq!(look(&shape, &chunks).0, Verdict::Damaged);
    }

    #[test]
    fn a_doubled_chunk_is_found((shape, mut chunks) in cuttings(), which in 0..1000_usize) {
        chunks.push(chunks[which % chunks.len()].clone());
        prop_assert_eq!(look(&shape, &chunks).0, Verdict::Damaged);
    }

    #[test]
    fn a_moved_or_resized_chunk_is_found(
        (shape, mut chunks) in cuttings(),
        which in 0..1000_usize,
        dim in 0..5_usize,
        by in prop::sample::select(vec![-3_i64, -1, 1, 2]),
        moved in any::<bool>(),
    ) {
        prop_assume!(!shape.is_empty());
        let (which, dim) = (which % chunks.len(), dim % shape.len());
        let place = if moved { &mut chunks[which].0[dim] } else { &mut chunks[which].1[dim] };
        *place += by;
        prop_assume!(moved || *place > 0);
        prop_assert_eq!(look(&shape, &chunks).0, Verdict::Damaged, "{:?} {:?}", shape, chunks);
    }

    /// One cut moved on one side only: volumes may still add up, elements do not.
    #[test]
    fn exchanged_sizes_are_found((shape, mut chunks) in cuttings(), a in 0..1000_usize, b in 0..1000_usize) {
        let (a, b) = (a % chunks.len(), b % chunks.len());
        prop_assume!(chunks[a].1 != chunks[b].1);
        let sizes = chunks[a].1.clone();
        chunks[a].1 = std::mem::replace(&mut chunks[b].1, sizes);
        prop_assert_eq!(look(&shape, &chunks).0, Verdict::Damaged);
    }
}

#[test]
fn overlap_and_gap_of_the_same_volume_are_found() {
    let chunks = vec![
        (vec![0, 0], vec![2, 2]),
        (vec![0, 2], vec![2, 2]),
        (vec![2, 0], vec![2, 2]),
        (vec![1, 1], vec![2, 2]),
    ];
    let (verdict, findings) = look(&[4, 4], &chunks);
    assert_eq!(verdict, Verdict::Damaged);
    assert_eq!(findings[0].code, "dcp_tiling", "{findings:?}");
    assert!(findings[0].detail.contains("overlap and leave gaps"), "{findings:?}");
}

#[test]
fn empty_chunks_and_empty_tensors_pass() {
    for (shape, chunks) in [
        (vec![0, 5], vec![(vec![0, 0], vec![0, 5])]),
        (
            vec![1],
            vec![(vec![0], vec![1]), (vec![1], vec![0]), (vec![1], vec![0])],
        ),
        (vec![], vec![(vec![], vec![])]),
        (vec![3, 0], vec![(vec![0, 0], vec![2, 0]), (vec![2, 0], vec![1, 0])]),
    ] {
        let mut places = chunks.clone();
        places.dedup();
        let table = one_tensor(&shape, &places);
        let findings = inspect(FileKind::DcpMetadata, &table, &InspectLimits::default()).findings;
        assert!(findings.is_empty(), "{shape:?}: {findings:?}");
    }
    assert_eq!(
        look(&[1], &[(vec![1], vec![0])]).0,
        Verdict::Damaged,
        "only empty chunks"
    );
    assert_eq!(look(&[], &[]).0, Verdict::Damaged, "a number without its chunk");
}

#[test]
fn many_chunks_are_compared() {
    let chunks: Vec<Chunk> = (0..128)
        .flat_map(|i| (0..128).map(move |j| (vec![3 * i, 5 * j, 0], vec![3, 5, 7])))
        .collect();
    assert_eq!(look(&[384, 640, 7], &chunks).0, Verdict::Whole);
    let mut moved = chunks.clone();
    moved[9999].0[1] += 1;
    assert_eq!(look(&[384, 640, 7], &moved).0, Verdict::Damaged);
}
