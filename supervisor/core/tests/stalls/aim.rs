//! The limit of *soon* beside what it is meant to be: three times what one step in a thousand exceeds.

use super::drawn::Random;
use super::{KINDS, Kind};
use supervise_core::id::Ms;
use supervise_core::observe::durations::Durations;

/// Runs of each distribution, and the steps that each has made.
const RUNS: u64 = 30;
const STEPS: [u32; 3] = [100, 500, 2000];
/// Steps that the distribution is measured by.
const MANY: u32 = 200_000;

/// The duration that one in a thousand exceeds.
fn measured(kind: &Kind) -> f64 {
    let mut random = Random(1);
    let mut all: Vec<f64> = (0..MANY).map(|n| (kind.draw)(&mut random, n)).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() - all.len() / 1000]
}

/// The duration that a run takes for it, as it learns.
fn learnt(kind: &Kind, seed: u64, steps: u32) -> f64 {
    let mut random = Random(seed);
    let mut durations = Durations::default();
    for n in 0..steps {
        durations.note(Ms((kind.draw)(&mut random, n) as u64));
    }
    durations.high().unwrap().0 as f64
}

/// Median, least and most over many runs, as shares of the aim. After 2,000 steps it is met, within what so few steps beyond the quantile
/// say (two, where the next may be of any length) and the bins' width; after 100 a run knows little of its tail, and is given more.
pub(super) fn table() -> String {
    let mut page = String::from(
        "| limit of *soon*, as a share of three times what one step in a thousand exceeds | after 100 steps | 500 | 2,000 |\n| --- | --- | --- | --- |\n",
    );
    for kind in KINDS.iter().filter(|kind| !kind.name.starts_with("a trend")) {
        let truth = measured(kind);
        page.push_str(&format!("| {} |", kind.name));
        for steps in STEPS {
            let mut shares: Vec<f64> = (100..100 + RUNS)
                .map(|seed| learnt(kind, seed, steps) / truth)
                .collect();
            shares.sort_by(f64::total_cmp);
            let [least, median, most] = [shares[0], shares[shares.len() / 2], shares[shares.len() - 1]];
            if steps == 2000 {
                assert!((0.95..1.35).contains(&median), "{}: {median}", kind.name);
                assert!(least > 0.5 && most < 2.3, "{}: {least} to {most}", kind.name);
            } else {
                assert!(median > 1.0, "{} after {steps}: {median}", kind.name);
            }
            page.push_str(&format!(" {median:.2} ({least:.2} to {most:.2}) |"));
        }
        page.push('\n');
    }
    page
}
