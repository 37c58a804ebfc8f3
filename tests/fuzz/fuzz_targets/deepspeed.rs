//! The target `deepspeed` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("deepspeed").expect("it is in the table").run)(bytes));
