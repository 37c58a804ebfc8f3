//! `supervise explain`.

use super::target;
use crate::error::CliError;
use crate::exit::Exit;
use crate::printer;
use crate::render::explain::Teller;
use camino::Utf8Path;
use std::fs::File;
use std::io::Read;
use supervise_core::journal;

pub(super) const EXAMPLES: &str = "  supervise explain ppo.yaml
  supervise explain ppo.yaml --attempt 3
  supervise explain /ckpt/my-run --json
";

/// A journal larger than this is somebody else's file.
const JOURNAL_LIMIT: u64 = 4 << 30;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Only this attempt
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let dir = seen.run_dir()?;
    let mut teller = Teller::default();
    for term in terms(dir)? {
        read(&dir.join(format!("journal/{term}.jsonl")), &mut teller)?;
    }
    let view = teller.finish(&seen.run.0, args.attempt);
    if let (Some(n), true) = (args.attempt, view.attempts.is_empty()) {
        return Err(CliError::usage(format!("run {}: there is no attempt {n}", seen.run)));
    }
    if args.json {
        super::print_json(&view)?;
    } else {
        printer::out(&view.text());
    }
    Ok(Exit::Finished.code())
}

fn terms(dir: &Utf8Path) -> Result<Vec<u32>, CliError> {
    let journals = dir.join("journal");
    let entries = journals
        .read_dir_utf8()
        .map_err(|e| CliError::journal(format!("{journals}: {e}")))?;
    let name = |e: camino::Utf8DirEntry| e.file_name().strip_suffix(".jsonl").and_then(|n| n.parse().ok());
    let mut out: Vec<u32> = entries.flatten().filter_map(name).collect();
    out.sort_unstable();
    Ok(out)
}

fn read(path: &Utf8Path, teller: &mut Teller) -> Result<(), CliError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|f| f.take(JOURNAL_LIMIT).read_to_end(&mut bytes))
        .map_err(|e| CliError::journal(format!("{path}: {e}")))?;
    let read = journal::read(&bytes);
    for (line, why) in &read.damaged {
        printer::err(&format!("note: {path} line {line} is damaged: {why}\n"));
    }
    for (_, record) in &read.records {
        teller.add(record);
    }
    Ok(())
}
