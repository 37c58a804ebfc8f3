//! `supervise status`.

use super::target;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{searched, unreadable_registry};
use crate::printer;
use crate::render::status::StatusView;
use crate::render::table::table;
use std::io::{IsTerminal, stdout};

pub(super) const EXAMPLES: &str =
    "  supervise status                      every run of this user, newest first, a line each
  supervise status ppo.yaml
  supervise status /ckpt/my-run --json | jq -r '.[0].mode'
  supervise status --health /ckpt/my-run    0 if its supervisor answers, else 69: for a probe
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory of a run
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Exit with 69 unless each run's supervisor answers within 5 s
    ///
    /// A supervisor that waits (for a GPU, a disk, the next retry) counts as healthy.
    #[arg(long, requires = "runs", conflicts_with = "json")]
    health: bool,
    /// Watch live, as `supervise top` does
    #[arg(long, conflicts_with_all = ["json", "health"])]
    watch: bool,
    /// Draw loss and reward in a pipe too
    ///
    /// A terminal with UTF-8 shows them anyway, for the last 256 steps.
    #[arg(long, conflicts_with_all = ["json", "health"])]
    curves: bool,
    /// Print JSON: a list, one object per run
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    if args.watch {
        return super::top::watch(&args.runs);
    }
    let (seen, gone) = match args.runs.as_slice() {
        [] => target::all(),
        names => (names.iter().map(|n| target::find(n)).collect::<Result<Vec<_>, _>>()?, 0),
    };
    if args.health {
        return health(&seen);
    }
    let views: Vec<StatusView> = seen.iter().map(target::RunInfo::view).collect();
    if args.json {
        super::print_json(&views)?;
    } else if views.is_empty() {
        super::print("no run of this user is known on this machine\n")?;
    } else if args.runs.is_empty() && views.len() > 1 {
        super::print(&table(&views, printer::columns()))?;
    } else {
        let curves = args.curves || stdout().is_terminal() && printer::takes_blocks();
        let texts: Vec<String> = views.iter().map(|v| v.text_with(curves)).collect();
        super::print(&texts.join("\n"))?;
    }
    if views.is_empty() {
        printer::note(&searched().to_string());
    }
    for note in seen.iter().flat_map(|s| &s.notes) {
        printer::note(note);
    }
    if let Some(why) = unreadable_registry().filter(|_| args.runs.is_empty()) {
        printer::note(&why);
    }
    if gone > 0 {
        let runs = crate::render::count(gone as u64, "run");
        printer::note(&format!("{runs} not shown: the directories are gone"));
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// A health probe: requires an answer from each supervisor's event loop, and prints nothing if all is well.
fn health(seen: &[target::RunInfo]) -> Result<u8, CliError> {
    match seen.iter().find(|s| !s.answered) {
        None => Ok(SuperviseExitCode::Finished.code()),
        Some(seen) => {
            let lives = seen.alive.supervisor.pid.map(|pid| format!(" (process {pid})"));
            let what = lives.map_or("no supervisor lives here".to_owned(), |pid| {
                format!("its supervisor lives{pid} and does not answer")
            });
            Err(CliError::environment(format!("run {}: {what}", seen.run.0)))
        }
    }
}
