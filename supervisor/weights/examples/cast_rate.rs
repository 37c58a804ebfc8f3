//! Measures the cast of float32 to bfloat16 alone against copies of the same bytes, in turns: medians of rounds.
//!
//! usage: cast_rate [ROUNDS]     (default 21; a release build)
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, and prints a table"
)]

use std::hint::black_box;
use std::time::Instant;
use supervise_checkpoint::Dtype;
use supervise_weights::cast::cast;

/// Numbers cast in one round: too many for any cache.
const NUMBERS: usize = 64 << 20;
/// Numbers that `merge` has in memory at once.
const BLOCK: usize = 256 << 10;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(21_usize);
    let source: Vec<u8> = (0..NUMBERS as u32)
        .flat_map(|n| (n as f32 * 1e-3).to_le_bytes())
        .collect();
    let mut out = vec![1_u8; 2 * NUMBERS];
    // As many bytes read and written as by a cast: 4 + 2 for each number.
    let mut copy = vec![1_u8; 3 * NUMBERS];
    println!("| GB/s, read and written | cast | copy | cast takes |\n|---|---|---|---|");
    for (name, block) in [
        ("blocks, one behind the other", NUMBERS),
        ("one block again and again", BLOCK),
    ] {
        let (mut casts, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let began = Instant::now();
            for n in 0..NUMBERS / BLOCK {
                let at = n * BLOCK % block;
                cast(
                    black_box(&source[4 * at..4 * (at + BLOCK)]),
                    Dtype::F32,
                    Dtype::Bf16,
                    &mut out[2 * at..2 * (at + BLOCK)],
                );
                black_box(&mut out);
            }
            casts.push(began.elapsed().as_secs_f64());
            let began = Instant::now();
            for n in 0..NUMBERS / BLOCK {
                let at = n * BLOCK % block;
                copy[3 * at..3 * (at + BLOCK)].copy_from_slice(black_box(&source[3 * at..3 * (at + BLOCK)]));
                black_box(&mut copy);
            }
            copies.push(began.elapsed().as_secs_f64());
        }
        let (cast, copy) = (median(casts), median(copies));
        let rate = |seconds: f64| 6.0 * NUMBERS as f64 / seconds / 1e9;
        println!(
            "| {name} | {:.1} | {:.1} | {:.2} × |",
            rate(cast),
            rate(copy),
            cast / copy
        );
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
