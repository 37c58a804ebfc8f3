//! The demo trainer under its own name, by which tests find its processes; `supervise` has it too.

use std::process::ExitCode;

use supervise_tests::{demo, escape};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = escape::intercept(&arguments) {
        return code;
    }
    ExitCode::from(demo::program::run(&arguments))
}
