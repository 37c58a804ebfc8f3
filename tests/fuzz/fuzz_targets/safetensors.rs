//! The target `safetensors` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("safetensors").expect("it is in the table").run)(bytes));
