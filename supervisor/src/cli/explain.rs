//! `supervise explain`.

mod bundle;

use super::{records, target};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, PrepareRequest};
use crate::printer;
use crate::render::explain::{AttemptStory, ExplainView, StoryBuilder};
use camino::Utf8Path;
use supervise_core::id::AttemptNo;
use supervise_core::journal::LineHeader;
use supervise_host::io_worker::JournalPlace;

pub(super) const EXAMPLES: &str = "  supervise explain ppo.yaml
  supervise explain ppo.yaml --attempt 3     one attempt, with every decision
  supervise explain ppo.yaml --verbose       all of them
  supervise explain /ckpt/my-run --json
  supervise explain ppo.yaml --bundle report.tar.zst
";

/// Number of attempts shown by default.
const SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Only this attempt
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Show every attempt, not only the last 20
    #[arg(long, conflicts_with = "attempt")]
    all: bool,
    /// Show every decision with its evidence, as for a single attempt
    #[arg(long, short)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write an archive for a bug report, with secrets hidden
    ///
    /// It does not include the workers' own logs. Check its contents before you send it.
    #[arg(long, value_name = "FILE.tar.zst", conflicts_with_all = ["attempt", "json"])]
    bundle: Option<camino::Utf8PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let dir = seen.run_dir()?;
    target::tell_gaps(&seen);
    if let Some(to) = &args.bundle {
        return bundled(&seen, to);
    }
    let (from, first) = match args.all {
        true => (JournalPlace::default(), AttemptNo(0)),
        false => begin(args.attempt, &seen, dir)?,
    };
    let teller = tell(dir, from, first)?;
    let view = teller.finish(&seen.run.0, args.attempt);
    if let (Some(n), true) = (args.attempt, view.attempts.is_empty()) {
        return Err(CliError::usage(format!("run {}: there is no attempt {n}", seen.run)));
    }
    if first > AttemptNo(1) && args.attempt.is_none() {
        let last = first.0 - 1;
        printer::note(&format!("attempts 1 to {last} are not shown: `--all` shows them"));
    }
    if args.json {
        super::print_json(&view)?;
    } else {
        let long = args.verbose || args.attempt.is_some();
        super::print(&if long { view.text() } else { view.brief(dir) })?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The whole story of a run, from its first attempt on.
pub(super) fn whole(seen: &target::RunInfo) -> Result<ExplainView, CliError> {
    let teller = tell(seen.run_dir()?, JournalPlace::default(), AttemptNo(0))?;
    Ok(teller.finish(&seen.run.0, None))
}

/// The story of one attempt; `None`: the journals do not hold it.
pub(super) fn story(seen: &target::RunInfo, attempt: u32) -> Result<Option<AttemptStory>, CliError> {
    let dir = seen.run_dir()?;
    let (from, first) = begin(Some(attempt), seen, dir)?;
    Ok(tell(dir, from, first)?
        .finish(&seen.run.0, Some(attempt))
        .attempts
        .pop())
}

/// Writes the archive for a bug report, and prints its path.
fn bundled(seen: &target::RunInfo, to: &Utf8Path) -> Result<u8, CliError> {
    know_secrets(seen);
    let view = whole(seen)?;
    let failed = |e: serde_json::Error| CliError::internal(format!("no JSON: {e}"));
    let hidden = |text: String| supervise_config::redact_text(&text);
    let made = [
        ("explain.txt", hidden(view.brief(seen.run_dir()?) + "\n" + &view.text())),
        (
            "explain.json",
            hidden(serde_json::to_string_pretty(&view).map_err(failed)?),
        ),
        ("version.txt", format!("supervise {}\n", env!("CARGO_PKG_VERSION"))),
    ];
    let (files, length) = bundle::write(to, seen.run_dir()?, &made)?;
    let text = format!(
        "{to}: {} of run {}, {}; secrets are hidden as far as they can be told: look before you send it\n\
         note: what the workers wrote themselves (worker-N.log) is not in it, only its redacted ends (evidence/tail-N.log)\n",
        crate::render::count(u64::try_from(files).unwrap_or(u64::MAX), "file"),
        seen.run,
        crate::render::bytes(u64::try_from(length).unwrap_or(u64::MAX))
    );
    super::print(&text)?;
    Ok(SuperviseExitCode::Finished.code())
}

/// Secrets were hidden when the files were written, but a supervisor that took over workers may not have known all of them. The
/// values of secret keys are stored nowhere, so read them from the configuration again.
fn know_secrets(seen: &target::RunInfo) {
    let file = seen
        .spec
        .as_ref()
        .and_then(|s| Some(s.cwd.join(s.config_file.as_ref()?)));
    if let Some(file) = file {
        // A file that is missing or invalid yields none.
        let _ = prepare::discover(PrepareRequest {
            config: Some(file),
            ..PrepareRequest::default()
        });
    }
}

/// Where the story of the shown attempts begins, and the first of them.
fn begin(attempt: Option<u32>, seen: &target::RunInfo, dir: &Utf8Path) -> Result<(JournalPlace, AttemptNo), CliError> {
    let everything = (JournalPlace::default(), AttemptNo(0));
    let began = match seen.began.as_slice() {
        [] => target::peek(dir).map_err(CliError::environment)?.attempts,
        known => known.to_vec(),
    };
    let first = match attempt {
        Some(n) => began.iter().find(|b| b.attempt.0 == n),
        None => began.len().checked_sub(SHOWN + 1).and_then(|n| began.get(n + 1)),
    };
    Ok(first.map_or(everything, |b| (b.at, b.attempt)))
}

/// Tells what the journals contain from a position on.
fn tell(dir: &Utf8Path, from: JournalPlace, first: AttemptNo) -> Result<StoryBuilder, CliError> {
    let mut teller = None;
    records::each(dir, from, &mut |line, record| {
        teller.get_or_insert_with(|| begun(first, line)).add(record);
    })?;
    Ok(teller.unwrap_or_default())
}

/// A story from the start, or from an attempt on.
fn begun(first: AttemptNo, line: &LineHeader) -> StoryBuilder {
    match first {
        AttemptNo(0) => StoryBuilder::default(),
        first => StoryBuilder::since(first, line),
    }
}
