//! Numbers that are not finite are counted as the types define them, wherever a tensor begins and however it is cut.

use proptest::prelude::*;
use std::ops::ControlFlow;
use supervise_checkpoint::{ByteExtent, Dtype, ReadPlan, SweepOptions, sweep, sweep_parallel};

/// The definition, one number at a time.
fn finite(dtype: Dtype, b: &[u8]) -> bool {
    let half = |exponent: u16| u16::from_le_bytes([b[0], b[1]]) & exponent != exponent;
    match dtype {
        Dtype::F64 => f64::from_le_bytes(b.try_into().unwrap()).is_finite(),
        Dtype::F32 => f32::from_le_bytes(b.try_into().unwrap()).is_finite(),
        Dtype::F16 => half(0x7c00),
        Dtype::Bf16 => half(0x7f80),
        // Five bits of exponent: all ones are infinity and what is no number.
        Dtype::F8E5M2 => b[0] & 0x7c != 0x7c,
        // No infinity; all ones are no number.
        Dtype::F8E4M3fn => b[0] & 0x7f != 0x7f,
        Dtype::F8E4M3fnuz | Dtype::F8E5M2fnuz => b[0] != 0x80,
        Dtype::F8E8M0fnu => b[0] != 0xff,
        _ => true,
    }
}

const TYPES: [Dtype; 11] = [
    Dtype::F64,
    Dtype::F32,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F8E5M2,
    Dtype::F8E4M3fn,
    Dtype::F8E4M3fnuz,
    Dtype::F8E5M2fnuz,
    Dtype::F8E8M0fnu,
    Dtype::I32,
    Dtype::Bool,
];

fn plan(off: u64, len: u64, dtype: Dtype) -> ReadPlan {
    ReadPlan {
        extents: vec![ByteExtent {
            off,
            len,
            crc: None,
            dtype: Some(dtype),
            what: "x".to_owned(),
        }],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn counts_are_those_of_the_definition(
        dtype in prop::sample::select(TYPES.to_vec()),
        off in 0..20_u64,
        words in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0x7f80_7f80_7f80_7f80), Just(0x7c00_7fff_ffc0_8000)], 0..1500),
    ) {
        let mut bytes = vec![0xff; off as usize];
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        let plan = plan(off, words.len() as u64 * 8, dtype);
        let result = sweep(&bytes, &plan, SweepOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap()[0];
        let numbers = bytes[off as usize..].chunks(dtype.size() as usize);
        prop_assert_eq!(result.non_finite, numbers.filter(|b| !finite(dtype, b)).count() as u64);
    }
}

#[test]
fn no_number_is_torn_where_a_file_is_shared() {
    // Larger than two pieces; every number is infinite, so that each lost or invented one shows.
    let count: u64 = 2_200_000;
    for (dtype, off) in [(Dtype::F64, 8), (Dtype::F64, 3)] {
        let mut bytes = vec![0; off as usize];
        bytes.extend(f64::INFINITY.to_le_bytes().repeat(count as usize));
        let plan = plan(off, count * 8, dtype);
        let results = sweep_parallel(&[(&bytes, &plan)], 3, SweepOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(results[0].as_ref().unwrap()[0].non_finite, count, "from byte {off}");
    }
}
