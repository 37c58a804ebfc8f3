//! Converts element types as torch does.
//!
//! Rounding is to nearest, ties to even; overflow becomes infinity; a NaN stays NaN and keeps its sign, but not its payload.

use multiversion::multiversion;
use supervise_checkpoint::Dtype;

/// Whether [`cast`] supports the conversion.
#[must_use]
pub fn is_possible(from: Dtype, to: Dtype) -> bool {
    from == to || (is_float(from) && is_float(to))
}

/// Whether models are trained in this type; other types are never converted.
#[must_use]
pub fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

/// Casts all elements of `src` into `out`, which has the right size. The conversion must be [possible](is_possible).
pub fn cast(src: &[u8], from: Dtype, to: Dtype, out: &mut [u8]) {
    match (from, to) {
        _ if from == to => out.copy_from_slice(src),
        (Dtype::F32, Dtype::Bf16) => all_bf16(src, out),
        (Dtype::F32, Dtype::F16) => each(src, out, |b| f16(f32::from_le_bytes(b)).to_le_bytes()),
        (Dtype::F32, Dtype::F64) => each(src, out, |b| f64::from(f32::from_le_bytes(b)).to_le_bytes()),
        (Dtype::Bf16, Dtype::F32) => each(src, out, |b| from_bf16(u16::from_le_bytes(b)).to_le_bytes()),
        (Dtype::Bf16, Dtype::F16) => each(src, out, |b| f16(from_bf16(u16::from_le_bytes(b))).to_le_bytes()),
        (Dtype::Bf16, Dtype::F64) => each(src, out, |b| f64::from(from_bf16(u16::from_le_bytes(b))).to_le_bytes()),
        (Dtype::F16, Dtype::F32) => each(src, out, |b| from_f16(u16::from_le_bytes(b)).to_le_bytes()),
        (Dtype::F16, Dtype::Bf16) => each(src, out, |b| bf16(from_f16(u16::from_le_bytes(b))).to_le_bytes()),
        (Dtype::F16, Dtype::F64) => each(src, out, |b| f64::from(from_f16(u16::from_le_bytes(b))).to_le_bytes()),
        // torch converts from double in two steps.
        (Dtype::F64, Dtype::F32) => each(src, out, |b| (f64::from_le_bytes(b) as f32).to_le_bytes()),
        (Dtype::F64, Dtype::Bf16) => each(src, out, |b| bf16(f64::from_le_bytes(b) as f32).to_le_bytes()),
        (Dtype::F64, Dtype::F16) => each(src, out, |b| f16(f64::from_le_bytes(b) as f32).to_le_bytes()),
        _ => debug_assert!(false, "{from:?} to {to:?}"),
    }
}

/// The default for every merge. With baseline x86-64 alone it takes three times as long on cached data.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl", "x86_64+avx2"))]
fn all_bf16(src: &[u8], out: &mut [u8]) {
    each(
        src,
        out,
        #[inline(always)]
        |b| bf16(f32::from_le_bytes(b)).to_le_bytes(),
    );
}

#[inline(always)]
fn each<const A: usize, const B: usize>(src: &[u8], out: &mut [u8], f: impl Fn([u8; A]) -> [u8; B]) {
    let (src, _) = src.as_chunks::<A>();
    let (out, _) = out.as_chunks_mut::<B>();
    for (from, to) in src.iter().zip(out) {
        *to = f(*from);
    }
}

/// The upper half of the bits, rounded.
#[inline(always)]
fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}

pub(crate) fn from_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00
    } else if magnitude >= 0x4780_0000 {
        // From 65,536.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14, the step is 2^-24: adding 0.5 leaves the number of steps in the lowest bits, rounded by the addition.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        // The rounding carries into the exponent if needed, up to infinity.
        (magnitude - 0x3800_0000 + 0xfff + ((magnitude >> 13) & 1)) >> 13
    };
    (sign | half) as u16
}

pub(crate) fn from_f16(x: u16) -> f32 {
    let sign = u32::from(x & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(x >> 10) & 0x1f, u32::from(x & 0x3ff));
    let bits = match (exponent, fraction) {
        (0x1f, _) => 0x7f80_0000 | (fraction << 13),
        (0, _) => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        _ => ((exponent + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_half_comes_back_from_a_float() {
        for x in 0..=u16::MAX {
            let (half, brain) = (from_f16(x), from_bf16(x));
            if half.is_nan() {
                assert!(from_f16(f16(half)).is_nan());
            } else {
                assert_eq!(f16(half), x, "{half}");
            }
            if brain.is_nan() {
                assert!(from_bf16(bf16(brain)).is_nan());
            } else {
                assert_eq!(bf16(brain), x, "{brain}");
            }
        }
    }

    /// Pieces that do not fill a register are cast like all others.
    #[test]
    fn all_at_once_are_as_each_alone() {
        let bits = |n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes();
        for count in (0..70).chain([4099]) {
            let src: Vec<u8> = (0..count).flat_map(bits).collect();
            let mut out = vec![0; src.len() / 2];
            cast(&src, Dtype::F32, Dtype::Bf16, &mut out);
            let alone = (0..count).flat_map(|n| bf16(f32::from_le_bytes(bits(n))).to_le_bytes());
            assert_eq!(out, alone.collect::<Vec<u8>>(), "{count}");
        }
    }

    #[test]
    fn known_numbers() {
        assert_eq!(bf16(1.0), 0x3f80);
        assert_eq!(bf16(f32::from_bits(0x3f80_8000)), 0x3f80, "a tie goes to the even one");
        assert_eq!(bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(bf16(f32::MAX), 0x7f80, "rounded to infinity");
        assert_eq!(f16(65519.996), 0x7bff);
        assert_eq!(f16(65520.0), 0x7c00);
        assert_eq!(f16(5.960_464_5e-8), 1, "the least of all");
        assert_eq!(f16(2.980_232_2e-8), 0, "a tie goes to the even one");
        assert_eq!(f16(-0.0), 0x8000);
        assert_eq!(from_f16(0x3555), 0.333_251_95);
    }

    /// Searches the finite numbers of a type for the nearest; returns both if two are equally near.
    fn nearest(x: f32, of: impl Fn(u16) -> f32) -> Vec<u16> {
        let off = |n: u16| (f64::from(of(n)) - f64::from(x)).abs();
        let all = (0..=u16::MAX).filter(|n| of(*n).is_finite());
        let least = all.clone().map(off).fold(f64::INFINITY, f64::min);
        all.filter(|n| off(*n) == least).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_nearest_is_taken(bits: u32, small in 0x3300_0000_u32..0x4780_0000, negative: bool) {
            let x = f32::from_bits(small | (u32::from(negative) << 31));
            if x.abs() < 65504.0 {
                let (got, near) = (f16(x), nearest(x, from_f16));
                prop_assert!(near.contains(&got) && (near.len() == 1 || got & 1 == 0 || x == 0.0), "{x}: {got:x} of {near:x?}");
            }
            let x = f32::from_bits(bits);
            if x.is_finite() && x.abs() < 3.3e38 {
                let (got, near) = (bf16(x), nearest(x, from_bf16));
                prop_assert!(near.contains(&got) && (near.len() == 1 || got & 1 == 0), "{x}: {got:x} of {near:x?}");
            }
        }
    }
}
