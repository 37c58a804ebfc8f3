//! `supervise trace`: prints a run as trace events.

use super::{records, target, written};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::terminal;
use crate::render::trace::TraceBuilder;
use serde_json::Value;
use supervise_host::io_worker::JournalPlace;

pub(super) const EXAMPLES: &str =
    "  supervise trace ppo.yaml > run.json       open it in https://ui.perfetto.dev or chrome://tracing
";

/// Approximate size of a written piece, in bytes.
const PIECE: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let mut out = Out {
        text: "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[".to_owned(),
        first: true,
        result: Ok(()),
    };
    let mut trace = TraceBuilder::default();
    TraceBuilder::begin(&seen.run.0, &mut |e| out.add(e));
    records::each(seen.run_dir()?, JournalPlace::default(), &mut |_, record| {
        trace.add(record, &mut |e| out.add(e));
    })?;
    let began = trace.finish(&mut |e| out.add(e)).unwrap_or_default().0;
    let end = format!(
        "\n],\"otherData\":{{\"run\":\"{}\",\"began_ms\":{began}}}}}\n",
        seen.run
    );
    out.text.push_str(&end);
    out.write();
    written(out.result).map(|()| SuperviseExitCode::Finished.code())
}

/// Writes events, one per line.
struct Out {
    text: String,
    first: bool,
    result: std::io::Result<()>,
}

impl Out {
    fn add(&mut self, event: &Value) {
        self.text.push_str(if self.first { "\n" } else { ",\n" });
        self.first = false;
        self.text.push_str(&terminal::json(&event.to_string()));
        if self.text.len() > PIECE {
            self.write();
        }
    }

    fn write(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.result.is_ok() {
            self.result = printer::out_bytes(text.as_bytes());
        }
    }
}
