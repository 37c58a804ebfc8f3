//! `supervise metrics`: prints the metrics of runs once.

use super::target::{self, RunInfo};
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::unreadable_registry;
use crate::render::metrics::{Format, metrics};
use crate::render::status::StatusView;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io::{self, Write as _};

pub(super) const EXAMPLES: &str = "  supervise metrics                        every run of this user
  supervise metrics ppo.yaml --openmetrics
  supervise metrics --textfile /var/lib/node_exporter/supervise.prom    from a timer: the node exporter reads it
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: every run]
    ///
    /// Without it, every run of this user on this machine.
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Write atomically to this file, for the node exporter
    ///
    /// As the node exporter's textfile collector expects it.
    #[arg(long, value_name = "FILE.prom", conflicts_with = "openmetrics")]
    textfile: Option<Utf8PathBuf>,
    /// Print OpenMetrics instead of the Prometheus format
    #[arg(long)]
    openmetrics: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = match args.runs.as_slice() {
        [] => match unreadable_registry() {
            // Metrics without runs would suggest that there are none.
            Some(why) => return Err(CliError::environment(why).hint("the runs can be named: `supervise metrics RUN`")),
            None => target::all().0,
        },
        names => names.iter().map(|n| target::find(n)).collect::<Result<Vec<_>, _>>()?,
    };
    let views: Vec<StatusView> = seen.iter().map(RunInfo::view).collect();
    let format = if args.openmetrics {
        Format::OpenMetrics
    } else {
        Format::Text
    };
    let text = metrics(&views, wall(), format);
    match &args.textfile {
        None => super::written(crate::printer::out_bytes(text.as_bytes()))?,
        Some(file) => replace(file, &text).map_err(|e| {
            CliError::environment(format!("{file}: the metrics cannot be written: {e}"))
                .hint("the directory has to exist, and this user has to be allowed to write there")
        })?,
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// Replaces the file atomically, so that readers find the old or the new one.
fn replace(file: &Utf8Path, text: &str) -> io::Result<()> {
    let dir = file
        .parent()
        .filter(|d| !d.as_str().is_empty())
        .unwrap_or(Utf8Path::new("."));
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    // A device or a link would be replaced as well.
    if fs::symlink_metadata(file).is_ok_and(|m| !m.is_file()) {
        return Err(io::Error::other("it is there and is no file"));
    }
    // The collector reads only `*.prom`.
    let draft = dir.join(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let written = fs::File::create_new(&draft)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}
