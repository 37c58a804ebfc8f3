//! `supervise diagnose`: why a run failed, from its logs alone.

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, PrepareRequest, answers, failure_lines};
use crate::render::diagnose::{DiagnoseView, words};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::{Duration, Instant};
use supervise_core::diagnosis::{LogDoubt, LogReader};
use supervise_core::policy::{Changes, rule};
use supervise_core::rulebook::failure_line::FailureLine;
use supervise_host::hidden_places::{HiddenLog, beside};

pub(super) const EXAMPLES: &str = "  supervise diagnose train.log
  supervise diagnose rank0.log rank1.log --exit-code 137
  srun train.sh 2>&1 | tee train.log | supervise diagnose -
  supervise diagnose train.log --json
  supervise diagnose train.log --config ppo.yaml
";

pub(super) const EXITS: [SuperviseExitCode; 5] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
    SuperviseExitCode::Config,
];

/// The wait for a process that writes to a pipe, and between two looks.
const WRITER: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(20);

/// Bytes read at once.
const BLOCK: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Logs of one run, one for each rank; - is standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<String>,
    /// The run's exit code, as a shell (137) or Python (-9) reports it
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-64..=255))]
    exit_code: Option<i32>,
    /// Use `rules` and `policy` of this trainer YAML
    #[arg(long, value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    if args.logs.iter().filter(|l| *l == "-").count() > 1 {
        return Err(CliError::usage("standard input is named twice; it can be read once"));
    }
    let (lines, changes) = rules(args.config.clone(), args.settings.clone())?;
    let mut reading = LogReader::new(&lines)
        .map_err(|e| CliError::internal(format!("the table of classes does not compile: {e}")))?;
    let mut block = vec![0; BLOCK];
    for log in &args.logs {
        reading.begin();
        if log == "-" {
            read("standard input", io::stdin().lock(), &mut reading, &mut block)?;
        } else {
            read(log, open(log)?, &mut reading, &mut block)?;
        }
        reading.end_log();
    }
    let mut verdict = reading.verdict(args.exit_code);
    if let (None, Some((at, why @ (LogDoubt::Binary | LogDoubt::Utf16)))) = (&verdict.class, verdict.doubt) {
        let log = args.logs.get(at).map_or("", String::as_str);
        return Err(
            CliError::usage(format!("{log} {}", why.words())).hint("name a log that is text; decompress it first")
        );
    }
    if let (Some(class), Some(first)) = (&verdict.class, verdict.action) {
        verdict.action = Some(rule(&changes, &lines, class, first).answer);
    }
    let view = DiagnoseView::of(&verdict, &args.logs, &lines);
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&words(&view))?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The user's failure lines and policy.
fn rules(config: Option<Utf8PathBuf>, settings: SettingsFiles) -> Result<(Vec<FailureLine>, Changes), CliError> {
    if config.is_none() && settings.files.is_empty() {
        return Ok((Vec::new(), Changes::new()));
    }
    let request = PrepareRequest {
        config,
        settings: settings.named(),
        ..PrepareRequest::default()
    };
    let settings = prepare::discover(request)?.sources.settings;
    Ok((failure_lines(&settings), answers(&settings)))
}

fn open(log: &str) -> Result<Box<dyn Read>, CliError> {
    if std::fs::metadata(log).is_ok_and(|meta| meta.file_type().is_fifo()) {
        return match Pipe::open(log) {
            Ok(pipe) => Ok(Box::new(pipe)),
            Err(e) => Err(unreadable(log, &e)),
        };
    }
    let file = File::open(log).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CliError::usage(format!("there is no log {log}")),
        _ => unreadable(log, &e),
    })?;
    match file.metadata() {
        Ok(meta) if meta.is_dir() => Err(CliError::usage(format!("{log} is a directory; name the logs in it"))),
        // It may never end.
        Ok(meta) if meta.file_type().is_char_device() => {
            Err(CliError::usage(format!("{log} is a device, no log"))
                .hint("name the log's file, or - for standard input"))
        }
        Ok(_) => match HiddenLog::open(Utf8Path::new(log)) {
            // A worker's output has a `.hide` file next to it, with the byte ranges to hide.
            Ok(hidden) if beside(Utf8Path::new(log)).exists() => Ok(Box::new(hidden)),
            _ => Ok(Box::new(file)),
        },
        Err(e) => Err(unreadable(log, &e)),
    }
}

/// A named pipe. One that nobody writes to would be waited for without an end.
struct Pipe {
    file: File,
    opened: Instant,
    written: bool,
}

impl Pipe {
    fn open(log: &str) -> io::Result<Self> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(log)?;
        Ok(Self {
            file,
            opened: Instant::now(),
            written: false,
        })
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Ok(0) if !self.written && self.opened.elapsed() < WRITER => {}
                Ok(0) if !self.written => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "it is a pipe that nobody writes to",
                    ));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.written = true,
                done => {
                    self.written = true;
                    return done;
                }
            }
            std::thread::sleep(AGAIN);
        }
    }
}

fn read(name: &str, mut from: impl Read, reading: &mut LogReader, block: &mut [u8]) -> Result<(), CliError> {
    let mut first = true;
    loop {
        let n = match from.read(block) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(unreadable(name, &e)),
        };
        if std::mem::take(&mut first)
            && let Some(kind) = compressed(&block[..n])
        {
            return Err(
                CliError::usage(format!("{name} is compressed ({kind}), which `diagnose` does not read"))
                    .hint(format!("unpack it first: {kind} -dc FILE | supervise diagnose -")),
            );
        }
        reading.feed(&block[..n]);
    }
}

fn unreadable(name: &str, e: &io::Error) -> CliError {
    let failed = CliError::environment(format!("{name} cannot be read: {e}"));
    match e.kind() {
        io::ErrorKind::TimedOut => failed.hint("start the program that writes to it, or name a file"),
        _ => failed,
    }
}

/// The program that compressed it.
fn compressed(head: &[u8]) -> Option<&'static str> {
    [
        (&b"\x1f\x8b"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
    ]
    .into_iter()
    .find_map(|(magic, name)| head.starts_with(magic).then_some(name))
}
