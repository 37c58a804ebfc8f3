//! `supervise logs`: what the workers printed.

use super::target;
use crate::control;
use crate::error::CliError;
use crate::exit::Exit;
use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use supervise_core::id::RunId;
use supervise_host::guard::protocol;

pub(super) const EXAMPLES: &str = "  supervise logs ppo.yaml
  supervise logs ppo.yaml --attempt 3 --worker 1
  supervise logs ppo.yaml --follow
";

/// A file that grows is looked at so often.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// This attempt instead of the last one
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// This worker instead of worker 0
    #[arg(long, value_name = "R", default_value_t = 0)]
    worker: u32,
    /// Go on while the attempt lives
    #[arg(long, short)]
    follow: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let dir = seen.run_dir()?;
    let last = seen.state.as_ref().and_then(|s| s.attempt.as_ref()).map(|a| a.no.0);
    let Some(attempt) = args.attempt.or(last) else {
        return Err(CliError::usage(format!("run {}: nothing was launched yet", seen.run)));
    };
    let folder = dir.join(format!("attempts/{attempt:04}"));
    let file = folder.join(format!("worker-{}.log", args.worker));
    let follow = args.follow && Some(attempt) == last;
    if !follow && !file.exists() {
        return Err(missing(&seen.run, attempt, args.worker, &folder));
    }
    // The reader may go at any time: that ends the command, and well.
    let _ = show(&file, &seen.run, follow);
    Ok(Exit::Finished.code())
}

fn missing(run: &RunId, attempt: u32, worker: u32, folder: &Utf8Path) -> CliError {
    let mut there: Vec<String> = match folder.read_dir_utf8() {
        Ok(entries) => entries
            .flatten()
            .filter_map(|e| Some(e.file_name().strip_prefix("worker-")?.strip_suffix(".log")?.to_owned()))
            .collect(),
        Err(_) => return CliError::usage(format!("run {run}: there is no attempt {attempt} ({folder})")),
    };
    there.sort();
    let workers = if there.is_empty() {
        "none".to_owned()
    } else {
        there.join(", ")
    };
    CliError::usage(format!(
        "run {run}, attempt {attempt}: there is no output of worker {worker}"
    ))
    .hint(format!("workers with output: {workers}"))
}

/// Older rotated parts first, then the present file; then what comes.
fn show(file: &Utf8Path, run: &RunId, follow: bool) -> io::Result<()> {
    let mut parts: Vec<Utf8PathBuf> = (1..=1000)
        .map(|n| Utf8PathBuf::from(format!("{file}.{n}")))
        .take_while(|p| p.exists())
        .collect();
    parts.reverse();
    for part in parts {
        copy(&mut File::open(part)?)?;
    }
    let mut open: Option<(File, u64)> = None;
    loop {
        let ended = !follow || !lives(run);
        if open.is_none() {
            open = File::open(file)
                .ok()
                .and_then(|f| f.metadata().ok().map(|m| (f, m.ino())));
        }
        if let Some((f, ino)) = &mut open {
            copy(f)?;
            let now = std::fs::metadata(file).map(|m| (m.ino(), m.len()));
            let at = f.stream_position()?;
            match now {
                // Rotated away: the next look opens the new one.
                Ok((other, _)) if other != *ino => {
                    open = None;
                    continue;
                }
                Ok((_, len)) if len < at => {
                    f.seek(SeekFrom::Start(0))?;
                }
                _ => {}
            }
        }
        if ended {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn lives(run: &RunId) -> bool {
    control::listens(&protocol::socket_name(run))
}

fn copy(from: &mut File) -> io::Result<()> {
    let mut chunk = vec![0_u8; 64 << 10];
    loop {
        let n = from.read(&mut chunk)?;
        if n == 0 {
            return Ok(());
        }
        printer::out_bytes(chunk.get(..n).unwrap_or(&[]))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        std::fs::write(dir.join("worker-0.log"), "x").unwrap();
        let e = missing(&RunId("r".into()), 1, 7, dir);
        assert_eq!(e.hints, ["workers with output: 0"]);
        assert!(
            missing(&RunId("r".into()), 9, 7, &dir.join("no"))
                .message
                .contains("no attempt 9")
        );
    }
}
