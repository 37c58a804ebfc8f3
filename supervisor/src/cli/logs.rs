//! `supervise logs`: the output of the workers.

mod shown;
mod since;
mod tail;
pub(super) mod tee;

use super::explain;
use super::target::{self, RunInfo};
use crate::control;
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::time::moment;
use camino::{Utf8Path, Utf8PathBuf};
use shown::LogFormat;
pub(in crate::cli) use shown::SafePieces;
use since::LogsSince;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use supervise_core::id::{RunId, WallMs};
use supervise_core::lease::PidScope;
use supervise_host::guard::record::parse_tree;
use supervise_host::hidden_places::HiddenLog;
use tail::{TailStart, tail_start};

pub(super) const EXAMPLES: &str = "  supervise logs ppo.yaml
  supervise logs ppo.yaml --attempt 3 --worker 1
  supervise logs grpo --tail 50
  supervise logs grpo --since 10m         or since 02:30, local time
  supervise logs ppo.yaml --follow        from attempt to attempt
";

const LOOK: Duration = Duration::from_millis(250);
const CHUNK: usize = 64 << 10;
/// Maximum number of bytes read of the record of an attempt's processes.
const TREE_LIMIT: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Show this attempt instead of the last one
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Show this worker
    ///
    /// Default: the worker that shows why the attempt ended, or else worker 0.
    #[arg(long, value_name = "R")]
    worker: Option<u32>,
    /// Show only the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
    /// Show output since then, of all attempts: 10m, 02:30, 2026-11-21T02:30:00Z
    ///
    /// The log has no times of its own. A line that begins with a date is taken at its word. For others, the journal knows when a step
    /// was seen: lines follow the last step before that time. What nobody can date is shown.
    #[arg(long, value_name = "DURATION|TIME", value_parser = |text: &str| moment(text, wall()), conflicts_with = "tail")]
    since: Option<WallMs>,
    /// Keep printing new output, across attempts, until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Follow the run that standard input announces (set by `run --tee`)
    #[arg(long, hide = true, requires = "follow")]
    new: bool,
    /// Pass every byte through, on a terminal too
    ///
    /// Otherwise only colors reach a terminal.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print one JSON object per line
    ///
    /// Its fields: attempt, worker, line, and text without secrets.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    if args.new {
        return tee::run();
    }
    let seen = target::one(args.run.as_deref())?;
    let attempts = seen.run_dir()?.join("attempts");
    let present = seen.state.as_ref().and_then(|s| s.attempt.as_ref());
    let last = present.map(|a| a.no.0);
    // With --follow, wait for an attempt that is not launched yet.
    let coming = (args.follow && goes_on(&seen.run)).then(|| present.map_or(1, |a| a.no.0 + 1));
    let Some(attempt) = args.attempt.or(last).or(coming) else {
        return Err(CliError::usage(format!("run {}: nothing was launched yet", seen.run)));
    };
    let follow = args.follow && args.attempt.is_none_or(|n| Some(n) == last);
    let since = args.since.map(|at| LogsSince::new(&seen, at, wall())).transpose()?;
    let newest = attempt;
    let attempt = match since.as_ref().filter(|_| args.attempt.is_none()) {
        Some(since) => first_since(since, &attempts, newest, args.worker.unwrap_or(0)),
        None => attempt,
    };
    let told = match present.filter(|a| a.no.0 == attempt) {
        _ if args.worker.is_some() => None,
        Some(a) => a.blamed().map(|w| w.0),
        None => blamed(&seen, attempt, &attempts)?,
    };
    let told = told.filter(|w| *w != 0);
    // Each JSON object names its worker.
    if let Some(worker) = told.filter(|_| !args.json) {
        let what = match failed_first(&folder(&attempts, attempt)) == Some(worker) {
            true => "failed first",
            false => "tells why it ended",
        };
        note(&format!(
            "worker {worker} of attempt {attempt} {what}; --worker 0 shows another one"
        ));
    }
    let worker = args.worker.or(told).unwrap_or(0);
    if !follow && !file(&attempts, attempt, worker).exists() {
        return Err(missing(&seen.run, attempt, worker, &folder(&attempts, attempt)));
    }
    let shown = Follower {
        json: args.json,
        raw: args.raw,
        run: &seen.run,
        attempts: &attempts,
        // A named attempt is followed to its end.
        only: args.attempt.is_some(),
        follow,
        quiet: args.json,
        tail: args.tail,
        since: since.as_ref(),
        newest,
        ended: None,
    };
    shown_to(worker, shown.all(attempt, worker, args.worker.unwrap_or(0)))
}

fn shown_to(worker: u32, result: io::Result<()>) -> Result<u8, CliError> {
    match result {
        // A reader that closes the pipe ends the command successfully.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::environment(format!(
            "the output of worker {worker} cannot be shown to its end: {e}"
        ))),
        _ => Ok(SuperviseExitCode::Finished.code()),
    }
}

fn note(text: &str) {
    printer::note(text);
}

fn folder(attempts: &Utf8Path, attempt: u32) -> Utf8PathBuf {
    attempts.join(format!("{attempt:04}"))
}

fn file(attempts: &Utf8Path, attempt: u32, worker: u32) -> Utf8PathBuf {
    folder(attempts, attempt).join(format!("worker-{worker}.log"))
}

/// The worker that shows why an earlier attempt ended. None failed first if the supervisor stopped the attempt.
fn blamed(seen: &RunInfo, attempt: u32, attempts: &Utf8Path) -> Result<Option<u32>, CliError> {
    let story = explain::story(seen, attempt)?;
    let was_stopped = story.as_ref().is_some_and(|s| s.ended_by_us.is_some());
    let told = story.and_then(|s| s.account).and_then(|account| account.worker);
    let recorded = || failed_first(&folder(attempts, attempt));
    Ok(told.or_else(|| if was_stopped { None } else { recorded() }))
}

/// The worker that failed first in an attempt, as its guard recorded.
fn failed_first(folder: &Utf8Path) -> Option<u32> {
    let mut bytes = Vec::new();
    let read = File::open(folder.join("tree")).and_then(|f| f.take(TREE_LIMIT).read_to_end(&mut bytes));
    let exits = read.is_ok().then(|| parse_tree(&bytes, &PidScope::default()).exits)?;
    exits.iter().find(|(_, exit)| !exit.is_success()).map(|(w, _)| w.0)
}

/// Returns true if a supervisor or guard is running, so that another attempt may follow.
fn goes_on(run: &RunId) -> bool {
    control::lives(run) || control::guard_lives(run)
}

fn next(attempts: &Utf8Path, after: u32) -> Option<u32> {
    let entries = attempts.read_dir_utf8().ok()?;
    let numbers = entries.flatten().filter_map(|e| e.file_name().parse::<u32>().ok());
    numbers.filter(|n| *n > after).min()
}

/// The first attempt with output since then, or else the newest one.
fn first_since(since: &LogsSince, attempts: &Utf8Path, newest: u32, worker: u32) -> u32 {
    let reaches = |no: &u32| since.reaches(&file(attempts, *no, worker));
    (1..=newest).rev().take_while(reaches).last().unwrap_or(newest)
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

struct Follower<'a> {
    json: bool,
    raw: bool,
    run: &'a RunId,
    attempts: &'a Utf8Path,
    only: bool,
    follow: bool,
    quiet: bool,
    /// Lines of the first attempt that are shown; `None`: all.
    tail: Option<u64>,
    since: Option<&'a LogsSince>,
    /// The last attempt that is shown without `follow`.
    newest: u32,
    /// Set by the run's own supervisor when the run has ended.
    ended: Option<&'a AtomicBool>,
}

impl Follower<'_> {
    /// Prints one attempt with this worker and, with --follow, the attempts after it.
    fn all(&self, attempt: u32, worker: u32, later: u32) -> io::Result<()> {
        let (mut attempt, mut worker, mut tail) = (attempt, worker, self.tail);
        loop {
            self.one(attempt, worker, tail.take())?;
            let goes_on = |no: &u32| !self.only && (self.follow || *no <= self.newest);
            let Some(no) = next(self.attempts, attempt).filter(goes_on) else {
                if self.follow && !self.only && !self.quiet {
                    note("the run is no longer active");
                }
                return Ok(());
            };
            if !self.quiet {
                note(&format!("attempt {no} follows"));
            }
            (attempt, worker) = (no, later);
        }
    }

    /// Returns true if this attempt may print more.
    fn is_open(&self, attempt: u32) -> bool {
        let waits = |is: bool| is && next(self.attempts, attempt).is_none();
        if let Some(ended) = self.ended {
            return waits(!ended.load(Ordering::Acquire));
        }
        let lives = match self.only {
            true => control::guard_lives(self.run),
            false => goes_on(self.run),
        };
        self.follow && waits(lives)
    }

    fn since_start(&self, since: &LogsSince, attempt: u32, files: &[Utf8PathBuf]) -> io::Result<TailStart> {
        let (start, is_exact) = since.start(attempt, files)?;
        if !is_exact && !self.quiet {
            note(&since.words(attempt));
        }
        if !files.iter().any(|f| since.reaches(f)) && !self.quiet {
            note(&format!("attempt {attempt}: no output since {}", since.moment()));
        }
        Ok(start)
    }

    /// Prints rotated parts first, oldest first, then the current file, then new output.
    fn one(&self, attempt: u32, worker: u32, tail: Option<u64>) -> io::Result<()> {
        let file = file(self.attempts, attempt, worker);
        let mut shown = LogFormat::new(self.json, self.raw, self.ended.is_some(), attempt, worker);
        let mut parts: Vec<Utf8PathBuf> = (1..=1000)
            .map(|n| Utf8PathBuf::from(format!("{file}.{n}")))
            .take_while(|p| p.exists())
            .collect();
        parts.reverse();
        let files: Vec<Utf8PathBuf> = parts.iter().chain([&file]).cloned().collect();
        let start = match (self.since, tail) {
            (Some(since), _) => self.since_start(since, attempt, &files)?,
            (None, Some(lines)) => tail_start(&files, lines, self.json)?,
            (None, None) => TailStart::default(),
        };
        shown.skip(start.skipped);
        for (n, part) in parts.iter().enumerate().skip(start.part) {
            let mut log = HiddenLog::open(part)?;
            if n == start.part {
                log.seek(start.at)?;
            }
            copy(&mut log, &mut shown)?;
        }
        let mut open: Option<HiddenLog> = HiddenLog::open(&file).ok();
        if let Some(log) = open.as_mut().filter(|_| start.part == parts.len()) {
            log.seek(start.at)?;
        }
        loop {
            let ended = !self.is_open(attempt);
            if open.is_none() {
                open = HiddenLog::open(&file).ok();
            }
            if let Some(log) = &mut open {
                copy(log, &mut shown)?;
                let now = std::fs::metadata(&file).map(|m| (m.ino(), m.len()));
                match now {
                    // Rotated away: the next look opens the new one.
                    Ok((other, _)) if other != log.inode() => {
                        open = None;
                        continue;
                    }
                    Ok((_, len)) if len < log.at() => log.seek(0)?,
                    _ => {}
                }
            }
            if ended {
                return shown.end();
            }
            std::thread::sleep(LOOK);
            if open.as_ref().is_some_and(is_at_end) {
                shown.idle()?;
            }
        }
    }
}

fn is_at_end(log: &HiddenLog) -> bool {
    log.file().metadata().is_ok_and(|m| m.len() <= log.at())
}

fn copy(from: &mut HiddenLog, shown: &mut LogFormat) -> io::Result<()> {
    loop {
        let bytes = match shown.is_raw() {
            true => Some(from.read_raw(CHUNK)?).filter(|bytes| !bytes.is_empty()),
            false => from.read(CHUNK)?,
        };
        match bytes {
            Some(bytes) => shown.bytes(&bytes)?,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_that_failed_first_and_the_next_attempt_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        assert_eq!((failed_first(dir), next(dir, 0)), (None, None));
        let tree = "{\"worker\":0,\"exit\":{\"code\":0},\"step\":1}\n{\"worker\":2,\"exit\":{\"code\":1},\"step\":1}\n{\"worker\":1,\"exit\":{\"signal\":9},\"step\":1}\n";
        std::fs::write(dir.join("tree"), tree).unwrap();
        assert_eq!(failed_first(dir), Some(2));
        for name in ["0001", "0003", "0010", "junk"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        assert_eq!((next(dir, 1), next(dir, 3), next(dir, 10)), (Some(3), Some(10), None));
    }

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
