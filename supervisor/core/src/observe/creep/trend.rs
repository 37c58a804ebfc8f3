//! The trend of a few samples, robust against bursts, garbage collection and noise.
//!
//! The slope is the median of the slopes between all pairs (Theil and Sen). It counts if Mann and Kendall's test leaves
//! no doubt that the series rises, if it continues to rise in the later half, and if there was no deep fall: a heap
//! after garbage collection starts over.

/// Fewer samples show nothing: eight in order by chance are one in 40 000.
const FEW: usize = 8;
/// With fewer samples than this, no pair may fall.
const SOME: usize = 10;
/// Standard deviations of Mann and Kendall's statistic.
const SURE: f64 = 4.0;
/// No fall between two samples may be a larger share of the growth.
const FALL: f64 = 0.5;
/// At least this share of the pairs must rise.
const RISING: f64 = 0.8;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    pub(super) per_step: f64,
    pub(super) grown: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// The upward trend of samples in step order; `None` if none is certain.
pub(super) fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < FEW {
        return None;
    }
    let (all, late) = (slopes(points), slopes(&points[points.len() / 2..]));
    let slope = median(&all)?;
    if slope <= 0.0 || median(&late)? < slope * 0.5 || !rises(&all, points.len()) {
        return None;
    }
    let grown = slope * (last.0 - first.0);
    let high = points.iter().map(|p| p.1).fold(f64::MIN, f64::max);
    // A fall at the very end counts at once.
    if fall(points).max(high - last.1) > grown * FALL {
        return None;
    }
    // The line goes through the middle of the samples.
    let mut heights: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    heights.sort_unstable_by(f64::total_cmp);
    let base = median(&heights)?;
    Some(Trend {
        per_step: slope,
        grown,
        from: base + slope * first.0,
        to: base + slope * last.0,
    })
}

/// Mann and Kendall's test: rising pairs against falling ones.
fn rises(slopes: &[f64], samples: usize) -> bool {
    let rising = slopes.iter().filter(|s| **s > 0.0).count() as f64;
    let falling = slopes.iter().filter(|s| **s < 0.0).count() as f64;
    if samples < SOME {
        return rising == slopes.len() as f64;
    }
    let n = samples as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    rising - falling >= SURE * deviation && rising >= RISING * slopes.len() as f64
}

/// The deepest fall to a later value. Values are smoothed, because a burst is no fall.
fn fall(points: &[(f64, f64)]) -> f64 {
    let smooth = points.windows(3).map(|three| {
        let mut values: Vec<f64> = three.iter().map(|p| p.1).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[1]
    });
    let (mut high, mut deepest) = (f64::MIN, 0.0_f64);
    for value in smooth {
        high = high.max(value);
        deepest = deepest.max(high - value);
    }
    deepest
}

/// The slopes between all pairs, sorted.
fn slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let mut out = Vec::with_capacity(points.len() * points.len() / 2);
    for (n, (from, before)) in points.iter().enumerate() {
        for (to, after) in points.iter().skip(n + 1) {
            out.push((after - before) / (to - from).max(1.0));
        }
    }
    out.sort_unstable_by(f64::total_cmp);
    out
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}
