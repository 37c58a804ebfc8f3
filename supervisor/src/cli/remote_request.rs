//! Requests to a supervisor that is unreachable from here: a request is left in the run directory, and the journal shows the
//! result.

use super::target::{self, RunInfo};
use crate::control::{ControlRequest, LeftRequest};
use crate::error::CliError;
use crate::printer;
use std::time::{Duration, Instant};
use supervise_core::id::Term;
use supervise_host::io_worker::requests;

/// A supervisor looks at each heartbeat, every quarter of `lease.ttl` (15 s by default).
pub(super) const TAKEN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// A lease without heartbeats for this long has no holder.
const GONE: Duration = Duration::from_secs(60);

/// Leaves a request and waits until the run's journal shows that it was obeyed. `limit`: time after it was accepted; `None`:
/// unlimited.
///
/// # Errors
/// It cannot be left, or is not obeyed in time.
pub(super) fn ask(
    (command, seen): (&str, &RunInfo),
    request: ControlRequest,
    limit: Option<Duration>,
    done: impl Fn(&RunInfo) -> bool,
) -> Result<RunInfo, CliError> {
    let (run, term) = (&seen.run, term(seen));
    let otherwise = |e: CliError| seen.way_there(command).into_iter().fold(e, CliError::hint);
    let (Some(dir), Some(there)) = (seen.run_dir.as_deref(), &seen.elsewhere) else {
        return Err(CliError::internal("its supervisor is not elsewhere"));
    };
    let failed = |e: &dyn std::fmt::Display| {
        let text = format!(
            "a request for the supervisor of run {run}, on {}, cannot be left: {e}",
            there.host
        );
        otherwise(CliError::environment(text))
    };
    let text = serde_json::to_vec(&LeftRequest { term, request }).map_err(|e| failed(&e))?;
    let place = requests::leave(dir, &text).map_err(|e| failed(&e))?;
    printer::err(&format!(
        "run {run}: its supervisor lives on {}; the request waits in {dir} until it looks there\n",
        there.host
    ));
    let began = Instant::now();
    let mut seen_last = began;
    loop {
        std::thread::sleep(LOOK);
        let waits = requests::waits(&place);
        let now = target::look(run, Some(dir));
        if !waits && done(&now) {
            return Ok(now);
        }
        if now.elsewhere.is_some() {
            seen_last = Instant::now();
        }
        let took = began.elapsed();
        let what = if self::term(&now) != term {
            "another supervisor has begun, which it is not for"
        } else if seen_last.elapsed() > GONE {
            "its supervisor is gone"
        } else if waits && took > limit.map_or(TAKEN, |l| l.min(TAKEN)) {
            "it has not been taken; it stays, for this supervisor alone"
        } else if !waits && limit.is_some_and(|l| took > l.saturating_add(TAKEN)) {
            "it was taken, and is not done yet"
        } else {
            continue;
        };
        let text = format!(
            "the request for the supervisor of run {run}: {what}, after {} s",
            took.as_secs()
        );
        return Err(otherwise(CliError::environment(text)));
    }
}

fn term(seen: &RunInfo) -> Term {
    seen.state.as_ref().map(|s| s.term).unwrap_or_default()
}
