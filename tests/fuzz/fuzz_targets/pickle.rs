//! The target `pickle` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("pickle").expect("it is in the table").run)(bytes));
