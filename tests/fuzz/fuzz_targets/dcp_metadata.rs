//! The target `dcp_metadata` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (supervise_fuzz_targets::find("dcp_metadata").expect("it is in the table").run)(bytes));
