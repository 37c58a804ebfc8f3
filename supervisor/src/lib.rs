//! The program: command line, driver and output.
//!
//! Decisions are made in `supervise-core` and system calls in `supervise-host`; this crate connects them and writes everything
//! people read.

pub mod cli;
pub mod control;
mod declared_files;
pub mod driver;
mod environment;
pub mod error;
pub mod exit;
mod journal_progress;
pub mod lead;
mod newer_journal;
pub mod notify;
mod path_access;
pub mod prepare;
pub mod printer;
pub mod rehearse;
pub mod render;
pub mod run_order;
pub mod screen;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the program and returns its documented exit code.
pub fn main() -> ExitCode {
    supervise_host::process::survive_file_limit();
    environment::know_secrets();
    if let Some(code) = helper() {
        return code;
    }
    let code = guarded(|| cli::main(std::env::args_os()));
    printer::flush();
    ExitCode::from(code)
}

/// Turns a panic into a short message and an exit code. The guard keeps the workers running meanwhile.
fn guarded(what: impl FnOnce() -> u8) -> u8 {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map(|l| format!(" ({}:{})", l.file(), l.line()))
            .unwrap_or_default();
        let error = error::CliError::internal(format!(
            "{}{place}",
            info.payload_as_str().unwrap_or("a panic without words")
        ))
        .hint("this is a mistake in supervise; workers that run are held by their guard")
        .hint("`supervise status` tells how the run is, `supervise run` takes it over again");
        printer::fail(&error);
    }));
    catch_unwind(AssertUnwindSafe(what)).unwrap_or(exit::SuperviseExitCode::Internal.code())
}

/// Runs a helper process, which is this program executed again, before anything else is set up.
fn helper() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let name = args.next()?;
    if let Some(name) = supervise_host::script::name_of(&name) {
        return Some(exit_code(supervise_host::script::main(&name, args.collect())));
    }
    let code = match args.next()?.to_str()? {
        "__guard" => supervise_host::guard::main(&args.collect::<Vec<_>>()),
        "__nodes" => supervise_host::guard::nodes::launcher::main(),
        "__node" => supervise_host::guard::nodes::worker::main(),
        "__ray" => supervise_host::guard::nodes::ray::main(&args.collect::<Vec<_>>()),
        "__relay" => supervise_host::guard::nodes::relay::main(&args.collect::<Vec<_>>()),
        "__evidence" => supervise_host::evidence::main(&args.collect::<Vec<_>>()),
        "__notify" => notify::send::helper(),
        "__rehearse" => rehearse::helper(),
        "__fabric" => supervise_host::guard::fabric::main(&args.collect::<Vec<_>>()),
        "__log_writer" => supervise_host::log_writer::main(),
        "__demo_trainer" => demo_trainer(args),
        "__io_worker" => {
            supervise_host::system::ignore_signals();
            cli::trace();
            supervise_host::io_worker::main(&args.collect::<Vec<_>>())
        }
        _ => return None,
    };
    Some(exit_code(code))
}

fn demo_trainer(args: std::env::ArgsOs) -> i32 {
    let args: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    supervise_demo_trainer::demo::program::run(&args).into()
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_with_its_own_code() {
        assert_eq!(guarded(|| 7), 7);
        assert_eq!(guarded(|| panic!("on purpose")), 70);
        // The other tests want the default messages.
        let _ = std::panic::take_hook();
    }
}
