//! The backoff before a relaunch.

use crate::id::Ms;
use crate::spec::policy::BackoffPolicy;

/// The backoff after `charged` attempts without progress; none after progress. `entropy` spreads it by the policy's
/// jitter.
#[must_use]
pub fn pause(p: &BackoffPolicy, charged: u32, entropy: u64) -> Ms {
    if charged == 0 {
        return Ms(0);
    }
    let exponent = i32::try_from(charged - 1).unwrap_or(i32::MAX).min(64);
    let raw = p.initial.0 as f64 * p.factor.max(1.0).powi(exponent);
    let capped = raw.min(p.max.0 as f64);
    // -1.0 ..= 1.0
    let spread = (entropy % 2001) as f64 / 1000.0 - 1.0;
    Ms((capped * (1.0 + p.jitter.clamp(0.0, 1.0) * spread)).max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_after_progress_then_growing_then_capped() {
        let p = BackoffPolicy {
            jitter: 0.0,
            ..BackoffPolicy::default()
        };
        let pauses: Vec<u64> = [0, 1, 2, 3, 40].iter().map(|n| pause(&p, *n, 0).0).collect();
        assert_eq!(pauses, [0, 5_000, 10_000, 20_000, 300_000]);
    }

    #[test]
    fn jitter_stays_in_its_band() {
        let p = BackoffPolicy::default();
        for e in 0..5000 {
            let ms = pause(&p, 1, e).0;
            assert!((4_000..=6_000).contains(&ms), "{ms}");
        }
    }
}
