//! The target `compose` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("compose").expect("it is in the table").run)(bytes));
