//! The corpus and a fixed number of cases made from it, for every target.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says so, and with which case"
)]

use std::path::{Path, PathBuf};
use supervise_fuzz_targets::mutate::{Numbers, mutate};
use supervise_fuzz_targets::{TARGETS, Target, find};

fn beside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(path)
}

/// Seeds in order of their names: the same cases on every machine.
fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = beside("corpus").join(target.name);
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .expect("every target has a corpus")
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

fn replay(name: &str, cases: usize) {
    let target = find(name).expect("it is in the table");
    let seeds = seeds(target);
    assert!(seeds.len() >= 3, "{name} has {} seeds", seeds.len());
    for (seed, bytes) in &seeds {
        println!("{seed}");
        (target.run)(bytes);
    }
    let mut numbers = Numbers::new(name.bytes().map(u64::from).sum());
    for n in 0..cases {
        let (seed, other) = (numbers.below(seeds.len()), numbers.below(seeds.len()));
        let case = mutate(&seeds[seed].1, &seeds[other].1, target.words, &mut numbers);
        // Shown only where it fails: the last one is what broke the promise.
        println!("case {n}, {} changed: {}", seeds[seed].0, case.escape_ascii());
        (target.run)(&case);
    }
}

macro_rules! replayed {
    ($($name:ident $cases:literal;)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name), $cases);
        })*

        #[test]
        fn no_target_is_left_out() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|t| t.name).collect::<Vec<_>>(), tested);
            for name in tested {
                let program = beside("fuzz_targets").join(format!("{name}.rs"));
                assert!(program.is_file(), "{name} has no libFuzzer program");
            }
        }
    };
}

replayed! {
    torch_zip 3000;
    torch_pickle 3000;
    pickle 6000;
    safetensors 4000;
    json 1500;
    dcp_metadata 1500;
    distcp 1000;
    deepspeed 3000;
    record 3000;
    journal 1500;
    yaml 1000;
    compose 2000;
    hydra 6000;
}
