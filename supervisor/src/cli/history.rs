//! `supervise history`: one line per attempt.

use super::{advise, records, target};
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::explain::StoryBuilder;
use crate::render::history::{AttemptOrigins, HistoryView};
use supervise_core::ledger::TimeLedger;
use supervise_core::save_interval::SaveTimes;
use supervise_host::io_worker::JournalPlace;

pub(super) const EXAMPLES: &str = "  supervise history ppo.yaml
  supervise history /ckpt/my-run --json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    target::tell_gaps(&seen);
    let (mut teller, mut ledger, mut ways, mut times) = (
        StoryBuilder::default(),
        TimeLedger::default(),
        AttemptOrigins::default(),
        SaveTimes::default(),
    );
    records::each(seen.run_dir()?, JournalPlace::default(), &mut |_, record| {
        teller.add(record);
        ledger.note(teller.state(), record);
        ways.note(teller.state(), &ledger);
        times.note(teller.state(), record);
    })?;
    let advice = advise::advice(&seen, teller.state(), &ledger, &times, None);
    let until = seen.alive.supervisor.alive.then(wall);
    let story = teller.finish(&seen.run.0, None);
    let view = HistoryView::of(&story, &ways, &ledger, seen.spec.as_ref(), until, seen.hangs());
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text(printer::columns()))?;
        if let Some(words) = advice.and_then(|advice| advice.brief()) {
            super::print(&format!("{words}: see `supervise advise {}`\n", seen.run))?;
        }
    }
    Ok(SuperviseExitCode::Finished.code())
}
