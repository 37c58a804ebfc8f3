//! `supervise man`.

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use camino::Utf8PathBuf;
use std::io;

pub(super) const EXAMPLES: &str = "  supervise man | man -l -
  supervise man /usr/local/share/man/man1
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a page for the program and one for each command here
    #[arg(value_name = "DIR")]
    dir: Option<Utf8PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    match &args.dir {
        Some(dir) => pages(dir).map_err(|e| CliError::environment(format!("writing man pages into {dir}: {e}")))?,
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command()).render(&mut page);
            super::written(rendered.and_then(|()| printer::out_bytes(&page)))?;
        }
    }
    Ok(SuperviseExitCode::Finished.code())
}

fn pages(dir: &Utf8PathBuf) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command(), dir)
}

/// The command line without `help`, which needs no page.
fn command() -> clap::Command {
    super::command().disable_help_subcommand(true)
}
