//! `supervise completions`.

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use clap_complete::Shell;

pub(super) const EXAMPLES: &str = "  supervise completions bash > ~/.local/share/bash-completion/completions/supervise
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "supervise", &mut text);
    super::written(printer::out_bytes(&text))?;
    Ok(SuperviseExitCode::Finished.code())
}
