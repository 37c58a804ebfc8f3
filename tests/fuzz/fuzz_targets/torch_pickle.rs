//! The target `torch_pickle` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("torch_pickle").expect("it is in the table").run)(bytes));
