//! Binary and thin library: driver, command line, words.
//!
//! [`main`] is the program. Decisions are made in `supervise-core`, system calls in `supervise-host`; here they are wired
//! together, and everything a person reads is written.

pub mod cli;
pub mod control;
pub mod driver;
pub mod error;
pub mod exit;
pub mod prepare;
pub mod printer;
pub mod render;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the program: parses the command line, does what it says, returns the documented exit code.
pub fn main() -> ExitCode {
    if let Some(code) = helper() {
        return code;
    }
    // The guard holds the workers whatever happens here: a panic ends this process and nothing else.
    match catch_unwind(AssertUnwindSafe(|| cli::main(std::env::args_os()))) {
        Ok(code) => ExitCode::from(code),
        Err(_) => {
            printer::err(
                "error (internal error): this is a mistake in supervise; the training was not touched\n  hint: `supervise status` tells how the run is; `supervise run` takes it over again\n",
            );
            ExitCode::from(exit::Exit::Internal.code())
        }
    }
}

/// Our own helpers are this program, executed again: they come before anything else is set up.
fn helper() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let code = match args.next()?.to_str()? {
        "__guard" => supervise_host::guard::main(&args.collect::<Vec<_>>()),
        "__sink" => supervise_host::sink::main(),
        "__lane" => supervise_host::lane::main(&args.collect::<Vec<_>>()),
        _ => return None,
    };
    Some(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}
