//! The moments at which a simulated run fails.

use crate::draws::SeededDraws;
use crate::plan::FailureSource;
use crate::trace::FailureTrace;
use supervise_core::id::Ms;

const STREAM: u64 = 1;

/// Failures until `end`, in order.
#[must_use]
pub fn failure_times(source: &FailureSource, seed: u64, end: Ms) -> Vec<Ms> {
    let mut draws = SeededDraws::new(seed, STREAM);
    match source {
        FailureSource::Given(times) => times.iter().copied().filter(|at| *at < end).collect(),
        FailureSource::Poisson { mean } => {
            let (mut at, mut out) = (0.0, Vec::new());
            loop {
                at += draws.exponential(mean.0 as f64);
                if at >= end.0 as f64 {
                    return out;
                }
                out.push(Ms(at as u64));
            }
        }
        FailureSource::Trace { trace, scale } => from_trace(trace, *scale, &mut draws, end),
    }
}

/// Several copies of the trace, each begun at another moment and repeated; of the last one only a share.
fn from_trace(trace: &FailureTrace, scale: f64, draws: &mut SeededDraws, end: Ms) -> Vec<Ms> {
    let (span, mut out) = (trace.span_ms(), Vec::new());
    let mut left = scale;
    while left > 0.0 {
        let share = left.min(1.0);
        left -= 1.0;
        let offset = draws.share() * span;
        let mut round = -offset;
        while round < end.0 as f64 {
            trace.each(draws, &mut |draws, at| {
                let at = round + at;
                if at >= 0.0 && at < end.0 as f64 && draws.happens(share) {
                    out.push(Ms(at as u64));
                }
            });
            round += span;
        }
    }
    out.sort_unstable();
    out
}
