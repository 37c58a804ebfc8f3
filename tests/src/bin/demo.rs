//! The demo: the same training twice under `supervise`, once left alone and once with
//! faults, and a table that says whether both ended with the same weights.
//!
//!     cargo build -p supervise-tests --bins && target/debug/demo [--without-proof] [--keep]
//!
//! `--without-proof` turns the proof of checkpoints off, to show what it is good for.
//! `--keep` leaves the run directories behind. Exit code 0 means: digests equal, faults
//! seen, attempts grew, never two writers at once.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use supervise_tests::showcase::{Showcase, Table};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = arguments
        .iter()
        .find(|a| !["--without-proof", "--keep"].contains(&a.as_str()))
    {
        let _ = writeln!(io::stderr(), "demo: unknown argument {unknown}");
        return ExitCode::from(64);
    }
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    match run(!has("--without-proof"), has("--keep")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            let _ = writeln!(io::stderr(), "demo: {e}");
            ExitCode::from(69)
        }
    }
}

fn run(proof: bool, keep: bool) -> io::Result<bool> {
    let config = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/configs/demo.yaml");
    let folder = tempfile::Builder::new().prefix("supervise-demo.").tempdir()?;
    let showcase = Showcase::new(&config, folder.path(), proof)?;
    let table = Table {
        straight: showcase.run("straight", false)?,
        faulted: showcase.run("faulted", true)?,
    };
    writeln!(io::stdout(), "\n{}", table.render())?;
    if keep {
        writeln!(io::stdout(), "kept in {}", folder.keep().display())?;
    }
    let complaints = table.complaints();
    for complaint in &complaints {
        writeln!(io::stdout(), "NOT AS IT SHOULD BE: {complaint}")?;
    }
    Ok(complaints.is_empty())
}
